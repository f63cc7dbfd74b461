// Tests of the executor for GPUs: on a GPU in gpu_tests (STRETTO_ON_GPU), everywhere else on a fake device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <utility>

#if defined(STRETTO_ON_GPU)
#include <cuda_runtime.h>
#else
#include "tests/fake_cuda/cuda_runtime.h"
#include "tests/fake_cuda/fake_libraries.hpp"
#endif
#include "base/values_of.hpp"
#include "exec/cuda/cuda.hpp"
#include "tests/low_precision_layers.hpp"
#include "tests/message_of.hpp"
#include "tests/on_fake_gpu.hpp"
#include "tests/small_mixture.hpp"
#include "tests/tiny_schedule.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

void check_against_host(Scenario scenario, double loss_tolerance, double gradient_tolerance) {
  scenario.training.cudnn_attention_dropout = false;  // the host uses the schedule's masks
  const Trained host = train(scenario, 1, false), gpu = OnFakeGpu(scenario).train(1);
#if defined(STRETTO_ON_GPU)
  // The device's exponentials are approximate.
  loss_tolerance *= 4;
  gradient_tolerance *= 4;
#endif
  CHECK(gpu.losses[0] == Approx(host.losses[0]).epsilon(loss_tolerance));
  CHECK(worst_relative_difference(gpu.gradients, host.gradients) < gradient_tolerance);
}

// Returns whether the tensor cores of this device have the products; the fake device has all.
bool has_products_of([[maybe_unused]] LowRecipe recipe) {
#if defined(STRETTO_ON_GPU)
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (recipe == LowRecipe::blockwise) return major == 9;
  if (recipe == LowRecipe::mxfp8 || recipe == LowRecipe::nvfp4) return major >= 10;
#endif
  return true;
}

}  // namespace

TEST_CASE("the executor for GPUs trains what the host does, in every mode", "[cuda]") {
  Cases cases;
  for (const bool llama : {false, true})
    for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2, true}, Layout{1, 1, false, 2}})
      for (const OverlapMode& mode : overlap_modes()) {
        Scenario scenario = layout_scenario(layout, mode.name, llama, "fp32", 1, 4);
        // Styles differ in their kernels, modes in the order of launches.
        if (!mode.applies(scenario.parallel) || (llama && mode.name != "plain") || !cases.takes_next()) continue;
        INFO(layout.text() << ", " << mode.name << (llama ? ", llama" : ", gpt"));
        check_against_host(scenario, 1e-5, 2e-4);
      }
}

TEST_CASE("the executor for GPUs trains in bf16, with dropout, recomputed", "[cuda]") {
  Scenario scenario = layout_scenario(Layout{2, 1}, "overlap_param_gather", false, "bf16", 1, 4);
  check_against_host(scenario, 0.01, 0.1);
  scenario.training.gelu_fusion = scenario.training.bias_gradient_fusion = true;
  check_against_host(scenario, 0.01, 0.1);
  scenario.training.gelu_bias_gradient_fusion = true;
  check_against_host(scenario, 0.01, 0.1);
  scenario.training.residual_fusion = scenario.training.norm_gradient_fusion = true;
  check_against_host(scenario, 0.01, 0.1);
  scenario = layout_scenario(Layout{1, 1, false, 2}, "overlap_p2p_comm", true, "bf16", 1, 4);
  scenario.training.residual_fusion = scenario.training.norm_gradient_fusion = true;
  check_against_host(scenario, 0.01, 0.1);
  scenario = layout_scenario(Layout{1, 2, true}, "tp_comm_overlap", false, "fp32", 1, 4);
  scenario.model.hidden_dropout = 0.1;
  scenario.model.attention_dropout = 0.2;
  scenario.training.recompute.granularity = Recompute::Granularity::full;
  check_against_host(scenario, 1e-5, 2e-4);
}

TEST_CASE("the executor for GPUs trains in low precision", "[cuda]") {
  Cases cases;
  for (const LowRecipe recipe :
       {LowRecipe::delayed, LowRecipe::tensorwise, LowRecipe::blockwise, LowRecipe::mxfp8, LowRecipe::nvfp4})
    for (const Layout& layout : {Layout{2, 1}, Layout{1, 2}, Layout{1, 2, true}}) {
      if (!has_products_of(recipe) || !cases.takes_next()) continue;
      INFO(name_of(recipe) << ", " << layout.text());
      Scenario scenario = low_precision_scenario(recipe, layout, 2);
      scenario.training.low_precision.fp8_transposes = true;
      check_against_host(scenario, 0.01, 0.1);
    }
}

