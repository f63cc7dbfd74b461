#include "predict/framework_memory.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "predict/predict_step.hpp"
#include "sim/cost/cost_schedule.hpp"

using namespace stretto;
using namespace stretto::predict;

namespace {

// Four layers and more on 8 ranks of tensor parallelism, with sequence parallelism.
std::string scenario_text(const char* profile, int layers) {
  return fmt::format(R"(platform = "a100-80gb"
profile = "{}"
[model]
num_layers = {}
hidden_size = 2048
num_attention_heads = 16
seq_length = 2048
vocab_size = 2048
[parallel]
tensor_model_parallel_size = 8
sequence_parallel = true
[training]
micro_batch_size = 4
global_batch_size = 4
)",
                     profile, layers);
}

DeviceMemory memory(const std::string& text, const std::vector<std::string>& set = {}) {
  const Scenario scenario = parse_scenario(text, "memory", set);
  const Schedule schedule = build_schedule(scenario);
  return memory_of(schedule, plan_memory(schedule), sim::read_platform(scenario.platform), scenario.training,
                   scenario.framework);
}

// Returns the bytes of a layer's activations.
double layer_bytes(const char* profile, const std::vector<std::string>& set) {
  const auto activations = [&](int layers) {
    const MemoryUse use = memory(scenario_text(profile, layers), set).roles.front();
    return double(use.allocated() - use.parameters - use.optimizer_state - use.gradients - use.inputs_and_scalars);
  };
  return (activations(12) - activations(4)) / 8;
}

}  // namespace

TEST_CASE("releases that multiply experts' results by probabilities keep them", "[memory][moepredict]") {
  const std::vector<std::string> experts = {"model.num_moe_experts=8",
                                            "model.moe_router_topk=2",
                                            "model.moe_ffn_hidden_size=512",
                                            "model.add_bias_linear=false",
                                            "parallel.expert_model_parallel_size=8",
                                            "parallel.expert_tensor_parallel_size=1"};
  const double rows = 2048.0 * 4 / 8 * 2;
  CHECK(layer_bytes("megatron-core-moe-2025-05", experts) - layer_bytes("megatron-bridge-moe", experts) ==
        Approx(rows * 2048 * 2).epsilon(0.01));
}

TEST_CASE("activations of a layer are those of arXiv 2205.05198, table 2", "[memory]") {
  const double sbh = 2048.0 * 4 * 2048, scores = 5 * 16 * 2048.0 / 2048;  // 5 a s / h
  CHECK(layer_bytes("megatron-2022", {}) == Approx((34 + scores) * sbh / 8).epsilon(0.01));
  CHECK(layer_bytes("megatron-2022", {"parallel.sequence_parallel=false"}) ==
        Approx((10 + 24.0 / 8 + scores / 8) * sbh).epsilon(0.01));
  CHECK(layer_bytes("megatron-2022", {"training.recompute_granularity=selective"}) ==
        Approx(34 * sbh / 8).epsilon(0.01));
  CHECK(layer_bytes("megatron-2022", {"training.recompute_granularity=full"}) == Approx(2 * sbh / 8).epsilon(0.05));
}

TEST_CASE("a framework's memory is its parts, and the plan is what Stretto's own profile takes", "[memory]") {
  const std::string text = scenario_text("stretto", 4);
  const DeviceMemory own = memory(text);
  CHECK(own.roles.front().further.empty());
  const DeviceMemory nemo = memory(scenario_text("nemo-dgxc", 4));
  const MemoryUse& use = nemo.roles.front();
  CHECK(use.gradients == own.roles.front().gradients / 2);
  CHECK(use.sources.at("gradients").origin.starts_with("2 bytes an element"));
  CHECK(use.taken() == use.allocated() + use.held);
  for (const DeviceMemory* memory : {&own, &nemo}) {
    CHECK(sum_of(memory->parts()) == memory->predicted_bytes());
    for (const OutsidePlan& part : memory->parts()) {
      INFO(part.what);
      CHECK(part.bytes > 0);
      CHECK_FALSE(part.source.empty());
    }
  }
  CHECK(nemo.predicted_bytes() == use.taken() + nemo.reserved_bytes());
}

