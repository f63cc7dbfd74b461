#include "report/stage_bars.hpp"

#include <catch2/catch.hpp>

#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "report/excerpt.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

using namespace stretto;

namespace {

struct Shown {
  Timeline timeline;
  std::vector<StageTrack> stages;
};

Shown shown(const std::vector<std::string>& set) {
  const Scenario scenario = parse_scenario(R"(platform = "h100-sxm"
[model]
num_layers = 16
hidden_size = 512
num_attention_heads = 8
seq_length = 512
vocab_size = 8192
[parallel]
pipeline_model_parallel_size = 4
[training]
precision = "bf16"
micro_batch_size = 1
global_batch_size = 8
)",
                                           "stages", set);
  const Schedule schedule = build_schedule(scenario);
  const sim::SimResult result =
      sim::simulate(schedule, plan_and_verify(schedule).programs,
                    sim::cost_schedule(schedule, sim::read_platform(scenario.platform), scenario.cluster));
  return {result.timeline, stage_bars(schedule, result.programs, result.timeline)};
}

std::vector<StageBar> of_kind(const StageTrack& track, BarKind kind) {
  std::vector<StageBar> bars;
  for (const StageBar& bar : track.bars)
    if (bar.kind == kind) bars.push_back(bar);
  return bars;
}

}  // namespace

TEST_CASE("a stage has a bar for each micro-batch, chunk and pass", "[stages]") {
  for (const std::int64_t chunks : {1, 2}) {
    const Shown step = shown({"parallel.virtual_pipeline_model_parallel_size=" + std::to_string(chunks)});
    REQUIRE(step.stages.size() == 4);
    for (const StageTrack& track : step.stages) {
      INFO(track.role << ", " << chunks << " chunks");
      for (const BarKind kind : {BarKind::forward, BarKind::backward}) {
        const std::vector<StageBar> bars = of_kind(track, kind);
        CHECK(std::ssize(bars) == 8 * chunks);
        for (const StageBar& bar : bars) {
          CHECK(bar.start < bar.end);
          CHECK(bar.chunk < chunks);
        }
      }
      for (std::size_t i = 1; i < track.bars.size(); ++i) CHECK(track.bars[i - 1].end <= track.bars[i].start);
    }
  }
}

TEST_CASE("the bubble of a pipeline is seen between its bars", "[stages]") {
  const Shown step = shown({});
  // 1F1B: the last stage alternates and the first begins with as many forwards as there are stages.
  const std::vector<StageBar>& last = step.stages.back().bars;
  const std::vector<StageBar>& first = step.stages.front().bars;
  const auto kind_of = [](const std::vector<StageBar>& bars, std::size_t nth) {
    std::vector<BarKind> kinds;
    for (const StageBar& bar : bars)
      if (bar.kind <= BarKind::backward) kinds.push_back(bar.kind);
    return kinds.at(nth);
  };
  for (std::size_t i = 0; i < 16; ++i) CHECK(kind_of(last, i) == (i % 2 == 0 ? BarKind::forward : BarKind::backward));
  for (std::size_t i = 0; i < 4; ++i) CHECK(kind_of(first, i) == BarKind::forward);
  CHECK(kind_of(first, 4) == BarKind::backward);
}

TEST_CASE("recomputing belongs to the backward pass", "[stages]") {
  for (const char* granularity : {"selective", "full"}) {
    const Shown step = shown({std::string("training.recompute_granularity=") + granularity});
    for (const StageTrack& track : step.stages) {
      CHECK(of_kind(track, BarKind::forward).size() == 8);
      CHECK(of_kind(track, BarKind::backward).size() == 8);
    }
  }
}
