#include "diagnose/recognise.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "diagnose/evidence.hpp"
#include "predict/predict_step.hpp"
#include "report/trace.hpp"
#include "tests/cases.hpp"
#include "tests/kineto.hpp"
#include "tests/message_of.hpp"
#include "tests/random_gpu_scenario.hpp"
#include "tests/temp_dir.hpp"

namespace stretto::diagnose {
namespace {

using Catch::Matchers::Contains;
using testing::message_of;

// Returns the scenario that the step's own trace shows, read from its text.
Scenario recognised(const predict::PredictedStep& step, const std::string& platform) {
  const testing::TempDir folder;
  const std::string file = folder.file("own.json");
  write_trace(file, {{"predicted", &step.schedule, &step.result, &step.result.timeline}});
  return parse_scenario(recognise(read_traces({file}, -1, ""), {}, platform).text(), "recognised");
}

// Settings that a trace determines, with their values.
std::map<std::string, std::string> settings_of(const Scenario& s) {
  const Transformer& m = s.model;
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const bool has_experts = m.experts.num_moe_experts > 0;
  return {{"num_layers", number(m.num_layers)},
          {"hidden_size", number(m.hidden_size)},
          {"ffn_hidden_size", number(has_experts ? m.expert_size() : m.ffn_hidden_size)},
          {"num_attention_heads", number(m.num_attention_heads)},
          {"num_query_groups", number(m.kv_heads())},
          {"kv_channels", number(m.head_dim())},
          {"seq_length", number(m.seq_length)},
          {"vocab_size", number(m.padded_vocab_size)},
          {"num_moe_experts", number(m.experts.num_moe_experts)},
          {"moe_router_topk", number(has_experts ? m.experts.moe_router_topk : 0)},
          {"swiglu", number(m.swiglu)},
          {"normalization", name_of(m.normalization)},
          {"position_embedding_type", name_of(m.position_embedding_type)},
          {"add_bias_linear", number(m.add_bias_linear)},
          {"tensor_model_parallel_size", number(s.parallel.tensor_model_parallel_size)},
          {"sequence_parallel", number(s.parallel.sequence_parallel)},
          {"pipeline_model_parallel_size", number(s.parallel.pipeline_model_parallel_size)},
          {"virtual_pipeline_model_parallel_size",
           number(lies_in_v(s.parallel.pipeline_schedule) ? 1 : s.parallel.virtual_pipeline_model_parallel_size)},
          {"context_parallel_size", number(s.parallel.context_parallel_size)},
          {"data_parallel_size", number(s.parallel.data_parallel_size)},
          {"expert_model_parallel_size", number(has_experts ? s.parallel.expert_model_parallel_size : 1)},
          {"expert_tensor_parallel_size", number(has_experts ? s.parallel.expert_tp() : 1)},
          {"micro_batch_size", number(s.training.micro_batch_size)},
          {"global_batch_size", number(s.training.global_batch_size)},
          {"precision", s.training.precision},
          {"recompute_granularity", name_of(s.training.recompute.granularity)}};
}

TEST_CASE("a trace of a random scenario shows the settings that it determines") {
  const auto scenarios = testing::from_environment("STRETTO_RECOGNISED", testing::is_fast_suite() ? 2 : 6);
  std::map<std::string, std::int64_t> wrong;
  std::uint64_t right = 0;
  std::uint64_t read = 0;
  for (std::uint64_t seed = testing::from_environment("STRETTO_RECOGNISED_SEED", 1); read < scenarios; ++seed) {
    CAPTURE(seed);
    const std::string text = testing::random_gpu_scenario(seed);
    std::optional<Scenario> scenario;
    std::optional<predict::PredictedStep> step;
    try {
      scenario = parse_scenario(text, "drawn");
      step = predict::predict_step(*scenario, sim::read_platform(scenario->platform));
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::input);
      continue;
    }
    ++read;
    bool is_right = true;
    const auto expected = settings_of(*scenario), found = settings_of(recognised(*step, scenario->platform));
    for (const auto& [key, value] : expected) {
      if (found.at(key) == value) continue;
      is_right = false;
      ++wrong[key];
      if (std::getenv("STRETTO_RECOGNISED_PRINT") != nullptr)
        WARN("seed " << seed << " " << key << ": " << value << ", found " << found.at(key));
    }
    right += is_right ? 1 : 0;
  }
  for (const auto& [key, count] : wrong) UNSCOPED_INFO(key << " wrong in " << count);
  CHECK(double(right) >= 0.95 * double(read));
}

TEST_CASE("shapes and messages in a trace of PyTorch's profiler show the model and its layout") {
  const Scenario scenario = parse_scenario(R"(platform = "h100-sxm"
[model]
preset = "llama3-8b"
num_layers = 3
seq_length = 2048
[parallel]
data_parallel_size = 2
tensor_model_parallel_size = 2
sequence_parallel = true
[training]
precision = "bf16"
micro_batch_size = 2
global_batch_size = 8
)",
                                           "traced");
  const predict::PredictedStep step = predict::predict_step(scenario, sim::read_platform(scenario.platform));
  testing::KinetoOptions options;
  options.has_shapes = true;
  const testing::TempDir folder;
  const std::string file = folder.write("trace.json", testing::kineto_json(step.schedule, step.result, 0, options));
  const Traces traces = read_traces({file}, -1, "");
  const std::string text = recognise(traces, {}, "h100-sxm").text();
  const auto expected = settings_of(scenario), found = settings_of(parse_scenario(text, "recognised"));
  for (const auto& [key, value] : expected) {
    CAPTURE(key);
    CHECK(found.at(key) == value);
  }