TEST_CASE("a loss in f32 has its copies at the peak, in the order of its kernels", "[memory]") {
  const std::string text = R"(platform = "h100-sxm"
profile = "torchtitan"
[model]
num_layers = 2
hidden_size = 256
num_attention_heads = 4
seq_length = 2048
vocab_size = 65536
make_vocab_size_divisible_by = 1
[parallel]
data_parallel_size = 2
[training]
micro_batch_size = 2
global_batch_size = 4
)";
  const MemoryUse use = memory(text).roles.front();
  double loss = 0;
  for (const OutsidePlan& part : use.further)
    if (part.what == "logits and their loss") loss = double(part.bytes);
  CHECK(loss == 12.0 * 2 * 2048 * 65536);  // log-softmax, its gradient and the gradient of the logits, in f32
}

TEST_CASE("weights that are gathered into the buffer of gradients are codes alone", "[memory]") {
  std::string text = scenario_text("megatron-bridge", 4);
  text.replace(text.find("a100-80gb"), 9, "b200-sxm");
  const std::vector<std::string> keys = {"parallel.data_parallel_size=2", "training.global_batch_size=8",
                                         "training.fp8_format=e4m3", "training.fp8_recipe=mxfp8",
                                         "overlap.fp8_param_gather=true"};
  std::vector<std::string> reused = keys;
  reused.push_back("training.reuse_grad_buf_for_mxfp8_param_ag=true");
  const MemoryUse use = memory(text, reused).roles.front(), without = memory(text, keys).roles.front();
  // Weights of 12 h² elements a layer, on 8 ranks.
  const std::int64_t less = 2 * 4 * 12 * 2048 * 2048 / 8;
  CHECK(without.allocated() - use.allocated() == less);
  CHECK(without.parameters - use.parameters == less);
}

TEST_CASE("a frozen base in low precision is cast once, and kept as codes alone", "[memory][lowp]") {
  const std::vector<std::string> codes = {"platform=h100-sxm", "parallel.tensor_model_parallel_size=1",
                                          "parallel.sequence_parallel=false", "training.precision=bf16",
                                          "training.frozen_base=true"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), codes.begin(), codes.end());
    return more;
  };
  const std::string text = scenario_text("nemo-dgxc-lora", 4);
  const std::vector<std::string> fp8 = with({"training.fp8_format=hybrid", "training.fp8_recipe=tensorwise"});
  // Products of a layer have 12 h^2 weights.
  const std::int64_t of_layers = 4 * 12 * std::int64_t{2048} * 2048;
  const MemoryUse in_bf16 = memory(text, with({})).roles.front(), in_fp8 = memory(text, fp8).roles.front();
  // On H100 codes have a transposed copy, so that both take as many bytes; weights in bf16 next to codes would take
  // twice.
  CHECK(in_fp8.parameters - in_bf16.parameters < of_layers / 100);
  // Kernels that make codes of weights take no time.
  const Scenario scenario = parse_scenario(text, "casts", fp8);
  const Schedule schedule = build_schedule(scenario);
  const sim::Costs costs = sim::cost_schedule(schedule, sim::read_platform(scenario.platform), scenario.cluster, 1,
                                              scenario.framework, scenario.training);
  int free = 0, taking_time = 0;
  for (std::size_t o = 0; o < schedule.operations.size(); ++o)
    if (std::holds_alternative<Quantise>(schedule.operations[o].work))
      ++(costs.compute[o].alone == 1 ? free : taking_time);
  CHECK(free == 4);  // of qkv, proj, fc1 and fc2
  CHECK(taking_time > 0);
}
