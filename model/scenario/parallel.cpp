#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/values_of.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {

namespace {

void read_context_parallel(TomlTable& table, Parallel& parallel) {
  const std::int64_t cp = parallel.context_parallel_size;
  parallel.cp_comm_type = enums_or(table, "cp_comm_type", CpCommType::p2p);
  const char* key = "hierarchical_context_parallel_sizes";
  const auto sizes = value_or<std::vector<std::int64_t>>(table, key, {}, {.min = 1, .max = kMaxContextParallel});
  const bool is_hierarchical = parallel.has_cp_comm_type(CpCommType::a2a_p2p);
  if (is_hierarchical && (sizes.size() != 2 || sizes[0] * sizes[1] != cp))
    throw table.failure(key, "expected two sizes whose product is context_parallel_size " + number(cp) +
                                 ", the exchange's and the ring's, for cp_comm_type \"a2a+p2p\"");
  if (!is_hierarchical && !sizes.empty())
    throw table.failure(key, "expected cp_comm_type = \"a2a+p2p\" as well, got " + names_of(parallel.cp_comm_types()));
  parallel.hierarchical_context_parallel_sizes = sizes;
}

// Reads Megatron-LM's switch for the distributed optimizer, and Megatron-FSDP's key, which says the same and more.
void read_sharding(TomlTable& table, KeyReader& keys, Parallel& parallel) {
  const char* key = "data_parallel_sharding_strategy";
  Sharding& sharding = parallel.data_parallel_sharding_strategy;
  const bool is_sharded = value_or<bool>(table, "use_distributed_optimizer", parallel.shards_optimizer());
  sharding = is_sharded ? Sharding::optim : Sharding::no_shard;
  keys.read(key);
  if (table.has("use_distributed_optimizer") && is_sharded != parallel.shards_optimizer())
    throw table.failure(key, std::string("expected ") + (is_sharded ? "a strategy that shards" : "\"no_shard\"") +
                                 " with use_distributed_optimizer = " + (is_sharded ? "true" : "false") +
                                 ", or only one of the two, got \"" + name_of(sharding) + "\"");
}

void check_resharding(const TomlTable& table, Parallel& parallel) {
  const char* key = "reshard_after_forward";
  const std::vector<std::string> of_profile = table.default_keys();
  // The profile's value applies only to pipeline stages (torchtitan's fsdp_reshard_after_forward "default").
  if (std::find(of_profile.begin(), of_profile.end(), key) != of_profile.end() &&
      (parallel.pipeline_model_parallel_size == 1 || !parallel.shards_parameters()))
    parallel.reshard_after_forward = true;
  if (!parallel.reshard_after_forward && !parallel.shards_parameters())
    throw table.failure(
        key, std::string("expected data_parallel_sharding_strategy = \"optim_grads_params\" as well, got \"") +
                 name_of(parallel.data_parallel_sharding_strategy) + "\", whose parameters are always whole");
}

// Megatron-LM cuts all ranks with equal parameters, context parallelism included, into instances; Stretto cuts only
// data parallelism.
void check_instances(const TomlTable& table, const Parallel& parallel) {
  const char* key = "num_distributed_optimizer_instances";
  const std::int64_t instances = parallel.num_distributed_optimizer_instances;
  if (instances == 1) return;
  if (!parallel.shards_optimizer())
    throw table.failure(key, "expected use_distributed_optimizer = true as well, got false");
  if (parallel.data_parallel_size % instances != 0)
    throw table.failure(key, "expected a divisor of data_parallel_size " + number(parallel.data_parallel_size) +
                                 ", got " + number(instances));
  if (parallel.shards() == 1)
    throw table.failure(key, "expected at least 2 ranks in each instance, among which it is sharded, got 1");
}

// W separate from B needs stages, and the number of chunks that its order has.
void read_pipeline_schedule(const TomlTable& table, KeyReader& keys, Parallel& parallel) {
  keys.read("pipeline_model_parallel_size");
  keys.read("pipeline_schedule");
  const std::int64_t stages = parallel.pipeline_model_parallel_size;
  const PipelineSchedule schedule = parallel.pipeline_schedule;
  if (is_zero_bubble(schedule) && stages < 2)
    throw table.failure("pipeline_schedule", "expected pipeline_model_parallel_size of at least 2 as well, got " +
                                                 number(stages) + " with \"" + name_of(schedule) + "\"");
  const char* key = "virtual_pipeline_model_parallel_size";
  const std::int64_t chunks = lies_in_v(schedule) ? 2 : 1;
  std::int64_t& given = parallel.virtual_pipeline_model_parallel_size;
  given = chunks;
  keys.read(key);
  if (is_zero_bubble(schedule) && given != chunks)
    throw table.failure(key, "expected " + number(chunks) + ", or nothing, with pipeline_schedule \"" +
                                 name_of(schedule) + "\", got " + number(given));
  if (given > 1 && stages < 2)
    throw table.failure(key, "expected pipeline_model_parallel_size of at least 2 as well, got " + number(stages));
}

}  // namespace