  KnownModel other{"llama3-70b", "preset = \"llama3-70b\"\n"};
  other.shape = preset("llama3-70b");
  CHECK_THAT(message_of([&] { recognise(traces, other); }), Contains("hidden_size 4096") && Contains("the model 8192"));
  options.has_shapes = false;
  const std::string bare = folder.write("bare.json", testing::kineto_json(step.schedule, step.result, 0, options));
  CHECK_THAT(message_of([&] { recognise(read_traces({bare}, -1, "")); }), Contains("record_shapes=True"));
}

TEST_CASE("kernels of a profiler's trace show experts and the framework") {
  const Scenario scenario = parse_scenario(R"(platform = "h100-sxm"
[model]
num_layers = 2
hidden_size = 512
num_attention_heads = 8
kv_channels = 64
seq_length = 1024
vocab_size = 4096
num_moe_experts = 16
moe_router_topk = 2
moe_ffn_hidden_size = 384
swiglu = true
normalization = "RMSNorm"
position_embedding_type = "rope"
add_bias_linear = false
[parallel]
data_parallel_size = 4
expert_model_parallel_size = 4
[training]
precision = "bf16"
global_batch_size = 8
)",
                                           "experts");
  const predict::PredictedStep step = predict::predict_step(scenario, sim::read_platform(scenario.platform));
  testing::KinetoOptions options;
  options.has_shapes = true;
  const testing::TempDir folder;
  const std::string trace = testing::kineto_json(step.schedule, step.result, 0, options);
  const std::string text = recognise(read_traces({folder.write("trace.json", trace)}, -1, ""), {}, "h100-sxm").text();
  CAPTURE(text);
  CHECK_THAT(text, Contains("profile = \"megatron-core-te\"  # kernels: ") && Contains("CUTLASS's grouped products"));
  CHECK_THAT(text, Contains("num_moe_experts = 16") && Contains("moe_router_topk = 2"));
  CHECK_THAT(text, Contains("moe_ffn_hidden_size = 384") && Contains("expert_model_parallel_size = 4"));
  // Without shapes of grouped products the experts are named, and not known.
  std::string other = trace;
  for (std::size_t at = 0; (at = other.find("aten::_grouped_mm", at)) != std::string::npos; ++at)
    other.replace(at, 17, "GroupedLinearFunc");
  CHECK_THAT(recognise(read_traces({folder.write("other.json", other)}, -1, "")).text(),
             Contains("# - experts: kernels of theirs run (") && !Contains("num_moe_experts"));
  Evidence seen;
  add_library(seen, "void at::native::vectorized_elementwise_kernel<4>(int)");
  CHECK(seen.profile == "torchtitan");
  add_library(seen, "triton_poi_fused_add_mul_0");
  add_library(seen, "void deep_ep::intranode::combine<__nv_bfloat16, 8>(int4*)");
  add_library(seen, "void at::native::reduce_kernel<512>(int)");
  CHECK(seen.profile == "torchtitan-compile");
  CHECK(seen.libraries == std::vector<std::string>{"PyTorch's eager kernels", "torch.compile", "DeepEP"});
}

}  // namespace
}  // namespace stretto::diagnose
