// Tests against the same training in PyTorch, float64: losses, gradients and parameters must agree, and the loss of
// exported weights. tests/torch_reference.py and tests/torch_weights.py are the PyTorch side.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "exec/state/export.hpp"
#include "exec/trainer.hpp"
#include "tests/temp_dir.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

using nlohmann::json;

// Debian's python3-torch belongs to the system's interpreter, whatever comes first in PATH.
constexpr const char* kPython = "/usr/bin/python3";

struct Finished {
  int status = 0;
  std::string output;
};
Finished run_command(const std::string& command) {
  Finished finished;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    finished.output.append(buffer.data(), count);
  finished.status = pclose(pipe);
  return finished;
}

json to_json(const std::vector<exec::FullTensor>& tensors) {
  json list = json::array();
  for (const exec::FullTensor& t : tensors)
    list.push_back({{"name", t.name}, {"shape", t.shape}, {"values", t.values}});
  return list;
}

// Returns all samples of the step, [sample][position], in the order of the global batch.
json samples_of(const Schedule& schedule, const Scenario& scenario, const exec::MemoryOf& memory_of, const char* name) {
  const Tensor& tensor = schedule.tensors[schedule.find_tensor(name).value()];
  const auto seq = static_cast<std::size_t>(scenario.model.seq_length);
  json samples = json::array();
  for (const TensorPlace& place : tensor.places)
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) {
      const auto ids = memory_of(rank).view<std::int32_t>(schedule, place.storage, place.offset, tensor.elements());
      for (std::size_t at = 0; at < ids.size(); at += seq)
        samples.push_back(std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                                    ids.begin() + static_cast<std::ptrdiff_t>(at + seq)));
    }
  return samples;
}

// Heads have another width than hidden_size / num_attention_heads, and q and k have norms, as in Qwen3.
Scenario with_norms_of_heads(Scenario scenario) {
  scenario.model.kv_channels = 6;
  scenario.model.qk_layernorm = true;
  scenario.model.position_embedding_type = PositionEmbedding::rope;  // otherwise k_norm.bias has no gradient
  return scenario;
}

Scenario scenario_with(const std::string& mode, std::int64_t ranks, bool llama = false) {
  Scenario scenario = tiny_scenario(ranks, mode, "fp64", 4, 1);
  scenario.model = {2, 24, 3, 40, 8, 11, 31, 31};
  if (llama) {
    scenario.model = in_llama_style(scenario.model);
    scenario.model.num_attention_heads = 6;
    scenario.model.num_query_groups = 2;
    scenario.model.rotary_base = 100;
    scenario.model.rope_scaling = {1, 8, 1, 4, 32};
  }
  scenario.training.lr_warmup_iters = 2;
  scenario.training.train_iters = 5;
  scenario.training.clip_grad = 0.5;
  scenario.overlap.bucket_size = 1000;
  return scenario;
}

// Qwen3's experts, or with `deepseek` DeepSeek-V3's router, a gated shared expert and a dense layer first.
Scenario with_experts(Scenario scenario, bool deepseek) {
  Experts& experts = scenario.model.experts;
  experts.num_moe_experts = 6;
  experts.moe_ffn_hidden_size = 12;
  experts.moe_router_load_balancing_type = LoadBalancing::seq_aux_loss;
  experts.moe_aux_loss_coeff = 0.1;
  experts.moe_z_loss_coeff = 0.05;
  if (!deepseek) return scenario;
  experts.moe_router_score_function = RouterScore::sigmoid;
  experts.moe_router_num_groups = 3;
  experts.moe_router_group_topk = 2;
  experts.moe_router_topk_scaling_factor = 2.5;
  experts.moe_shared_expert_intermediate_size = 10;
  experts.moe_shared_expert_gate = true;
  experts.moe_layer_freq = {0, 1};
  return scenario;
}

json experts_of(const Scenario& scenario) {
  const Experts& experts = scenario.model.experts;
  return {{"num_moe_experts", experts.num_moe_experts},
          {"moe_router_topk", experts.moe_router_topk},
          {"moe_router_num_groups", experts.moe_router_num_groups},
          {"moe_router_group_topk", experts.moe_router_group_topk},
          {"moe_router_score_function", name_of(experts.moe_router_score_function)},
          {"moe_router_pre_softmax", experts.moe_router_pre_softmax},
          {"moe_router_topk_scaling_factor", experts.moe_router_topk_scaling_factor},
          {"moe_aux_loss_coeff", experts.moe_aux_loss_coeff},
          {"moe_z_loss_coeff", experts.moe_z_loss_coeff}};
}

json dropout_keys(const Scenario& scenario, int step) {
  json keys = json::array();
  for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer) {
    const std::uint64_t key = exec::dropout_key(scenario, step, layer);
    keys.push_back({key & 0xFFFFFFFFu, key >> 32});
  }
  return keys;
}

