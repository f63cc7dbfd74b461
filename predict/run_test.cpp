#include "predict/run.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "report/data_sheet.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "tests/message_of.hpp"

namespace stretto::predict {
namespace {

constexpr double kMinute = 60, kHour = 3600;

constexpr const char* kScenario =
    "platform = \"h100-sxm\"\nprofile = \"nemo-dgxc\"\n[model]\npreset = \"llama3-8b\"\nnum_layers = 4\n"
    "[parallel]\ntensor_model_parallel_size = 2\npipeline_model_parallel_size = 2\ndata_parallel_size = 4\n"
    "[training]\nglobal_batch_size = 32\n";

std::optional<RunKeys> keys_of(const std::string& table, std::int64_t ranks = 16, std::int64_t ranks_per_node = 8) {
  return read_run(parse_toml("[run]\n" + table, "s.toml").section("run"), ranks, ranks_per_node);
}

struct Predicted {
  Scenario scenario = parse_scenario(kScenario, "s.toml");
  sim::Platform platform = sim::read_platform(scenario.platform);
  QuickStep quick{scenario};
  PredictedStep step = predict_step(scenario, platform);
  Run run(const std::string& table) const { return predict_run(*keys_of(table), quick, step.prediction, platform, {}); }
};

}  // namespace

TEST_CASE("the best interval between checkpoints is Daly's") {
  // Figures 3 to 5 of Daly 2006: checkpoints of five minutes.
  CHECK(best_checkpoint_interval_s(5 * kMinute, 24 * kHour) == Approx(117 * kMinute).margin(0.5 * kMinute));
  CHECK(best_checkpoint_interval_s(5 * kMinute, 6 * kHour) == Approx(57 * kMinute).margin(0.5 * kMinute));
  CHECK(best_checkpoint_interval_s(5 * kMinute, 15 * kMinute) == Approx(9.1 * kMinute).margin(0.05 * kMinute));
  CHECK(best_checkpoint_interval_s(40 * kMinute, 15 * kMinute) == 15 * kMinute);
  // Nothing near it is better.
  for (const double mtbf_s : {kHour, 24 * kHour}) {
    const double best_s = best_checkpoint_interval_s(2 * kMinute, mtbf_s);
    for (const double factor : {0.8, 1.25})
      CHECK(elapsed_for_work(best_s, 2 * kMinute, kMinute, mtbf_s) <
            elapsed_for_work(factor * best_s, 2 * kMinute, kMinute, mtbf_s));
  }
}

TEST_CASE("the elapsed time of a run is what a run with random failures takes") {
  const double interval_s = 30 * kMinute, stall_s = kMinute, restart_s = 4 * kMinute, mtbf_s = 3 * kHour;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> next_failure(1 / mtbf_s);
  constexpr int kIntervals = 20'000;
  double elapsed_s = 0;
  for (int i = 0; i < kIntervals; ++i)
    for (bool restarts = false, done = false; !done; restarts = true) {
      const double wanted_s = interval_s + stall_s + (restarts ? restart_s : 0), failure_s = next_failure(random);
      done = failure_s >= wanted_s;
      elapsed_s += done ? wanted_s : failure_s;
    }
  CHECK(elapsed_s / (kIntervals * interval_s) ==
        Approx(elapsed_for_work(interval_s, stall_s, restart_s, mtbf_s)).epsilon(0.02));
}

TEST_CASE("the largest of several normal numbers") {
  // Harter, Expected values of normal order statistics, Biometrika 48, 1961.
  CHECK(expected_largest(1) == 0);
  CHECK(expected_largest(2) == Approx(0.56419).margin(1e-5));
  CHECK(expected_largest(10) == Approx(1.53875).margin(1e-5));
  CHECK(expected_largest(100) == Approx(2.50759).margin(1e-5));
  CHECK(expected_largest(1000) == Approx(3.24144).margin(1e-5));
  CHECK(expected_largest(1 << 14) > expected_largest(1 << 13));
}

TEST_CASE("published rates of failures give published times between them") {
  const Predicted p;
  // 6.50 failures of 1,000 nodes a day, and 1.8 hours between failures of 16,384 GPUs (arXiv 2410.21680): of 16 GPUs
  // 1,024 times as long.
  const Run run = p.run("node_mtbf_hours = 3692.3\nrestart_s = 300\nstorage_GBps = 100\n");
  CHECK(*run.mtbf_s / 1024 / kHour == Approx(1.8).margin(0.01));
  CHECK(run.interval_is_best);
  CHECK(run.productive_share < 1);
  // 419 interruptions of 16,384 GPUs in 54 days: every three hours (arXiv 2407.21783, table 5).
  const Run llama = p.run("gpu_mtbf_hours = 50677\nrestart_s = 300\nstorage_GBps = 100\n");
  CHECK(*llama.mtbf_s / 1024 / kHour == Approx(3.09).margin(0.01));
}

TEST_CASE("a checkpoint has every parameter and its optimizer state once") {
  const Predicted p;
  // Shards of all ranks together, each rank's weights once of those that hold the same.
  double bytes = 0;
  for (const MemoryUse& use : p.step.prediction.memory.roles)
    bytes += double(use.optimizer_state) * 8 + double(use.parameters) * 2;
  CHECK(checkpoint_bytes(p.scenario) == Approx(bytes).epsilon(0.01));
  Scenario frozen = p.scenario;
  frozen.training.frozen_base = true;
  CHECK(checkpoint_bytes(frozen) == 0);
}

TEST_CASE("a run adds up") {
  const Predicted p;
  const double step_ms = p.step.prediction.step_ms;
  const Run plain = p.run("tokens = 1e9\n");
  CHECK(plain.step_ms == step_ms);
  CHECK(plain.productive_share == 1);
  CHECK(*plain.steps == 3815);  // of 32 · 8,192 tokens
  CHECK(*plain.elapsed_s == Approx(3815 * step_ms * 1e-3));
  CHECK(*plain.gpu_hours == Approx(16 * *plain.elapsed_s / kHour));
  CHECK(*plain.watts_per_gpu == 700);
  CHECK(*plain.energy_MWh == Approx(*plain.gpu_hours * 700e-6));
  CHECK_FALSE(plain.cost);
  CHECK_FALSE(plain.failures);
  const Run full = p.run(
      "tokens = 1e9\ngpu_mtbf_hours = 100\nrestart_s = 60\nstorage_GBps = 10\nprice_per_gpu_hour = 2\nwatts_per_gpu = "
      "500\n");
  CHECK(*full.cost == Approx(2 * *full.gpu_hours));
  CHECK(*full.elapsed_s == Approx(*plain.elapsed_s / full.productive_share));
  CHECK(*full.checkpoint_GBps < 10);
  CHECK(*full.energy_MWh == Approx(*full.gpu_hours * 500e-6));
  // Steps go on while a checkpoint is written: less time is lost.
  const Run async = p.run(
      "gpu_mtbf_hours = 100\nrestart_s = 60\nstorage_GBps = 10\ncheckpoint_async = true\ncheckpoint_stall_s = 0.1\n");
  CHECK(async.productive_share > full.productive_share);
  const auto refused = [&](const char* table) { return testing::message_of([&] { p.run(table); }); };
  CHECK_THAT(refused("tokens = 1e9\nstorage_GBps = 1e-3\ncheckpoint_stall_s = 0\ncheckpoint_interval_s = 60\n"),
             Catch::Matchers::Contains("checkpoint_async"));
  CHECK_THAT(refused("storage_GBps = 1e-3\ncheckpoint_async = true\ncheckpoint_stall_s = 1\n"
                     "checkpoint_interval_s = 60\n"),
             Catch::Matchers::Contains("checkpoint_interval_s"));
  const std::string hopeless = "gpu_mtbf_hours = 1e-9\nrestart_s = 600\nstorage_GBps = 1\ntokens = 1e12\n";
  CHECK_THAT(testing::message_of([&] { p.run(hopeless); }), Catch::Matchers::Contains("makes no progress"));
  CHECK(*async.checkpoint_interval_s < *full.checkpoint_interval_s);
  const Run jitter = p.run("jitter_pct = 2\n");
  CHECK(jitter.jitter_ms == Approx(0.02 * expected_largest(16) * p.step.prediction.breakdown.compute));
}

TEST_CASE("stragglers slow the step, and no more than they are slow") {
  const Predicted p;
  const double step_ms = p.step.prediction.step_ms;
  const auto adds = [&](const std::string& table) { return p.run(table).straggler_ms / step_ms; };
  // The last stage has the head, and no slack.
  const double one = adds("slow_ranks = [13]\nslow_compute = 1.5\n"),
               hidden = adds("slow_ranks = [5]\nslow_compute = 1.1\n");
  CHECK(hidden < 0.1 * one);
  CHECK(one > 0.2);
  CHECK(one < 0.5);
  CHECK(adds("slow_nodes = [1]\nslow_compute = 1.5\n") >= one - 1e-9);
  CHECK(adds("slow_ranks = [13]\nslow_compute = 1\n") == 0);
  const double link = adds("slow_links = [5]\nslow_link = 4\n");
  CHECK(link > 0);
  CHECK(adds("slow_links = [5, 5]\nslow_link = 4\n") == link);
  CHECK(adds("slow_links = [5, 4]\nslow_link = 4\n") < 3 * link);
}

TEST_CASE("keys of [run] that lack another, or name a place that is not there, are refused") {
  const auto message = [](const std::string& table, std::int64_t ranks_per_node = 8) {
    return testing::message_of([&] { keys_of(table, 16, ranks_per_node); });
  };
  using Catch::Matchers::Contains;
  CHECK_FALSE(read_run(parse_toml("", "s.toml").section("run"), 16, 8));
  CHECK_THAT(message("slow_ranks = [16]\nslow_compute = 2\n"), Contains("ranks from 0 to 15, got 16"));
  CHECK_THAT(message("slow_nodes = [2]\nslow_compute = 2\n"), Contains("nodes from 0 to 1, got 2"));
  CHECK_THAT(message("slow_nodes = [0]\nslow_compute = 2\n", 0), Contains("slow_ranks"));
  CHECK_THAT(message("slow_ranks = [1]\n"), Contains("slow_compute"));
  CHECK_THAT(message("slow_link = 2\n"), Contains("slow_links"));
  CHECK_THAT(message("gpu_mtbf_hours = 5\n"), Contains("restart_s as well"));
  CHECK_THAT(message("gpu_mtbf_hours = 5\nrestart_s = 1\n"), Contains("storage_GBps"));
  CHECK_THAT(message("checkpoint_async = true\nstorage_GBps = 1\n"), Contains("checkpoint_stall_s"));
  CHECK_THAT(message("restart_s = 1\n"), Contains("gpu_mtbf_hours"));
  CHECK_THAT(message("checkpoint_interval_s = 60\n"), Contains("storage_GBps"));
  CHECK_THAT(message("checkpoint_stall_s = 1\n"), Contains("checkpoint_interval_s"));
  CHECK_THAT(message("price_per_gpu_hour = 2\n"), Contains("tokens"));
  CHECK_THAT(message("jitter = 1\n"), Contains("did you mean \"jitter_pct\""));
  CHECK(data_sheet_watts("NVIDIA H100-SXM5-96GB, 500 W") == 500);
  CHECK(data_sheet_watts("NVIDIA H100-SXM5-80GB") == 700);
  CHECK_FALSE(data_sheet_watts("a host"));
}

TEST_CASE("few micro-batches extrapolate a step with stragglers to the picosecond") {
  std::mt19937_64 random(11);
  const auto one_of = [&](std::initializer_list<const char*> texts) { return texts.begin()[random() % texts.size()]; };
  int extrapolated_by_few = 0;
  for (int i = 0; i < 24; ++i) {
    const std::string model = one_of({"llama3-8b", "llama3-8b", "qwen3-30b-a3b"});
    const bool has_experts = model != "llama3-8b";
    const int pp = 1 << random() % 3, tp = 1 << random() % 2, dp = 2 << random() % 2,
              chunks = pp > 2 ? 1 + static_cast<int>(random() % 2) : 1;
    std::string text = "platform = \"h100-sxm\"\nprofile = \"" +
                       std::string(one_of({"nemo-dgxc", "megatron-core-te", "megatron-2022"})) +
                       "\"\n[model]\npreset = \"" + model + "\"\nnum_layers = 8\nseq_length = 4096\n" +
                       "[parallel]\nsequence_parallel = true\ntensor_model_parallel_size = " + std::to_string(tp) +
                       "\npipeline_model_parallel_size = " + std::to_string(pp) +
                       "\nvirtual_pipeline_model_parallel_size = " + std::to_string(chunks) +
                       "\ndata_parallel_size = " + std::to_string(dp);
    if (has_experts) text += "\nexpert_model_parallel_size = " + std::to_string(dp);
    text += "\n[overlap]\noverlap_grad_reduce = " + std::string(one_of({"true", "false"})) +
            "\n[training]\nglobal_batch_size = " + std::to_string(dp * (40 + 4 * static_cast<int>(random() % 3))) +
            "\n";
    if (tp == 1) text.replace(text.find("sequence_parallel = true"), 24, "sequence_parallel = false");
    CAPTURE(text);
    const Scenario scenario = parse_scenario(text, "s.toml");
    const sim::Platform platform = sim::read_platform(scenario.platform);
    Stragglers slow;
    slow.ranks = {static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(scenario.parallel.ranks()))};
    slow.compute = 1 + 0.1 * static_cast<double>(random() % 5);
    if (random() % 3 == 0) {
      slow.links = {static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(scenario.parallel.ranks()))};
      slow.link = 1.5;
    }
    const ExtrapolatedStep extrapolated =
        QuickStep(scenario).extrapolate(platform, scenario.framework, {}, nullptr, slow);
    const VerifiedSchedule whole = plan_and_verify(build_schedule(scenario, free_memory_bytes()));
    sim::Costs costs =
        sim::cost_schedule(whole.schedule, platform, scenario.cluster, 1, scenario.framework, scenario.training);
    set_apart(costs, whole.schedule, slow);
    CHECK(extrapolated.step() == sim::simulate(whole.schedule, whole, costs).step);
    extrapolated_by_few += extrapolated.micro_batches < scenario.num_microbatches();
  }
  CHECK(extrapolated_by_few > 12);
}

}  // namespace stretto::predict