Parallel read_parallel(TomlTable table) {
  Scenario scenario;
  Parallel& parallel = scenario.parallel;
  KeyReader keys(table, "parallel", scenario);
  read_sharding(table, keys, parallel);
  read_pipeline_schedule(table, keys, parallel);
  keys.read_others();
  read_context_parallel(table, parallel);
  check_instances(table, parallel);
  check_resharding(table, parallel);
  table.finish();
  try {
    axes_in_order(parallel);
  } catch (const Error& error) {
    throw table.failure("order", error.what());
  }
  const std::int64_t stages = parallel.pipeline_model_parallel_size;
  if (parallel.model_ranks() > kMaxRanks || parallel.data_parallel_size > kMaxRanks / parallel.model_ranks())
    throw table.failure("data_parallel_size", "expected at most " + number(kMaxRanks) + " ranks, got " +
                                                  number(parallel.data_parallel_size) + " x " +
                                                  number(parallel.tensor_model_parallel_size) + " x " +
                                                  number(parallel.context_parallel_size) + " x " + number(stages));
  const bool has_layout = !parallel.pipeline_model_parallel_layout.empty();
  for (const char* key : {"num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"})
    if (has_layout && table.has(key))
      throw table.failure(key, "expected only one of it and pipeline_model_parallel_layout, got both");
  const bool has_ends =
      parallel.num_layers_in_first_pipeline_stage > 0 || parallel.num_layers_in_last_pipeline_stage > 0;
  const std::vector<std::string> of_profile = table.default_keys();
  for (const auto& [key, value] :
       {std::pair{"account_for_embedding_in_pipeline_split", &parallel.account_for_embedding_in_pipeline_split},
        std::pair{"account_for_loss_in_pipeline_split", &parallel.account_for_loss_in_pipeline_split}}) {
    // The profile's split applies only where the scenario states none.
    if (std::find(of_profile.begin(), of_profile.end(), key) != of_profile.end()) {
      if (has_layout || has_ends) *value = false;
      continue;
    }
    if (has_layout && table.has(key))
      throw table.failure(key, "expected only one of it and pipeline_model_parallel_layout, got both");
    // As in Megatron-LM, numbers of layers for the ends already include embedding and loss.
    if (has_ends && *value)
      throw table.failure(key,
                          "expected only one of it and num_layers_in_first_pipeline_stage or "
                          "num_layers_in_last_pipeline_stage, got both");
  }
  return parallel;
}

