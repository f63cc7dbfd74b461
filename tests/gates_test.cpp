// Tests every row of the table of gates (docs/gates.md) against the reader of scenarios and the schedule.
#include "model/overlap/gates.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/build_schedule.hpp"
#include "model/overlap/left_out.hpp"
#include "model/overlap/overlap.hpp"
#include "model/scenario/keys.hpp"
#include "tests/random_layout.hpp"

namespace stretto::testing {
namespace {

using Keys = std::vector<std::string>;  // "parallel.data_parallel_size=2"

Keys operator+(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Keys kReduces = {"overlap.overlap_grad_reduce=true"};
const Keys kGathers = kReduces + Keys{"overlap.overlap_param_gather=true"};
const Keys kStages = {"parallel.pipeline_model_parallel_size=4"};
const Keys kChunks = kStages + Keys{"parallel.virtual_pipeline_model_parallel_size=2"};
const Keys kTensor = {"parallel.tensor_model_parallel_size=2"};
const Keys kSequence = kTensor + Keys{"parallel.sequence_parallel=true"};
const Keys kPieces = kSequence + Keys{"overlap.tp_comm_overlap=true"};
const Keys kExperts = {"parallel.expert_model_parallel_size=2", "parallel.expert_tensor_parallel_size=1",
                       "model.num_moe_experts=4", "model.add_bias_linear=false"};
const Keys kPairs = kExperts + Keys{"overlap.overlap_moe_expert_parallel_comm=true"};
const Keys kPadded =
    kExperts + Keys{"parallel.moe_expert_capacity_factor=2.0", "parallel.moe_pad_expert_input_to_capacity=true"};
const Keys kFlex =
    kExperts + Keys{"parallel.moe_token_dispatcher_type=flex", "parallel.moe_flex_dispatcher_backend=hybridep"};
const Keys kShardedUnits = {"parallel.data_parallel_sharding_strategy=optim_grads_params"};

// Sizes that are whole blocks in every recipe.
const Keys kBlocks = {"model.hidden_size=128", "model.seq_length=128", "training.precision=bf16"};
const Keys kAware = {"training.precision=bf16", "training.use_precision_aware_optimizer=true"};
const Keys kFp8 = kBlocks + Keys{"training.fp8_format=e4m3"};
const Keys kTensorwise = kFp8 + Keys{"training.fp8_recipe=tensorwise"};
const Keys kMxfp8 = kFp8 + Keys{"training.fp8_recipe=mxfp8"};
const Keys kSends =
    kExperts + kMxfp8 + Keys{"parallel.moe_token_dispatcher_type=flex", "parallel.moe_flex_dispatcher_backend=ncclep"};

// Returns the keys that open all gates of a knob and request it.
Keys asking(const std::string& knob) {
  static const std::map<std::string, Keys> kAsking = {
      {"overlap_grad_reduce", kReduces},
      {"reduce_scatter_with_fp32_accumulation",
       {"parallel.data_parallel_size=4", "overlap.reduce_scatter_with_fp32_accumulation=true",
        "overlap.grad_reduce_in_fp32=false"}},
      {"align_grad_reduce", kStages + kReduces + Keys{"overlap.align_grad_reduce=true"}},
      {"overlap_param_gather", kGathers},
      {"bucket_size", kReduces + Keys{"overlap.bucket_size=100"}},
      {"align_param_gather", kChunks + kGathers + Keys{"overlap.align_param_gather=true"}},
      {"fp8_param_gather", {"overlap.fp8_param_gather=true", "training.precision=bf16"}},
      {"overlap_param_gather_with_optimizer_step",
       kChunks + kGathers + Keys{"overlap.overlap_param_gather_with_optimizer_step=true", "training.precision=bf16"}},
      {"sequence_parallel", kSequence},
      {"async_tensor_model_parallel_allreduce", kTensor + Keys{"overlap.async_tensor_model_parallel_allreduce=true"}},
      {"tp_comm_overlap", kPieces},
      {"tp_comm_overlap_rs_dgrad", kPieces + Keys{"overlap.tp_comm_overlap_rs_dgrad=true"}},
      {"tp_comm_overlap_disable_qkv", kPieces + Keys{"overlap.tp_comm_overlap_disable_qkv=true"}},
      {"tp_comm_overlap_disable_fc1", kPieces + Keys{"overlap.tp_comm_overlap_disable_fc1=true"}},
      {"tp_comm_overlap_compute_lanes", kPieces + Keys{"overlap.tp_comm_overlap_compute_lanes=2"}},
      {"tp_comm_overlap_cfg", kPieces + Keys{"overlap.tp_comm_overlap_cfg.qkv_wgrad.method=bulk"}},
      {"tp_comm_bulk_dgrad", kPieces},
      {"tp_comm_bulk_wgrad", kPieces},
      {"overlap_p2p_comm", kStages + Keys{"overlap.overlap_p2p_comm=true"}},
      {"overlap_p2p_comm_warmup_flush",
       kChunks + Keys{"overlap.overlap_p2p_comm=true", "overlap.overlap_p2p_comm_warmup_flush=true"}},
      {"cp_comm_overlap", {"parallel.context_parallel_size=2", "overlap.cp_comm_overlap=true"}},
      {"cp_flash_overlap",
       {"parallel.context_parallel_size=2", "parallel.cp_comm_type=a2a", "overlap.cp_flash_overlap=true"}},
      {"fsdp_comm_overlap", kShardedUnits + Keys{"overlap.fsdp_comm_overlap=true"}},
      {"fsdp_prefetch_depth", kShardedUnits + Keys{"overlap.fsdp_comm_overlap=true", "overlap.fsdp_prefetch_depth=2"}},
      {"data_parallel_sharding_strategy from optim_grads on", kShardedUnits},
      {"defer_embedding_wgrad_compute", kStages + Keys{"overlap.defer_embedding_wgrad_compute=true"}},
      {"wgrad_deferral_limit",
       kStages + Keys{"overlap.defer_embedding_wgrad_compute=true", "overlap.wgrad_deferral_limit=1"}},
      {"overlap_moe_expert_parallel_comm", kPairs},
      {"delay_wgrad_compute", kPairs + Keys{"overlap.delay_wgrad_compute=true"}},
      {"ep_overlap_early_attn_memory_release", kPairs + Keys{"overlap.ep_overlap_early_attn_memory_release=true"}},
      {"moe_shared_expert_overlap",
       kExperts + Keys{"model.moe_shared_expert_intermediate_size=8", "overlap.moe_shared_expert_overlap=true"}},
      {"overlap_dispatch_backward_with_experts_wgrad",
       kExperts + Keys{"overlap.overlap_dispatch_backward_with_experts_wgrad=true"}},
      {"high_priority_a2a_comm_stream", kPairs + Keys{"overlap.high_priority_a2a_comm_stream=true"}},
      {"ep_flash_overlap", kPadded + Keys{"overlap.ep_flash_overlap=true"}},
      {"moe_flex_dispatcher_backend", kFlex},
      {"moe_token_dispatcher_type", kFlex},
      {"fp8_format", kFp8 + Keys{"platform=h100-sxm"}},
      {"fp4_format", kBlocks + Keys{"training.fp4_format=e2m1", "platform=b200-sxm"}},
      {"fp8_recipe", kTensorwise},
      {"fp8_recipe = delayed", kFp8},
      {"fp8_recipe = tensorwise", kTensorwise},
      {"fp8_recipe = blockwise", kFp8 + Keys{"training.fp8_recipe=blockwise", "platform=h100-sxm"}},
      {"fp8_recipe = mxfp8", kMxfp8 + Keys{"platform=b200-sxm"}},
      {"fp8_margin", kFp8 + Keys{"training.fp8_margin=1"}},
      {"fp8_amax_history_len", kFp8 + Keys{"training.fp8_amax_history_len=4"}},
      {"fp8_amax_compute_algo", kFp8 + Keys{"training.fp8_amax_compute_algo=max"}},
      {"tp_only_amax_red", kFp8 + Keys{"training.tp_only_amax_red=true"}},
      {"first_last_layers_bf16", kTensorwise + Keys{"training.first_last_layers_bf16=true"}},
      {"reuse_grad_buf_for_mxfp8_param_ag",
       kMxfp8 + Keys{"overlap.fp8_param_gather=true", "training.reuse_grad_buf_for_mxfp8_param_ag=true"}},
      {"moe_dispatch_fwd_dtype", kSends + Keys{"training.moe_dispatch_fwd_dtype=mxfp8"}},
      {"moe_combine_bwd_dtype", kSends + Keys{"training.moe_combine_bwd_dtype=mxfp8"}},
      {"use_precision_aware_optimizer", kAware},
      {"main_grads_dtype = bf16", kAware + Keys{"training.main_grads_dtype=bf16"}},
      {"main_params_dtype = fp16", kAware + Keys{"training.main_params_dtype=fp16"}},
      {"exp_avg_dtype", kAware + Keys{"training.exp_avg_dtype=fp8"}},
      {"exp_avg_sq_dtype", kAware + Keys{"training.exp_avg_sq_dtype=fp16"}},
      {"gelu_fusion", {"training.gelu_fusion=true"}},
      {"bias_gradient_fusion", {"training.bias_gradient_fusion=true"}},
      {"gelu_bias_gradient_fusion",
       kSequence + Keys{"training.gelu_fusion=true", "training.gelu_bias_gradient_fusion=true"}},
      {"residual_fusion", {"training.residual_fusion=true"}},
      {"enable_cuda_graph",
       kExperts + Keys{"parallel.moe_pad_expert_input_to_capacity=true", "parallel.moe_expert_capacity_factor=2"}},
      {"channel_GBps", {"cluster.channel_GBps=1.0", "cluster.nccl_communicator_config.dp.max_ctas=2"}},
      {"nccl_ub", {"cluster.nccl_ub=true"}},
      {"tensor_model_parallel_size or context_parallel_size above 1", kTensor},
      {"account_for_embedding_in_pipeline_split",
       kStages + Keys{"parallel.account_for_embedding_in_pipeline_split=true", "model.num_layers=7"}},
      {"account_for_loss_in_pipeline_split",
       kStages + Keys{"parallel.account_for_loss_in_pipeline_split=true", "model.num_layers=7"}},
      {"microbatch_group_size_per_vp_stage", kChunks + Keys{"parallel.microbatch_group_size_per_vp_stage=4"}},
      {"pipeline_schedule", kStages + Keys{"parallel.pipeline_schedule=zb-h1"}},
      {"scatter_gather_tensors_in_pipeline",
       kStages + kTensor + Keys{"parallel.scatter_gather_tensors_in_pipeline=true"}},
      {"num_distributed_optimizer_instances",
       {"parallel.data_parallel_size=4", "parallel.num_distributed_optimizer_instances=2"}},
      {"virtual_pipeline_model_parallel_size", kChunks},
  };
  static const std::map<std::string, Keys> kSizes = {{"dp", {}},
                                                     {"tp", kTensor},
                                                     {"cp", {"parallel.context_parallel_size=2"}},
                                                     {"pp", kStages},
                                                     {"embd", kStages},
                                                     {"ep", kExperts},
                                                     {"edp", kExperts + Keys{"parallel.data_parallel_size=4"}}};
  if (const auto known = kAsking.find(knob); known != kAsking.end()) return known->second;
  const auto begins = [&](const std::string& start) { return knob.starts_with(start); };
  if (const std::string config = "nccl_communicator_config."; begins(config)) {
    const std::string rest = knob.substr(config.size()), group = rest.substr(0, rest.find('.'));
    const std::string table = "cluster." + config + group;
    return rest == group ? kSizes.at(group) + Keys{table + ".max_ctas=2"}
                         : kSizes.at(group) + Keys{table + ".cta_policy=zero", "cluster.nccl_ub=true"};
  }
  if (const std::string first = "high_priority_stream_groups "; begins(first))
    return kSizes.at(knob.substr(first.size())) +
           Keys{"cluster.high_priority_stream_groups=[\"" + knob.substr(first.size()) + "\"]"};
  FAIL("no scenario asks for " << knob << ": add it to this table");
  return {};
}

// Returns a key with its section.
std::string placed(const std::string& key) {
  static const std::vector<std::string> kAll = scenario_keys();
  for (const std::string& known : kAll)
    if (known.ends_with("." + key)) return known;
  FAIL("the reader knows no key " << key);
  return "";
}

// Returns the keys that close an open gate: the opposite of its row's condition.
Keys closing(const Gate& gate) {
  static const std::map<std::string, Keys> kInWords = {
      {"data_parallel_size x context_parallel_size above 1",
       {"parallel.data_parallel_size=1", "parallel.context_parallel_size=1"}},
      {"data_parallel_sharding_strategy no_shard or optim", kShardedUnits},
      {"data_parallel_sharding_strategy from optim_grads on", {"parallel.data_parallel_sharding_strategy=optim"}},
      {"precision = bf16", {"training.precision=fp32"}},
      {"recompute_granularity none", {"training.recompute_granularity=full"}},
      {"recompute_modules without moe", {"training.recompute_granularity=selective", "training.recompute_modules=moe"}},
      {"recompute_modules without shared_experts",
       {"training.recompute_granularity=selective", "training.recompute_modules=shared_experts"}},
      {"moe_token_dispatcher_type alltoall or flex", {"parallel.moe_token_dispatcher_type=allgather"}},
      {"moe_token_dispatcher_type alltoall",
       {"parallel.moe_token_dispatcher_type=flex", "parallel.moe_flex_dispatcher_backend=hybridep"}},
      {"moe_token_dispatcher_type flex", {"parallel.moe_token_dispatcher_type=alltoall"}},
      {"with flex a moe_flex_dispatcher_backend", {}},  // none and the default are one
      {"with deepep an Ampere or Hopper GPU, B200 or B300",
       {"platform=gb200-nvl72", "parallel.moe_flex_dispatcher_backend=deepep"}},
      {"cuda_graph_modules without mlp", {"training.cuda_graph_modules=mlp"}},
      {"rows of experts that are padded, or moe_expert_rank_capacity_factor above 0",
       {"parallel.moe_expert_capacity_factor=0.0", "parallel.moe_pad_expert_input_to_capacity=false"}},
      {"virtual_pipeline_model_parallel_size above 1 with several stages",
       {"parallel.pipeline_model_parallel_size=4", "overlap.overlap_p2p_comm=true"}},
      {"overlap_p2p_comm = true with several stages",
       {"parallel.pipeline_model_parallel_size=4", "parallel.virtual_pipeline_model_parallel_size=2"}},
      {"no overlap of tensor or context parallelism", {"parallel.context_parallel_size=2"}},
      {"ranks of a stage with equal experts above 1", {"parallel.data_parallel_size=2"}},
      {"a model in fp8 (--fp8-format)", {}},  // no keys
      {"TransformerEngine 2.1 or later", {}},
      {"TransformerEngine 2.2 or later", {}},
      {"TransformerEngine 2.3 or later", {}},
      {"TransformerEngine 2.7 or later", {}},
      {"TransformerEngine 2.8 or later", {}},
      {"PyTorch 2.6 or later", {}},
      {"moe_token_dispatcher_type flex with moe_flex_dispatcher_backend ncclep",
       {"parallel.moe_flex_dispatcher_backend=hybridep"}},
      {"expert_tensor_parallel_size = 1", {"parallel.expert_tensor_parallel_size=2", "parallel.data_parallel_size=4"}},
      {"a hidden_size that is a multiple of 512", {}},
      {"moe_grouped_gemm and use_transformer_engine_op_fuser", {}},
      {"fp8_format = e4m3", {"training.fp8_format=hybrid"}},
      {"fp8_format = none", {"training.fp8_format=e4m3"}},
      {"precision = bf16 or fp32", {"training.precision=fp64"}},
      {"sides of all products that are whole blocks of a scale", {"model.seq_length=8"}},
      {"fp8_recipe other than delayed", {"training.fp8_recipe=delayed"}},
      {"num_layers_at_start_in_bf16 and num_layers_at_end_in_bf16 at most the layers of a stage",
       {"training.num_layers_at_start_in_bf16=9"}},
      {"a layer between them", {"training.num_layers_at_start_in_bf16=4", "training.num_layers_at_end_in_bf16=4"}},
      {"recompute_granularity none or selective of the attention core", {"training.recompute_granularity=full"}},
      {"fp8_recipe = mxfp8", {"training.fp8_recipe=tensorwise"}},
      {"a GPU of compute capability 8.9 or more", {"platform=a100-80gb"}},
      {"a GPU of compute capability 9.0 or more", {"platform=a100-80gb"}},
      {"a GPU of compute capability 10.0 or more", {"platform=h100-sxm"}},
      {"fp8_format", {"training.fp8_format=none"}},
      {"fp8_format or fp4_format", {"training.fp8_format=none"}},
      {"fp8_format with fp8_recipe = delayed", {"training.fp8_recipe=tensorwise"}},
      {"products of numbers (no fp8_format, no fp4_format)",
       {"training.fp8_format=e4m3", "training.fp8_recipe=tensorwise", "training.precision=bf16"}},
      {"recompute_granularity none, selective or full", {"training.recompute_granularity=selective_op"}},
      {"no gradients sharded after each micro-batch", {"parallel.data_parallel_sharding_strategy=optim_grads_params"}},
      {"recompute_granularity none or selective", {"training.recompute_granularity=full"}},
      {"batch_p2p_comm not asked for", {"overlap.batch_p2p_comm=true"}},
      {"cp_comm_type = a2a", {"parallel.cp_comm_type=p2p"}},
      {"cp_comm_type with a ring", {"parallel.cp_comm_type=all_gather"}},
      {"cuda_device_max_connections other than 1", {"cluster.cuda_device_max_connections=1"}},
      {"cuda_device_max_connections = 1 before Blackwell", {"cluster.cuda_device_max_connections=8"}},
      {"pipeline_schedule = 1f1b",
       {"parallel.pipeline_schedule=zb-v", "parallel.virtual_pipeline_model_parallel_size=2"}},
      {"hidden_dropout = 0", {"model.hidden_dropout=0.1"}},
      {"moe_pad_expert_input_to_capacity = true with num_moe_experts",
       {"parallel.moe_pad_expert_input_to_capacity=false", "parallel.moe_expert_capacity_factor=0"}},
      {"more ranks than one", {"parallel.data_parallel_size=1"}},
      {"no num_layers_in_first_pipeline_stage or num_layers_in_last_pipeline_stage",
       {"parallel.num_layers_in_first_pipeline_stage=1"}},
      {"no pipeline_model_parallel_layout",
       {"parallel.pipeline_model_parallel_layout=Et*2|t*2|t*2|tL", "parallel.account_for_loss_in_pipeline_split=true"}},
      {"at least 2 ranks in each instance", {"parallel.num_distributed_optimizer_instances=4"}},
      {"micro-batches in groups of at least pipeline_model_parallel_size, none or as many left over",
       {"training.global_batch_size=18"}},
      {"pipeline_model_parallel_size above 2 or overlap_p2p_comm = true",
       {"parallel.pipeline_model_parallel_size=2", "overlap.overlap_p2p_comm=false"}},
      {"untie_embeddings_and_output_weights = false", {"model.untie_embeddings_and_output_weights=true"}},
  };
  if (const auto known = kInWords.find(gate.needs); known != kInWords.end()) return known->second;
  if (const auto above = gate.needs.find(" above "); above != std::string::npos)
    return {placed(gate.needs.substr(0, above)) + "=" + gate.needs.substr(above + 7)};
  const auto is = gate.needs.find(" = ");
  REQUIRE(is != std::string::npos);
  const std::string key = placed(gate.needs.substr(0, is)), value = gate.needs.substr(is + 3);
  if (value == "true") return {key + "=false"};
  if (value == "false") return {key + "=true"};
  return {key + "=" + std::to_string(std::stoi(value) + 1)};
}

Scenario read(const Keys& keys) {
  return parse_scenario(
      "[model]\nnum_layers = 8\nhidden_size = 16\nnum_attention_heads = 4\nseq_length = 16\nvocab_size = 32\n"
      "[parallel]\ndata_parallel_size = 2\n[overlap]\n[cluster]\n[training]\nglobal_batch_size = 16\n",
      "test", keys);
}

// Returns the closed rows of a knob.
std::vector<std::string> closed(const Scenario& scenario, const std::string& knob) {
  std::vector<std::string> needs;
  const Gates gates = gates_of(scenario);
  for (const Gate& gate : gates.all())
    if (gate.knob == knob && !gate.open) needs.push_back(gate.needs);
  return needs;
}

bool asks_for(const Scenario& scenario, const std::string& knob) {
  const Gates gates = gates_of(scenario);
  return std::any_of(gates.all().begin(), gates.all().end(),
                     [&](const Gate& gate) { return gate.knob == knob && gate.asked; });
}

std::string noted(const Scenario& scenario, const std::string& knob) {
  const std::string start = knob + " is off: ";
  for (const std::string& note : build_schedule(scenario).notes)
    if (note.starts_with(start)) return note.substr(start.size());
  return "";
}

}  // namespace

// model/overlap/gate_places.csv has the identifiers at every place that a gate cites (scripts/gate_places makes it of
// the frameworks' sources). EP overlap with sharded gradients was Megatron-LM's here, at a line about CUDA graphs.
TEST_CASE("each gate of a framework cites a place that speaks of its knob and of what it needs") {
  // Keys that a framework calls otherwise, where it says them.
  const std::map<std::string, std::set<std::string>> theirs = {
      {"grad_reduce_in_fp32", {"accumulate_allreduce_grads_in_fp32"}},
      {"frozen_base", {"freeze_all_layers"}},
      {"fp8_param_gather", {"fp8_param", "_is_distopt_quantized_param"}},
      {"tensor_model_parallel_size", {"sequence_parallel"}},  // arguments.py removes it where nothing is cut
      {"tp_comm_overlap_rs_dgrad", {"ub_overlap_rs_dgrad"}},
      {"cuda_device_max_connections", {"CUDA_DEVICE_MAX_CONNECTIONS"}},
      {"precision", {"bf16"}},
      {"overlap_moe_expert_parallel_comm", {"set_streams"}},
      {"enable_cuda_graph", {"cuda_graph_modules"}},
      {"moe_shared_expert_intermediate_size", {"use_shared_expert"}},
      {"moe_token_dispatcher_type", {"moe_flex_dispatcher_backend"}},
      {"untie_embeddings_and_output_weights", {"share_embeddings_and_output_weights"}},
      {"pipeline_model_parallel_size", {"pipeline_parallel_size"}},
      {"expert_model_parallel_size", {"ep_size"}},
      {"expert_tensor_parallel_size", {"tp_group"}},
      {"data_parallel_sharding_strategy", {"megatron_fsdp_main_params_dtype"}},
      {"hidden_size", {"MXFP8_BLOCK_SCALING_SIZE"}},
      {"fp8_format", {"fp8", "op_dtype", "assert_dim_for_fp8_exec", "get_device_compute_capability"}},
      {"fp4_format", {"fp4", "assert_dim_for_fp8_exec", "get_device_compute_capability"}},
      {"fp8_recipe", {"input_quantizer", "get_device_compute_capability"}},
      {"nccl_communicator_config", {"nccl_comm_cfgs"}},
      {"high_priority_stream_groups", {"is_high_priority_stream"}},
      {"async_tensor_model_parallel_allreduce", {"allreduce_dgrad"}},
  };
  std::map<std::string, std::set<std::string>> places;  // ["arguments.py:1028"] → names
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path() / "model/overlap/gate_places.csv");
  std::string line, owner, path, number, name;
  for (std::getline(file, line); std::getline(file, line);) {
    std::stringstream cells(line), names;
    std::getline(cells, owner, ',');
    std::getline(cells, path, ',');
    std::getline(cells, number, ',');
    while (cells >> name) places[owner + " " + path + ":" + number].insert(name);
  }
  std::set<std::string> keys;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section)) keys.insert(key.name);
  const auto words_of = [](const std::string& text) {
    std::set<std::string> words;
    std::string word;
    for (const char letter : text + " ") {
      if (letter == '_' || std::isalnum(static_cast<unsigned char>(letter)) != 0) {
        word += letter;
      } else {
        words.insert(word);
        word.clear();
      }
    }
    return words;
  };
  const Gates gates = all_gates();
  std::size_t checked = 0;
  for (const Gate& gate : gates.all()) {
    // "COMMIT FILE:LINE", perhaps with words on it.
    std::stringstream place(gate.source.place);
    std::string commit, at;
    place >> commit >> at;
    while (!at.empty() && std::isdigit(static_cast<unsigned char>(at.back())) == 0) at.pop_back();
    if (at.find(':') == std::string::npos) continue;
    INFO(gate.knob << " needs " << gate.needs << ", " << gate.source.text());
    const auto found = places.find(std::string(name_of(gate.source.owner)) + " " + at);
    REQUIRE(found != places.end());
    ++checked;
    std::set<std::string> wanted;
    for (const std::string& word : words_of(gate.needs))
      if (keys.contains(word)) wanted.insert(word);
    // Where nothing else reads a knob, and where a group has one rank, the place has the knob alone.
    const bool is_of_knob = gate.of_size || gate.source.place.ends_with("nothing else reads it");
    if (wanted.empty() || is_of_knob) wanted.merge(words_of(gate.knob));
    CHECK(std::any_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
      const auto other = theirs.find(word);
      return found->second.contains(word) ||
             (other != theirs.end() &&
              std::any_of(other->second.begin(), other->second.end(),
                          [&](const std::string& one) { return found->second.contains(one); }));
    }));
  }
  CHECK(checked > 80);
}