TEST_CASE("the executor for GPUs multiplies codes of experts, with scales of each or of blocks", "[cuda]") {
  const auto experts_of = [](LowRecipe recipe) {
    Scenario scenario = low_precision_scenario(recipe, {2, 1}, 2, true);
    if (recipe == LowRecipe::nvfp4) scenario.model.hidden_size = scenario.model.ffn_hidden_size = 128;
    // Products of experts are compared here, and emulated attention of long sequences is slow.
    scenario.model.seq_length = rules_of(scenario.training.low_precision, 0).align;
    add_experts(scenario);
    scenario.parallel.expert_model_parallel_size = 2;
    scenario.training.low_precision.fp8_transposes = recipe != LowRecipe::mxfp8 && recipe != LowRecipe::nvfp4;
    return scenario;
  };
  struct Case {
    LowRecipe recipe;
    bool padded = false, sends_codes = false;
  };
  // Emulated casts are slow: the first is cheap, and every third runs in the fast suite.
  const Case all[] = {{LowRecipe::tensorwise},         {LowRecipe::blockwise}, {LowRecipe::blockwise, true},
                      {LowRecipe::delayed, true},      {LowRecipe::delayed},   {LowRecipe::tensorwise, true},
                      {LowRecipe::mxfp8, false, true}, {LowRecipe::mxfp8},     {LowRecipe::mxfp8, true},
                      {LowRecipe::nvfp4, true},        {LowRecipe::nvfp4}};
  Cases cases;
  for (const auto& [recipe, padded, sends_codes] : all) {
    if (!has_products_of(recipe) || !cases.takes_next()) continue;
    INFO(name_of(recipe) << (padded ? ", padded" : ", as many rows as there are") << (sends_codes ? ", as codes" : ""));
    Scenario scenario = experts_of(recipe);
    if (padded) pad_experts(scenario);
    if (sends_codes) send_codes(scenario, true, true);
    check_against_host(scenario, 0.01, 0.1);
  }
}

TEST_CASE("the executor for GPUs trains with context parallelism", "[cuda]") {
  Cases cases;
  for (const CpCommType type : values_of<CpCommType>())
    for (const bool llama : {false, true}) {
      // GPT's layers are all of the type; Llama's alternate with a ring.
      Layout layout{.cp = type == CpCommType::a2a_p2p ? 4 : 2, .cp_type = {type}};
      if (llama && type != CpCommType::p2p) layout.cp_type.push_back(CpCommType::p2p);
      Scenario scenario = layout_scenario(layout, "cp_comm_overlap", llama, "fp32", 2, 4);
      if (!cases.takes_next()) continue;
      INFO(layout.text() << (llama ? ", llama" : ", gpt"));
      scenario.model.attention_dropout = scenario.model.hidden_dropout = llama ? 0.2 : 0;
      check_against_host(scenario, 1e-5, 2e-4);
      scenario.training.precision = "bf16";
      check_against_host(scenario, 0.01, 0.1);
    }
}

TEST_CASE("the executor for GPUs trains with sharded gradients and parameters", "[cuda]") {
  Cases cases;
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2, true}})
    for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params})
      for (const char* mode : {"plain", "fsdp_comm_overlap"}) {
        Scenario scenario = layout_scenario(layout, mode, layout.tp > 1, "fp32", 1, 4);
        if (!cases.takes_next()) continue;
        INFO(layout.text() << ", " << name_of(sharding) << ", " << mode);
        scenario.model.num_layers = 3;
        scenario.parallel.data_parallel_sharding_strategy = sharding;
        check_against_host(scenario, 1e-5, 2e-4);
        scenario.training.precision = "bf16";
        check_against_host(scenario, 0.01, 0.1);
      }
}

TEST_CASE("the executor for GPUs trains with unfused attention", "[cuda]") {
  for (const bool llama : {false, true})
    for (const double dropout : {0.0, 0.2}) {
      Scenario scenario = layout_scenario(Layout{1, 2}, "plain", llama, "fp32", 2, 4);
      scenario.training.attention_backend = AttentionBackend::unfused;
      scenario.training.recompute.granularity =
          llama ? Recompute::Granularity::selective : Recompute::Granularity::none;
      scenario.model.attention_dropout = dropout;
      INFO((llama ? "llama" : "gpt") << ", dropout " << dropout);
      check_against_host(scenario, 1e-5, 2e-4);
      scenario.training.precision = "bf16";
      check_against_host(scenario, 0.01, 0.1);
    }
}