// Rows of experts with padding (Megatron-LM d98e8a64, core/transformer/transformer_config.py:1755, 1862).
void check_padding(const TomlTable& table, const Parallel& parallel) {
  const double factor = parallel.moe_expert_capacity_factor;
  const bool pads = parallel.moe_pad_expert_input_to_capacity;
  if (pads && factor == 0)
    throw table.failure("moe_pad_expert_input_to_capacity",
                        "expected moe_expert_capacity_factor as well, as Megatron-LM does, got no capacity");
  if (factor == 0) return;
  if (!pads)
    throw table.failure("moe_expert_capacity_factor",
                        "expected moe_pad_expert_input_to_capacity = true as well: a capacity that drops tokens is not "
                        "modelled, because the layout decides which tokens are dropped");
  if (parallel.moe_expert_rank_capacity_factor > 0)
    throw table.failure("moe_expert_rank_capacity_factor",
                        "expected 0 with moe_expert_capacity_factor, which already says how many rows a rank gets");
  if (parallel.moe_token_dispatcher_type == TokenDispatcher::flex &&
      parallel.moe_flex_dispatcher_backend != FlexBackend::hybridep)
    throw table.failure("moe_token_dispatcher_type",
                        std::string("expected \"allgather\", \"alltoall\", or \"flex\" with \"hybridep\", with "
                                    "moe_pad_expert_input_to_capacity, got \"flex\" with \"") +
                            name_of(parallel.moe_flex_dispatcher_backend) + "\"");
}

// How experts lie on the ranks of a stage (Megatron-LM, core/parallel_state.py).
void check_ranks_of_experts(const TomlTable& table, const Transformer& model, const Parallel& parallel) {
  const std::int64_t ep = parallel.expert_model_parallel_size, etp = parallel.expert_tp(),
                     tp = parallel.tensor_model_parallel_size, ranks = parallel.replicas() * tp,
                     count = model.experts.num_moe_experts;
  if (count == 0) {
    for (const auto& [key, is_asked] :
         {std::pair{"expert_model_parallel_size", ep > 1},
          {"expert_tensor_parallel_size", etp != tp},
          {"moe_expert_rank_capacity_factor", parallel.moe_expert_rank_capacity_factor > 0},
          {"moe_expert_capacity_factor", parallel.moe_expert_capacity_factor > 0}})
      if (is_asked) throw table.failure(key, "expected num_moe_experts as well, got a model of dense MLPs");
    return;
  }
  if (count % ep != 0)
    throw table.failure("expert_model_parallel_size",
                        "expected a divisor of num_moe_experts " + number(count) + ", got " + number(ep));
  if (ranks % (ep * etp) != 0)
    throw table.failure("expert_model_parallel_size", "expected a number that times expert_tensor_parallel_size " +
                                                          number(etp) + " divides the " + number(ranks) +
                                                          " ranks of a stage, got " + number(ep));
  if (model.expert_size() % etp != 0)
    throw table.failure("expert_tensor_parallel_size", "expected a divisor of moe_ffn_hidden_size " +
                                                           number(model.expert_size()) + ", got " + number(etp));
  for (const auto& [key, factor] :
       {std::pair{"moe_expert_rank_capacity_factor", parallel.moe_expert_rank_capacity_factor},
        {"moe_expert_capacity_factor", parallel.moe_expert_capacity_factor}})
    if (factor != 0 && factor < 1)
      throw table.failure(key,
                          "expected 0, or 1 or more, got " + fmt::format("{:g}", factor) + ": no token is dropped");
  check_padding(table, parallel);
  if (!parallel.experts_apart()) return;
  if (parallel.num_distributed_optimizer_instances > 1)
    throw table.failure("num_distributed_optimizer_instances",
                        "expected 1 where experts have ranks of their own, got " +
                            number(parallel.num_distributed_optimizer_instances) + ", which is not modelled yet");
  if (parallel.pipeline_model_parallel_size == 1 || axes_in_order(parallel).back() == Coord::pp) return;
  // Pipeline groups of experts are those of dense layers (core/parallel_state.py:898).
  std::int64_t dense = 1, of_experts = 1;
  for (const Coord axis : axes_in_order(parallel)) {
    if (axis == Coord::pp) break;
    dense *= parallel.size_of(axis);
  }
  for (const auto& [axis, size] : axes_of_experts(parallel)) {
    if (axis == Coord::pp) break;
    of_experts *= size;
  }
  if (parallel.expert_dp() != parallel.data_parallel_size || dense != of_experts)
    throw table.failure("order", "expected pp last, or as many ranks with equal experts as data_parallel_size " +
                                     number(parallel.data_parallel_size) + ", as Megatron-LM does, got \"" +
                                     parallel.order + "\" and " + number(parallel.expert_dp()));
}