TEST_CASE("each gate alone is what its row says: an error of the reader, off with a note, or open all the same") {
  const Gates gates = all_gates();
  for (const Gate& gate : gates.all()) {
    INFO(gate.knob << " needs " << gate.needs);
    CHECK(gate.source.place.empty() ==
          (gate.source.owner == GateOwner::stretto || gate.source.owner == GateOwner::nobody));
    CHECK((gate.kind != GateKind::acts || !gate.wider.empty()));
    const Keys asks = asking(gate.knob);
    const Scenario whole = read(asks);
    CHECK(gates_of(whole).acts(gate.knob));
    // The schedule has notes on a group without all-gathers only when the group exists.
    CHECK((noted(whole, gate.knob) == "" || gate.knob.ends_with(".cta_policy")));

    // Channels are removed by omitting their key.
    const Keys broken = gate.needs == "max_ctas of a group" ? Keys{asks.front()} : asks + closing(gate);
    std::optional<Scenario> scenario;
    std::string refusal;
    try {
      scenario = read(broken);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      refusal = error.what();
    }
    INFO(refusal);
    if (gate.kind == GateKind::error) {
      CHECK_FALSE(scenario.has_value());
      const std::string key = gate.key.substr(gate.key.rfind('.') + 1);
      CHECK_THAT(refusal, Catch::Contains(key) && Catch::Contains("expected"));
      continue;
    }
    REQUIRE(scenario.has_value());
    REQUIRE(asks_for(*scenario, gate.knob));
    if (gate.kind == GateKind::acts) {
      CHECK(gates_of(*scenario).acts(gate.knob));
      CHECK(noted(*scenario, gate.knob) == "");
      continue;
    }
    CHECK(closed(*scenario, gate.knob) == std::vector<std::string>{gate.needs});
    CHECK((noted(*scenario, gate.knob) == "") == gate.of_gpus);
    CHECK_FALSE(gates_of(*scenario).acts(gate.knob));
  }
}