TEST_CASE("the executor for GPUs trains models with experts", "[cuda]") {
  struct Case {
    Layout layout;
    std::int64_t ep = 1;
    Mixture mixture = Mixture::softmax;
    const char* mode = "plain";
    bool pads = false, gathers = false;
  };
  const Case cases[] = {
      {{1, 1}, 1},
      {{1, 1}, 1, Mixture::latent},
      {{2, 1}, 2, Mixture::sigmoid},
      {{4, 1}, 4},
      {{1, 2, true}, 2, Mixture::latent},
      {{2, 2, true}, 2, Mixture::sigmoid, "overlap_grad_reduce"},
      {{2, 1}, 2, Mixture::softmax, "plain", true},
      {{4, 1}, 4, Mixture::sigmoid, "overlap_param_gather", true},
      {{4, 1}, 2, Mixture::softmax, "plain", false, true},
      {{4, 1}, 2, Mixture::sigmoid, "plain", true, true},
      {{2, 1}, 2, Mixture::sigmoid, "overlap_moe_expert_parallel_comm"},
      {{4, 1}, 4, Mixture::latent, "delay_wgrad_compute"},
      {{2, 1}, 2, Mixture::latent, "ep_overlap_early_attn_memory_release", true},
      {{2, 1}, 2, Mixture::softmax, "overlap_dispatch_backward_with_experts_wgrad"},
      {{2, 1}, 2, Mixture::sigmoid, "moe_shared_expert_overlap"},
  };
  Cases taken;
  for (const Case& c : cases) {
    if (!taken.takes_next()) continue;
    Scenario scenario = small_mixture(c.layout, c.ep, c.mixture, c.mode);
    if (c.pads) pad_experts(scenario);
    if (c.gathers) scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
    INFO(c.layout.text() << ", ep " << c.ep << ", " << c.mode << (c.pads ? ", padded" : "")
                         << (c.gathers ? ", gathers" : ""));
    check_against_host(scenario, 1e-5, 5e-4);
    scenario.training.precision = "bf16";
    // Rounding sometimes changes which experts the router chooses, so gradients of single experts may differ.
    OnFakeGpu gpu(scenario);
    CHECK(gpu.train(1).losses[0] == Approx(train(scenario, 1, false).losses[0]).epsilon(0.02));
  }
}

TEST_CASE("steps of experts are graphs where rows are padded, and the same bits every time", "[cuda]") {
  for (const bool pads : {true, false}) {
    Scenario scenario = small_mixture({2, 1}, 2, Mixture::sigmoid, "overlap_moe_expert_parallel_comm");
    if (pads) pad_experts(scenario);
    OnFakeGpu with(scenario, true), without(scenario, false);
    const Trained a = with.train(3), b = without.train(3);
    CHECK(a.losses == b.losses);
    CHECK(same_bits(a.gradients, b.gradients));
    CHECK(same_bits(a.parameters, b.parameters));
    const std::vector<std::string> notes = with.executor->notes();
    CHECK(std::count_if(notes.begin(), notes.end(), [](const std::string& note) {
            return note.starts_with("steps are launched call by call, not as CUDA graphs: data says");
          }) == (pads ? 0 : 1));
#if !defined(STRETTO_ON_GPU)
    CHECK(fake_cuda::device().graphs == (pads ? 1 : 0));
#endif
  }
}

TEST_CASE("more rows than experts have room for are an error on a GPU, with the host's numbers", "[cuda]") {
  const auto errors = [](const Scenario& scenario) {
    const std::string host = message_of([&] { train(scenario, 1, true); }, ErrorKind::runtime);
    const std::string gpu = message_of([&] { OnFakeGpu(scenario).train(1); }, ErrorKind::runtime);
    return std::pair{host, gpu};
  };
  const auto numbers = [](const std::string& message) {
    return message.substr(
        message.find(" rows, and") == std::string::npos ? 0 : message.rfind(' ', message.find(" rows, and") - 1));
  };
  Scenario scenario = small_mixture({2, 1}, 2, Mixture::softmax);
  scenario.parallel.moe_expert_rank_capacity_factor = 1;
  auto [host, gpu] = errors(scenario);
  CHECK_THAT(gpu, Catch::Contains("moe_expert_rank_capacity_factor leaves room for"));
  scenario = small_mixture({1, 1}, 1, Mixture::softmax);
  pad_experts(scenario, 0.3);
  std::tie(host, gpu) = errors(scenario);
  CHECK_THAT(gpu, Catch::Contains("moe_expert_capacity_factor leaves room for"));
  CHECK(numbers(gpu) == numbers(host));
}