json rope_scaling_of(const Scenario& scenario) {
  const RopeScaling& s = scenario.model.rope_scaling;
  return {s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_position_embeddings};
}

//   model      {num_layers, num_attention_heads, num_query_groups, kv_channels, qk_layernorm, normalization, swiglu,
//              position_embedding_type, rotary_base, rope_scaling [4], hidden_dropout, attention_dropout}; biases and a
//              head of its own where `initial` has them
//   training   {weight_decay, adam_beta1, adam_beta2, adam_eps, clip_grad}
//   initial, final, gradients   [{name, shape [rows, cols], values}]; gradients are those of the first step, not
//   clipped steps      [{lr, loss, norm, tokens [sample][position], targets, dropout_keys [layer][2]}]
json train_and_dump(const Scenario& scenario, int steps) {
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  host::HostExecutor executor(verified, {});
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  exec::initialise_state(schedule, scenario, memory_of);
  // Biases are 0 and norm weights 1 at the start, which would hide mistakes, so they are changed.
  std::vector<exec::FullTensor> initial = exec::gather_state(schedule, memory_of, StatePart::parameters);
  for (exec::FullTensor& tensor : initial)
    for (std::size_t i = 0; i < tensor.values.size(); ++i)
      tensor.values[i] += 0.1 * normal(99, stream_of(tensor.name), i);
  exec::scatter_state(
      schedule, memory_of, StatePart::parameters, [&](const std::string& name) -> const exec::FullTensor& {
        return *std::find_if(initial.begin(), initial.end(), [&](const auto& t) { return t.name == name; });
      });

  const Training& t = scenario.training;
  json dump = {{"model",
                {{"num_layers", scenario.model.num_layers},
                 {"num_attention_heads", scenario.model.num_attention_heads},
                 {"num_query_groups", scenario.model.kv_heads()},
                 {"kv_channels", scenario.model.head_dim()},
                 {"qk_layernorm", scenario.model.qk_layernorm},
                 {"normalization", name_of(scenario.model.normalization)},
                 {"swiglu", scenario.model.swiglu},
                 {"position_embedding_type", name_of(scenario.model.position_embedding_type)},
                 {"rotary_base", scenario.model.rotary_base},
                 {"rope_scaling", rope_scaling_of(scenario)},
                 {"hidden_dropout", scenario.model.hidden_dropout},
                 {"attention_dropout", scenario.model.attention_dropout},
                 {"experts", experts_of(scenario)}}},
               {"training",
                {{"weight_decay", t.weight_decay},
                 {"adam_beta1", t.adam_beta1},
                 {"adam_beta2", t.adam_beta2},
                 {"adam_eps", t.adam_eps},
                 {"clip_grad", t.clip_grad}}},
               {"initial", to_json(initial)},
               {"steps", json::array()}};
  const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
  for (int step = 0; step < steps; ++step) {
    exec::write_batch(schedule, scenario, tokens, step, memory_of);
    exec::write_hyper(schedule, scenario, step, memory_of);
    executor.run(1);
    const exec::StepMetrics metrics = exec::read_metrics(schedule, memory_of);
    dump["steps"].push_back({{"lr", exec::learning_rate(t, step)},
                             {"loss", metrics.loss},
                             {"norm", metrics.gradient_norm},
                             {"tokens", samples_of(schedule, scenario, memory_of, "tokens")},
                             {"targets", samples_of(schedule, scenario, memory_of, "targets")},
                             {"dropout_keys", dropout_keys(scenario, step)}});
    if (step == 0) dump["gradients"] = to_json(exec::gather_state(schedule, memory_of, StatePart::gradients));
  }
  dump["final"] = to_json(exec::gather_state(schedule, memory_of, StatePart::parameters));
  return dump;
}

bool has_torch() {
  if (run_command(std::string(kPython) + " -c 'import torch'").status == 0) return true;
  std::cout << "skipped: comparison with PyTorch: " << kPython << " has no torch (Debian: python3-torch)" << std::endl;
  return false;
}