TEST_CASE("a knob of overlap that only the profile sets is off where the frameworks refuse it") {
  const auto of_profile = [](const Keys& keys) {
    return read(Keys{"profile=nemo-dgxc", "platform=h100-sxm", "training.precision=bf16"} + keys);
  };
  const auto acts = [](const Scenario& scenario, const char* knob) { return gates_of(scenario).acts(knob); };
  CHECK(acts(of_profile(kTensor), "tp_comm_overlap"));
  for (const Keys& keys : {Keys{}, kTensor + Keys{"parallel.sequence_parallel=false"}}) {
    const Scenario scenario = of_profile(keys);
    CHECK_FALSE(acts(scenario, "tp_comm_overlap"));
    CHECK(noted(scenario, "tp_comm_overlap") == "");
    CHECK_THROWS_AS(of_profile(keys + Keys{"overlap.tp_comm_overlap=true"}), Error);
  }
  CHECK_FALSE(acts(of_profile({"overlap.overlap_grad_reduce=false"}), "overlap_param_gather"));
  CHECK_FALSE(of_profile(kStages + Keys{"overlap.batch_p2p_comm=true"}).overlap.overlap_p2p_comm);
  CHECK(of_profile(kStages).overlap.overlap_p2p_comm);
}

TEST_CASE("the default of cuda_device_max_connections is what the profile's framework asks for on that platform") {
  const auto connections = [](const char* profile, const char* platform, const Keys& keys) {
    return read(Keys{std::string("profile=") + profile, std::string("platform=") + platform} + keys)
        .cluster.cuda_device_max_connections;
  };
  const Keys given = {"cluster.cuda_device_max_connections=8"}, sharded = {"parallel.use_distributed_optimizer=true"};
  for (const char* platform : {"a100-80gb", "h100-sxm", "h200-sxm"}) {
    INFO(platform);
    CHECK(connections("megatron-2022", platform, kTensor) == 1);
    CHECK(connections("megatron-2022", platform, kStages) == 0);
    CHECK(connections("megatron-2022", platform, kTensor + given) == 8);
    CHECK(connections("megatron-2022", platform, kTensor + kShardedUnits + sharded) == 0);  // ZeRO-3 runs without it
  }
  CHECK(connections("megatron-2022", "b200-sxm", kTensor) == 0);
  // Pairs of passes with experts run without it as well.
  const Keys cut = kExperts + Keys{"parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true"};
  CHECK(connections("megatron-bridge-moe", "h100-sxm", cut) == 1);
  CHECK(connections("megatron-bridge-moe", "h100-sxm", cut + Keys{"overlap.overlap_moe_expert_parallel_comm=true"}) ==
        0);
  CHECK(connections("torchtitan", "h100-sxm", kTensor) == 0);
  CHECK(read(kTensor).cluster.cuda_device_max_connections == 0);
  CHECK(read(Keys{"platform=h100-sxm"} + kTensor).cluster.cuda_device_max_connections == 0);  // no profile
}