// Dimensions that tensor parallelism cuts must be divisible, as in Megatron-LM; the vocabulary is padded.
void check_layout(const TomlTable& table, const Transformer& model, const Parallel& parallel) {
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  const auto divide = [&](const char* what, std::int64_t size) {
    if (size % tp != 0)
      throw table.failure("tensor_model_parallel_size",
                          std::string("expected a divisor of ") + what + " " + number(size) + ", got " + number(tp));
  };
  divide("num_attention_heads", model.num_attention_heads);
  divide("num_query_groups", model.kv_heads());
  divide("ffn_hidden_size", model.ffn_hidden_size);
  divide("moe_shared_expert_intermediate_size", model.experts.moe_shared_expert_intermediate_size);
  if (model.gated_delta.any()) {
    divide("linear_num_key_heads", model.gated_delta.linear_num_key_heads);
    divide("linear_num_value_heads", model.gated_delta.linear_num_value_heads);
  }
  if (model.mamba.any()) {
    divide("mamba_num_heads", model.mamba.mamba_num_heads);
    divide("mamba_num_groups", model.mamba.mamba_num_groups);
  }
  if (model.experts.any() && tp > 1 && !parallel.sequence_parallel)
    throw table.failure("sequence_parallel", "expected true with num_moe_experts and tensor_model_parallel_size " +
                                                 number(tp) + ", as Megatron-LM trains experts, got false");
  check_ranks_of_experts(table, model, parallel);
  const std::int64_t cp = parallel.context_parallel_size;
  if (cp > 1 && model.latent.any())
    throw table.failure("context_parallel_size", "expected 1 with multi_latent_attention, got " + number(cp) +
                                                     ": parts of its sequences are not modelled yet");
  if (cp > 1 && (model.gated_delta.any() || model.mamba.any()))
    throw table.failure("context_parallel_size",
                        std::string("expected 1 with ") +
                            (model.mamba.any() ? "hybrid_layer_pattern" : "linear_attention_freq") + ", got " +
                            number(cp) + ": the exchange of tokens for heads of linear attention is not modelled yet");
  if (cp > 1 && model.seq_length % (2 * cp) != 0)
    throw table.failure("context_parallel_size", "expected a seq_length that 2 x context_parallel_size " +
                                                     number(2 * cp) + " divides, got " + number(model.seq_length));
  if (const auto given = std::ssize(parallel.cp_comm_type);
      table.has_array("cp_comm_type") && given != model.num_layers)
    throw table.failure("cp_comm_type", "expected one value, or an array of one for each of the num_layers " +
                                            number(model.num_layers) + " layers, got " + number(given));
  for (const CpCommType type : parallel.cp_comm_types()) {
    const std::int64_t exchange = parallel.cp_exchange_size(type);
    const auto divide_heads = [&](const char* what, std::int64_t heads) {
      if (heads / tp % exchange != 0)
        throw table.failure("cp_comm_type", "expected " + std::string(what) + " / tensor_model_parallel_size " +
                                                number(heads / tp) + " to divide by the " + number(exchange) +
                                                " ranks that exchange heads with \"" + name_of(type) +
                                                "\"; p2p and all_gather need not");
    };
    divide_heads("num_attention_heads", model.num_attention_heads);
    divide_heads("num_query_groups", model.kv_heads());
  }
  if (cp > 1)
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
      const CpCommType type = parallel.cp_comm_type_of(layer);
      const bool has_rules = model.layer(layer).in_window || model.softmax_type != SoftmaxType::vanilla ||
                             model.attn_logit_softcapping > 0;
      if (has_rules && type != CpCommType::a2a)
        throw table.failure("cp_comm_type", std::string("expected \"a2a\" for layers with windows, chunks, sinks or "
                                                        "caps, as Megatron-LM has them, got \"") +
                                                name_of(type) + "\"");
    }
  const std::string tokens = cp > 1 ? "seq_length / context_parallel_size" : "seq_length";
  if (parallel.sequence_parallel && model.seq_length / cp % tp != 0)
    throw table.failure("sequence_parallel", "expected a " + tokens + " that tensor_model_parallel_size " + number(tp) +
                                                 " divides, got " + number(model.seq_length / cp));
  if (parallel.scatter_gather_tensors_in_pipeline && model.seq_length / cp % tp != 0)
    throw table.failure("scatter_gather_tensors_in_pipeline", "expected a " + tokens +
                                                                  " that tensor_model_parallel_size " + number(tp) +
                                                                  " divides, got " + number(model.seq_length / cp));
  try {
    model_chunks(model, parallel);
  } catch (const Error& error) {
    const std::string what = error.what();
    const std::size_t colon = what.find(": ");
    throw table.failure(what.substr(0, colon), what.substr(colon + 2));
  }
}