TEST_CASE("attention of a size that cuDNN has plans for", "[cuda]") {
  Scenario scenario = layout_scenario(Layout{1, 1}, "plain", false, "bf16", 1, 1);
  scenario.model.num_layers = 1;
  scenario.model.hidden_size = 32;
  scenario.model.num_attention_heads = 2;
  scenario.model.seq_length = scenario.model.max_position_embeddings = 72;
  for (const std::int64_t kv_heads : {2, 1}) {
    scenario.model.num_query_groups = kv_heads;
    check_against_host(scenario, 0.01, 0.1);
#if defined(STRETTO_ON_GPU)
    const OnFakeGpu gpu(scenario);
    for (const std::string& note : gpu.executor->notes()) CHECK_THAT(note, !Catch::Contains("our own kernels, which"));
#else
    CHECK_THAT(OnFakeGpu(scenario).executor->notes().at(0), Catch::Contains("our own kernels"));
#endif
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // a sanitizer would find nothing here that the other tests do not show it
TEST_CASE("several steps on a GPU: the same every time, and times in order", "[cuda]") {
  const Scenario scenario = layout_scenario(Layout{2, 1}, "overlap_param_gather", false, "bf16", 1, 4);
  OnFakeGpu first(scenario), second(scenario);
  const Trained a = first.train(3), b = second.train(3);
  CHECK(a.losses == b.losses);
  CHECK(same_bits(a.parameters, b.parameters));
  CHECK(a.losses[2] < a.losses[0]);
  const Timeline timeline = first.executor->run(2);
  std::size_t operations = 0;
  for (const BoundProgram& program : first.executor->programs()) operations += program.ops.size();
  REQUIRE(timeline.rows.size() == operations);
  CHECK(timeline.step_begin > 0);
  CHECK(timeline.step_end > timeline.step_begin);
  for (const TimelineRow& row : timeline.rows) {
    CHECK(row.ready <= row.transfer);
    CHECK(row.transfer <= row.end);
#if !defined(STRETTO_ON_GPU)  // on the fake device steps overlap
    CHECK(row.ready >= timeline.step_begin);
#endif
  }
}
#endif

TEST_CASE("steps as graphs: the same bits as call by call, and every operation's times", "[cuda]") {
  Cases cases;
  for (const auto& layout : {Layout{2, 1}, Layout{1, 2, true}, Layout{1, 1, false, 2}}) {
    if (!cases.takes_next()) continue;
    INFO(layout.text());
    Scenario scenario = layout_scenario(layout, "plain", false, "bf16", 1, layout.dp * layout.pp);
    scenario.model.num_layers = 2;
    OnFakeGpu with(scenario, true), without(scenario, false);
    const Trained a = with.train(2), b = without.train(2);
    CHECK(a.losses == b.losses);
    CHECK(same_bits(a.gradients, b.gradients));
    CHECK(same_bits(a.parameters, b.parameters));
    CHECK(with.executor->run_without_rows(2).step_end > 0);
    const Timeline timeline = with.executor->run(2);
    Picoseconds sent = 0, received = 0;
    for (const TimelineRow& row : timeline.rows) {
      CHECK(row.ready >= timeline.step_begin);  // graphs do not overlap
      CHECK(row.ready <= row.transfer);
      CHECK(row.transfer <= row.moved());
      CHECK(row.waited >= 0);
      const Work& work = with.executor->programs()[row.rank].work_of(row.op);
      if (const auto* message = std::get_if<PointToPoint>(&work))
        (message->is_send ? sent : received) += row.moved() - row.transfer;
    }
    // The receiver moves the bytes: a sender's wait for it is no transfer.
    CHECK(sent <= received);
    CHECK((received > 0) == (layout.pp > 1));
  }
}

#if !defined(STRETTO_ON_GPU)
TEST_CASE("graphs are captured once, launched from then on, and done without where they cannot be", "[cuda]") {
  fake_cuda::Device& device = fake_cuda::device();
  Scenario scenario = layout_scenario(Layout{2, 1}, "overlap_grad_reduce", false, "bf16", 1, 2);
  scenario.model.num_layers = 1;
  const int before = device.graph_launches;
  {
    OnFakeGpu gpu(scenario);
    gpu.executor->run_without_rows(1);
    CHECK(device.graphs == 0);
    gpu.executor->run_without_rows(5);
    gpu.executor->run(4);  // three steps without times, one with
    CHECK(device.graphs == 2);
    CHECK(device.graph_launches == before + 9);
    for (const std::string& note : gpu.executor->notes()) CHECK_THAT(note, !Catch::Contains("graphs"));
  }
  CHECK(device.graphs == 0);
  device.captures = false;
  {
    OnFakeGpu gpu(scenario), calls(scenario, false);
    const Trained a = gpu.train(3), b = calls.train(3);
    CHECK(same_bits(a.parameters, b.parameters));
    CHECK_THAT(gpu.executor->notes().back(), Catch::Contains("not as CUDA graphs"));
    CHECK(device.waits_for_nothing == 0);
  }
  device.captures = true;
}

TEST_CASE("memory that does not suffice is said before anything runs, and everything is given back", "[cuda]") {
  fake_cuda::Device& device = fake_cuda::device();
  const Scenario scenario = layout_scenario(Layout{2, 1}, "plain", false, "bf16", 1, 4);
  const std::size_t before = device.total_bytes;
  device.total_bytes = 100 << 20;
  CHECK_THROWS_WITH(OnFakeGpu(scenario), Catch::Contains("out of memory: 2 ranks need") &&
                                             Catch::Contains("Fake GPU") && Catch::Contains("MiB"));
  device.total_bytes = before;
  {
    OnFakeGpu fits(scenario);
    // The device uses exactly the plan's bytes, and the stated overhead.
    std::int64_t planned = cuda::overhead_bytes(fits.schedule, 2);
    for (std::int64_t rank = 0; rank < 2; ++rank) planned += fits.verified.plan.roles[0].bytes;
    CHECK(static_cast<std::int64_t>(device.used_bytes) == planned);
  }
  CHECK(device.used_bytes == 0);
  CHECK(device.live_streams == 0);
  CHECK(device.live_events == 0);
  CHECK(device.pinned == 0);
}

TEST_CASE("attention has a workspace for each stream that it is on", "[cuda]") {
  TinySchedule tiny(1);
  const TensorId qkv = tiny.tensor("qkv", 4, 24);
  const OpId filled = tiny.fill("fill", 0, qkv);
  for (const LaneId lane : {0, 1, 1}) {
    const std::string name = std::to_string(tiny.schedule.operations.size());
    const TensorId out = tiny.tensor("out" + name, 4, 8), lse = tiny.tensor("lse" + name, 2, 4);
    const OpId op = tiny.op("attention" + name, lane, Attention{Pass::forward, 1, 2, 2, 4, 4},
                            {{AccessMode::read, tiny.whole(qkv)},
                             {AccessMode::write, tiny.whole(out)},
                             {AccessMode::write, tiny.whole(lse)}},
                            {finish_of(filled)});
    tiny.waits_of(filled) = {finish_of(op, 1)};
  }
  const VerifiedSchedule verified = plan_and_verify(tiny.schedule);
  std::vector<cuda::AttentionLaunch> launches;
  cuda::attention_launches = &launches;
  cuda::RanksHere here = cuda::ranks_here(verified, nullptr);
  std::unique_ptr<exec::Executor>(stretto_make_cuda_executor(verified.schedule, verified.plan, {},
                                                             std::move(here.programs), std::move(here.launches)))
      ->run(1);
  cuda::attention_launches = nullptr;
  REQUIRE(launches.size() == 3);
  for (const auto& a : launches)
    for (const auto& b : launches) CHECK((a.workspace == b.workspace) == (a.stream == b.stream));
}

namespace {

struct FakeCudnn {
  std::vector<cuda::AttentionLaunch> launches;
  std::vector<cuda::AttentionSeed> seeds;
  explicit FakeCudnn(bool (*has_plan)(const Attention&) = nullptr) {
    cuda::attention_launches = &launches;
    cuda::attention_seeds = &seeds;
    cuda::fake_cudnn_has_plan = has_plan;
  }
  ~FakeCudnn() {
    cuda::attention_launches = nullptr;
    cuda::attention_seeds = nullptr;
    cuda::fake_cudnn_has_plan = nullptr;
  }
  FakeCudnn(const FakeCudnn&) = delete;
  FakeCudnn& operator=(const FakeCudnn&) = delete;
};

Scenario dropping_scenario() {
  Scenario scenario = layout_scenario(Layout{2, 2, true}, "plain", false, "bf16", 2, 8);
  scenario.model.attention_dropout = 0.2;
  return scenario;
}

}  // namespace

TEST_CASE("cuDNN's dropout draws anew for each step, layer, micro-batch and rank, and again for a gradient", "[cuda]") {
  for (const auto granularity : {Recompute::Granularity::none, Recompute::Granularity::full}) {
    Scenario scenario = dropping_scenario();
    scenario.training.recompute.granularity = granularity;
    const FakeCudnn fake;
    OnFakeGpu gpu(scenario);
    gpu.train(3);  // the second and third are graphs
    CHECK_THAT(gpu.executor->notes(), Catch::VectorContains(std::string(
                                          "attention dropout: cuDNN draws the masks, others than the host's and than "
                                          "those of another tensor_model_parallel_size; "
                                          "training.cudnn_attention_dropout = false has the schedule's, on our own "
                                          "kernels, which do not use tensor cores")));
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<int, int>> drawn;
    for (const cuda::AttentionSeed& one : fake.seeds)
      ++(one.pass == Pass::forward ? drawn[{one.seed, one.offset}].first : drawn[{one.seed, one.offset}].second);
    const std::int64_t calls = 3 * scenario.model.num_layers * scenario.num_microbatches() * 4;
    CHECK(static_cast<std::int64_t>(drawn.size()) == calls);
    for (const auto& [seed, times] : drawn) {
      CHECK(times.first == (granularity == Recompute::Granularity::full ? 2 : 1));
      CHECK(times.second == 1);
    }
  }
}

TEST_CASE("attention's dropout is cuDNN's in all passes or in none", "[cuda]") {
  Scenario scenario = dropping_scenario();
  const auto launched = [&](bool (*has_plan)(const Attention&)) {
    const FakeCudnn fake(has_plan);
    OnFakeGpu gpu(scenario);
    gpu.train(1);
    const std::vector<std::string> notes = gpu.executor->notes();
    CHECK(std::count_if(notes.begin(), notes.end(), [](const std::string& note) {
            return note.starts_with("attention dropout: ");
          }) == (scenario.model.attention_dropout > 0 ? 1 : 0));
    return std::pair{fake.launches.size(), fake.seeds.size()};
  };
  const auto forward_alone = +[](const Attention& work) { return work.pass == Pass::forward; };
  const auto all = launched(nullptr);
  CHECK(all.first == all.second);
  CHECK(all.first > 0);
  CHECK(launched(forward_alone).first == 0);
  scenario.training.cudnn_attention_dropout = false;
  CHECK(launched(nullptr).first == 0);
  scenario.model.attention_dropout = 0;
  CHECK(launched(nullptr).first == all.first);
  CHECK(launched(forward_alone).first == all.first / 2);
}
#endif

TEST_CASE("streams get hardware queues, and it is said when they share them", "[cuda]") {
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  CHECK(cuda::reserve_hardware_queues(3).empty());  // libraries have streams, too
  CHECK(std::string(getenv("CUDA_DEVICE_MAX_CONNECTIONS")) == "8");
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  CHECK(cuda::reserve_hardware_queues(12).empty());
  CHECK(std::string(getenv("CUDA_DEVICE_MAX_CONNECTIONS")) == "12");
  CHECK(cuda::reserve_hardware_queues(12).empty());
  CHECK_THAT(cuda::reserve_hardware_queues(13), Catch::Contains("13 streams share 12 hardware queues"));
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  CHECK_THAT(cuda::reserve_hardware_queues(40), Catch::Contains("40 streams share the 32 hardware queues"));
  CHECK(std::string(getenv("CUDA_DEVICE_MAX_CONNECTIONS")) == "32");
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_CASE("a GPU does not compute in fp64, and says so", "[cuda]") {
  const Scenario scenario = layout_scenario(Layout{1, 1}, "plain", false, "fp64");
  const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario));
  CHECK_THROWS_WITH(cuda::make_cuda_executor(verified, {}), Catch::Contains("got fp64"));
}

}  // namespace stretto::testing