TEST_CASE("modes that a gate refuses are not tried") {
  const auto pairs = [](const Keys& keys) {
    const std::vector<std::string> modes = modes_of(read(kExperts + keys));
    return std::count(modes.begin(), modes.end(), "overlap_moe_expert_parallel_comm");
  };
  CHECK(pairs({}) == 1);
  CHECK(pairs({"training.recompute_granularity=full"}) == 0);
  CHECK(pairs(kStages) == 0);  // one chunk on several stages
  CHECK(pairs(kChunks) == 1);
}

TEST_CASE("a mode that is not tried has the reason of its gate") {
  const auto why = [](const Keys& keys, const std::string& mode) {
    for (const LeftOutMode& left : modes_left_out(read(kExperts + keys)))
      if (left.mode == mode) return left.why;
    return std::string("tried");
  };
  const char* pairs = "overlap_moe_expert_parallel_comm";
  CHECK(why({}, pairs) == "tried");
  CHECK_THAT(why({"training.recompute_granularity=full"}, pairs), Catch::Contains("recompute_granularity"));
  CHECK_THAT(why(kStages, pairs), Catch::Contains("virtual_pipeline_model_parallel_size"));
  CHECK_THAT(why({}, "tp_comm_overlap"), Catch::Contains("tensor_model_parallel_size"));
  // Every mode is tried, or has a reason of its own.
  const Scenario scenario = read(kExperts);
  const std::vector<LeftOutMode> left_out = modes_left_out(scenario);
  CHECK(left_out.size() + modes_of(scenario).size() >= overlap_modes().size());
  for (const LeftOutMode& left : left_out) {
    INFO(left.mode);
    CHECK_FALSE(left.why.empty());
    CHECK(left.why != "it does not act in this layout");
  }
}

TEST_CASE("a mode turns on what it needs in a layout, and nothing that cannot act there") {
  for (const char* mode :
       {"overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "ep_overlap_early_attn_memory_release"}) {
    INFO(mode);
    const Scenario one = with_mode(read(kExperts), mode, 2), chunks = with_mode(read(kExperts + kChunks), mode, 8);
    CHECK_FALSE(one.overlap.overlap_p2p_comm);
    CHECK(chunks.overlap.overlap_p2p_comm);
    for (const Scenario* scenario : {&one, &chunks}) {
      CHECK(gates_of(*scenario).acts(mode));
      CHECK(gates_of(*scenario).refused({}) == nullptr);
      CHECK(build_schedule(*scenario).name == mode);
    }
  }
}

}  // namespace stretto::testing