//   style      gpt2 or llama, which is also Qwen3's
//   file       the exported weights of a model that was trained for some steps
//   model      {num_layers, num_attention_heads, num_query_groups, rotary_base, rope_scaling [4]}
//   tokens, targets, loss   of the first step of a run that began with that file, on two tensor-parallel ranks
json load_exported_and_dump(const std::string& style, const std::filesystem::path& folder) {
  const bool llama = style != "gpt2";
  Scenario scenario = scenario_with("plain", 1, llama);
  if (style == "qwen3") scenario = with_norms_of_heads(scenario);
  if (!llama) scenario.model.num_attention_heads = 4;
  scenario.training.data = {(folder / "tokens.txt").string()};
  std::ofstream tokens(scenario.training.data.front(), std::ios::binary);
  for (std::uint64_t i = 0; i < 4096; ++i) tokens.put(static_cast<char>(random_bits(7, 8, i) % 31));
  tokens.close();
  scenario.training.checkpoint_dir = (folder / style).string();
  const Schedule first = build_schedule(scenario);
  const VerifiedSchedule of_first = plan_and_verify(first);
  host::HostExecutor trainer(of_first, {});
  exec::train(scenario, first, trainer, {});
  const std::string file = scenario.training.checkpoint_dir + ".safetensors";
  exec::export_to_huggingface(scenario.training.checkpoint_dir + "/step-00000005.safetensors", {file, ""});

  scenario.training.checkpoint_dir.clear();
  scenario.training.load = file;
  scenario.training.train_iters = scenario.training.lr_warmup_iters = 1;
  scenario.parallel.tensor_model_parallel_size = 2;
  scenario.model.padded_vocab_size = 32;
  const Schedule schedule = build_schedule(scenario);
  const VerifiedSchedule verified = plan_and_verify(schedule);
  host::HostExecutor executor(verified, {});
  const exec::TrainResult result = exec::train(scenario, schedule, executor, {});
  const exec::MemoryOf memory_of = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  // Both ranks must have equal samples.
  const auto samples = [&](const char* name) {
    json both = samples_of(schedule, scenario, memory_of, name), one = json::array();
    for (std::size_t i = 0; i < both.size(); i += 2) one.push_back(both[i]);
    return one;
  };
  return {{"style", llama ? "llama" : "gpt2"},
          {"file", file},
          {"model",
           {{"num_layers", scenario.model.num_layers},
            {"num_attention_heads", scenario.model.num_attention_heads},
            {"num_query_groups", scenario.model.kv_heads()},
            {"rotary_base", scenario.model.rotary_base},
            {"rope_scaling", rope_scaling_of(scenario)}}},
          {"tokens", samples("tokens")},
          {"targets", samples("targets")},
          {"loss", result.steps.front().loss}};
}

}  // namespace

TEST_CASE("PyTorch computes the same loss of exported weights") {
  if (!has_torch()) return;
  const testing::TempDir folder;
  const std::filesystem::path script = std::filesystem::path(__FILE__).parent_path() / "torch_weights.py";
  std::string command = std::string(kPython) + " -B '" + script.string() + "'";
  for (const std::string style : {"gpt2", "llama", "qwen3"}) {
    json dump = load_exported_and_dump(style, folder.path());
    const std::string path = folder.write(style + ".json", dump.dump());
    command += " '" + path + "'";
    // A changed value must make the comparison fail.
    dump["loss"] = dump["loss"].get<double>() * (1 + 1e-9);
    const std::string spoilt = folder.write("spoilt.json", dump.dump());
    CHECK(run_command(std::string(kPython) + " -B '" + script.string() + "' '" + spoilt + "'").status != 0);
  }
  const Finished finished = run_command(command);
  INFO(finished.output);
  CHECK(finished.status == 0);
}

TEST_CASE("PyTorch trains the same") {
  if (!has_torch()) return;
  const std::filesystem::path script = std::filesystem::path(__FILE__).parent_path() / "torch_reference.py";
  const auto compare = [&](const std::vector<json>& dumps) {
    const testing::TempDir folder;
    std::string command = std::string(kPython) + " -B '" + script.string() + "'";
    for (std::size_t i = 0; i < dumps.size(); ++i)
      command += " '" + folder.write("run-" + std::to_string(i) + ".json", dumps[i].dump()) + "'";
    return run_command(command);
  };
  Scenario dropping = scenario_with("overlap_param_gather", 2);
  dropping.model.hidden_dropout = 0.2;
  dropping.model.attention_dropout = 0.1;
  json overlapped = train_and_dump(scenario_with("overlap_param_gather", 2), 3);
  const Finished finished =
      compare({overlapped, train_and_dump(scenario_with("plain", 1), 3),
               train_and_dump(scenario_with("overlap_param_gather", 2, true), 3), train_and_dump(dropping, 3),
               train_and_dump(with_norms_of_heads(scenario_with("plain", 1)), 3),
               train_and_dump(with_norms_of_heads(scenario_with("overlap_param_gather", 2, true)), 3),
               train_and_dump(with_experts(with_norms_of_heads(scenario_with("plain", 1, true)), false), 3),
               train_and_dump(with_experts(scenario_with("overlap_param_gather", 2, true), true), 3)});
  INFO(finished.output);
  CHECK(finished.status == 0);
  // A changed value must make the comparison fail.
  double& value = overlapped["final"][3]["values"][1].get_ref<double&>();
  value += 1e-6;
  const Finished spoilt = compare({overlapped});
  CHECK(spoilt.status != 0);
  CHECK_THAT(spoilt.output, Catch::Matchers::Contains("parameter h.0.ln_1.bias: differs"));
}

}  // namespace stretto::testing
