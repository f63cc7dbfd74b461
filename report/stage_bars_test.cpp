#include "report/stage_bars.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "model/build_schedule.hpp"
#include "model/verify/verify.hpp"
#include "report/lane_windows.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

using namespace stretto;

namespace {

struct Shown {
  Schedule schedule;
  std::vector<BoundProgram> programs;
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
      sim::simulate(schedule, plan_and_verify(schedule),
                    sim::cost_schedule(schedule, sim::read_platform(scenario.platform), scenario.cluster));
  return {schedule, result.programs, result.timeline, stage_bars(schedule, result.programs, result.timeline)};
}

// Returns the bars of a kind, one for each pass of a micro-batch: bars after a seen wait belong to the bar before.
std::vector<StageBar> of_kind(const StageTrack& track, BarKind kind) {
  std::vector<StageBar> bars;
  for (const StageBar& bar : track.bars) {
    if (bar.kind != kind) continue;
    if (bars.empty() || bars.back().micro_batch != bar.micro_batch || bars.back().chunk != bar.chunk)
      bars.push_back(bar);
  }
  return bars;
}

// Returns the time in which operations of the track's rank run that begin within [from, to) of the step, by lane kind
// and phase.
Picoseconds computed(const Shown& step, const StageTrack& track, Picoseconds from, Picoseconds to) {
  std::vector<Interval> times;
  for (const TimelineRow& row : step.timeline.rows) {
    if (row.rank != track.rank) continue;
    const auto program = std::find_if(step.programs.begin(), step.programs.end(),
                                      [&](const BoundProgram& p) { return p.rank == track.rank; });
    const Picoseconds start = row.start - step.timeline.step_begin;
    if (step.schedule.lanes[program->ops[row.op].lane].kind != LaneKind::compute || start < from || start >= to)
      continue;
    times.push_back({start, row.end - step.timeline.step_begin});
  }
  std::vector<Interval> free = {{from, to}};
  Picoseconds sum = 0;
  for (const Interval& time : times) sum += take(free, time.begin, time.end);
  return sum;
}

}  // namespace

TEST_CASE("forward and backward passes that run together have tracks of their own, side by side", "[stages][experts]") {
  const std::vector<std::string> experts = {"parallel.pipeline_model_parallel_size=1",
                                            "parallel.data_parallel_size=2",
                                            "parallel.expert_model_parallel_size=2",
                                            "parallel.expert_tensor_parallel_size=1",
                                            "model.num_layers=4",
                                            "model.add_bias_linear=false",
                                            "model.num_moe_experts=4"};
  CHECK(shown(experts).stages.size() == 1);
  for (const bool delays : {false, true}) {
    std::vector<std::string> pairs = experts;
    pairs.push_back("overlap.overlap_moe_expert_parallel_comm=true");
    if (delays) pairs.push_back("overlap.delay_wgrad_compute=true");
    const Shown step = shown(pairs);
    REQUIRE(step.stages.size() == 2);
    CHECK(step.stages[0].role.ends_with(", forward"));
    CHECK(step.stages[1].role.ends_with(", backward"));
    const auto span = [&](std::size_t track, std::int32_t micro_batch) {
      Interval all{std::numeric_limits<Picoseconds>::max(), 0};
      for (const StageBar& bar : step.stages[track].bars) {
        const bool is_pass = bar.kind == BarKind::forward || bar.kind == BarKind::backward;
        if (!is_pass || bar.micro_batch != micro_batch) continue;
        all.begin = std::min(all.begin, bar.start);
        all.end = std::max(all.end, bar.end);
      }
      return all;
    };
    // The backward pass of a micro-batch and the forward pass of the next share most of their time.
    for (std::int32_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
      const Interval forward = span(0, micro_batch + 1), backward = span(1, micro_batch);
      const Picoseconds both = std::min(forward.end, backward.end) - std::max(forward.begin, backward.begin);
      CHECK(2 * both > forward.end - forward.begin);
    }
    for (const StageTrack& track : step.stages)
      for (std::size_t i = 1; i < track.bars.size(); ++i) CHECK(track.bars[i].start >= track.bars[i - 1].end);
  }
}

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
  // 1F1B: the last stage alternates, and the first begins with as many forwards as there are stages.
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

TEST_CASE("a bar is as long as what its operations take, and waits within it are listed apart", "[stages]") {
  // The schedule has tensor- and data-parallel communication, and a norm that all stages wait for between two parts of
  // the optimizer.
  for (const char* overlap : {"false", "true"}) {
    const Shown step = shown({"parallel.data_parallel_size=16", "parallel.tensor_model_parallel_size=2",
                              "parallel.sequence_parallel=true", "training.global_batch_size=128",
                              std::string("overlap.overlap_grad_reduce=") + overlap,
                              std::string("overlap.overlap_param_gather=") + overlap, "profile=nemo-dgxc"});
    const Picoseconds length = step.timeline.step_end - step.timeline.step_begin;
    for (const StageTrack& track : step.stages) {
      Picoseconds all = 0;
      std::size_t optimizers = 0;
      for (const StageBar& bar : track.bars) {
        INFO(track.role << ", " << name_of(bar.kind) << " " << bar.micro_batch << " at " << bar.start);
        CHECK(bar.computes() == computed(step, track, bar.start, bar.end));
        CHECK(bar.waits >= 0);
        all += bar.computes();
        if (bar.kind == BarKind::optimizer) {
          ++optimizers;
          CHECK(bar.waits == 0);
        }
      }
      CHECK(all == computed(step, track, -length, 2 * length));
      CHECK(optimizers > 1);  // before and after the norm
    }
  }
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