void check_pipeline(const TomlTable& table, const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  if (is_zero_bubble(parallel.pipeline_schedule)) {
    const std::string got = std::string(", got \"") + name_of(parallel.pipeline_schedule) + "\", ";
    if (scenario.training.frozen_base)
      throw table.failure("pipeline_schedule", "expected \"1f1b\" with frozen_base" + got +
                                                   "which moves weight gradients, and there are none");
    if (scenario.training.recompute.repeats_inputs())
      throw table.failure("pipeline_schedule",
                          "expected \"1f1b\" with recompute_granularity \"full\" or \"selective_op\", or with "
                          "recompute_modules besides \"core_attn\"" +
                              got + "whose weight gradients come after recomputed activations are gone");
    if (parallel.shards_gradients() && parallel.reshard_after_forward && parallel.replicas() > 1)
      throw table.failure("pipeline_schedule",
                          "expected \"1f1b\", or data_parallel_sharding_strategy \"optim_grads_params\" with "
                          "reshard_after_forward = false" +
                              got +
                              "whose weight gradients come later than the backward pass of their micro-batch, "
                              "after which sharded gradients are reduced");
    const std::int64_t least = 2 * parallel.pipeline_model_parallel_size, given = scenario.num_microbatches();
    if (parallel.pipeline_schedule == PipelineSchedule::dualpipe_v && given < least)
      throw table.failure("pipeline_schedule", "expected at least 2 x pipeline_model_parallel_size = " + number(least) +
                                                   " micro-batches of a step with \"dualpipev\", got " + number(given));
    return;
  }
  if (parallel.virtual_pipeline_model_parallel_size == 1) return;
  const std::int64_t stages = parallel.pipeline_model_parallel_size, micro_batches = scenario.num_microbatches();
  const bool is_given = parallel.microbatch_group_size_per_vp_stage > 0;
  const std::int64_t group = is_given ? parallel.microbatch_group_size_per_vp_stage : stages;
  const char* key = is_given ? "microbatch_group_size_per_vp_stage" : "virtual_pipeline_model_parallel_size";
  if (group < stages || group > micro_batches)
    throw table.failure(key, "expected micro-batches in groups of at least pipeline_model_parallel_size " +
                                 number(stages) + " and at most the " + number(micro_batches) +
                                 " of a step, got groups of " + number(group));
  if (const std::int64_t rest = micro_batches % group; rest != 0 && rest < stages)
    throw table.failure(key, "expected the " + number(micro_batches) + " micro-batches of a step in groups of " +
                                 number(group) + " to leave none or at least pipeline_model_parallel_size " +
                                 number(stages) + ", got " + number(rest));
}

}  // namespace stretto
