#include "sim/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <type_traits>

#include "base/error.hpp"
#include "sim/core.hpp"
#include "sim/network/child.hpp"
#include "sim/network/fluid.hpp"
#include "sim/network/simgrid.hpp"

namespace stretto::sim {
namespace {

struct SimOutcome {
  Timeline timeline;
  std::vector<Timeline> disturbed;
  bool steady = false;
  std::int64_t operations = 0;
};

// Returns the step in which ranks with costs of their own, and the ranks that wait for them, have classes of their own.
BoundStep with_stragglers_apart(const Schedule& schedule, BoundStep step, const Costs& costs) {
  const auto ranks = static_cast<std::int64_t>(schedule.mesh.ranks());
  if (costs.of_rank.empty() || std::ssize(step.programs) == ranks) return step;
  if (!step.folding.is_by_axes()) throw input_error("simulation: stragglers are apart already");
  std::vector<std::uint32_t> kind_of_rank(static_cast<std::size_t>(ranks));
  std::vector<const OpCosts*> kinds = {&costs};
  for (const auto& entry : costs.of_rank) {
    const std::int64_t rank = entry.first;
    const OpCosts& own = entry.second;
    if (rank < 0 || rank >= ranks) throw input_error("simulation: costs of rank " + std::to_string(rank));
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const OpCosts* other) { return *other == own; });
    kind_of_rank[static_cast<std::size_t>(rank)] = static_cast<std::uint32_t>(same - kinds.begin());
    if (same == kinds.end()) kinds.push_back(&own);
  }
  return bind_step(schedule, split_by_kind(schedule, step.folding, kind_of_rank), step.programs);
}

SimOutcome run_on(NetworkModel& network, const Schedule& schedule, const Costs& costs, const BoundStep& step,
                  const FlatPrograms& flat, const SimOptions& options) {
  const SimInputs inputs{schedule, costs, step.programs, flat, step.issued.partners};
  const int steps = costs.disturbance.share > 0 ? options.disturbed_steps : options.max_steps;
  Core core(inputs, network, steps, options);
  core.run();
  std::vector<Timeline> disturbed = core.recorder().take_disturbed();
  return {core.recorder().take_timeline(), std::move(disturbed), core.recorder().steady(), core.operations()};
}

// An outcome as bytes, for the pipe between two processes of this program; `disturbed` is not sent.
struct OutcomeHeader {
  Picoseconds step_begin, step_end;
  std::int64_t operations, rows;
  bool steady;
};
static_assert(std::is_trivially_copyable_v<TimelineRow> && std::is_trivially_copyable_v<OutcomeHeader>);

std::string pack(const SimOutcome& outcome) {
  OutcomeHeader header{};
  header.step_begin = outcome.timeline.step_begin;
  header.step_end = outcome.timeline.step_end;
  header.operations = outcome.operations;
  header.rows = static_cast<std::int64_t>(outcome.timeline.rows.size());
  header.steady = outcome.steady;
  std::string bytes(sizeof header + outcome.timeline.rows.size() * sizeof(TimelineRow), '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!outcome.timeline.rows.empty())
    std::memcpy(bytes.data() + sizeof header, outcome.timeline.rows.data(), bytes.size() - sizeof header);
  return bytes;
}

SimOutcome unpack(const std::string& bytes) {
  OutcomeHeader header{};
  if (bytes.size() < sizeof header) throw runtime_failure("simgrid: the simulation process sent half a result");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (bytes.size() != sizeof header + static_cast<std::size_t>(header.rows) * sizeof(TimelineRow))
    throw runtime_failure("simgrid: the simulation process sent half a result");
  SimOutcome outcome;
  outcome.timeline.step_begin = header.step_begin;
  outcome.timeline.step_end = header.step_end;
  outcome.timeline.rows.resize(static_cast<std::size_t>(header.rows));
  if (header.rows > 0)
    std::memcpy(outcome.timeline.rows.data(), bytes.data() + sizeof header, bytes.size() - sizeof header);
  outcome.steady = header.steady;
  outcome.operations = header.operations;
  return outcome;
}

}  // namespace

namespace {

void require_steps(const SimOptions& options) {
  if (options.max_steps < 1 || options.disturbed_steps < 1)
    throw input_error("simulation: max_steps and disturbed_steps must be at least 1");
}

// Returns all but the step. `twins`: those for the options, or null.
SimResult result_of(const Schedule& schedule, const BoundStep& step, const FlatPrograms& flat, const Costs& costs,
                    const SimOptions& options, std::shared_ptr<const StepTwins> twins,
                    std::chrono::steady_clock::time_point begin) {
  SimOutcome outcome;
  if (options.network == NetworkKind::fluid) {
    FluidNetwork network(costs.link_bytes_per_s);
    outcome = run_on(network, schedule, costs, step, flat, options);
  } else {
    const Fabric& fabric = options.fabric;
    const bool unfolded = fabric.backbone_GBps > 0 || fabric.pod > 0;
    const Rings rings = find_rings(schedule, step, unfolded, costs.ring_distance);
    std::set<double> rates;
    for (const CollectiveCost& cost : costs.collective) rates.insert(cost.most_bytes_per_s);
    // The module is loaded here, so that later children find it in memory.
    MakeSimgridNetwork* const make_network = load_simgrid();
    // SimGrid has one engine per process, whose clock and platform cannot be reset, so each simulation has a process of
    // its own.
    outcome = unpack(run_in_child([&] {
      // The network is never destroyed: the process ends while flows may still be in flight, which SimGrid's
      // destructors do not support.
      NetworkModel* network = make_network(costs.link_bytes_per_s, fabric, rings, {rates.begin(), rates.end()});
      return pack(run_on(*network, schedule, costs, step, flat, options));
    }));
  }

  SimResult result;
  if (options.round_micro_batches > 0) {
    if (costs.disturbance.share > 0)
      result.no_round = "with noise no two rounds are equal";
    else if (!outcome.steady)
      result.no_round = "its steps have no steady period";
    else {
      if (!twins)
        twins =
            std::make_shared<const StepTwins>(schedule, step.programs, options.round_micro_batches, options.round_from);
      result.round = find_round({schedule, costs, step.programs, flat, step.issued.partners}, outcome.timeline, *twins,
                                result.no_round);
    }
  }
  result.timeline = std::move(outcome.timeline);
  result.disturbed = std::move(outcome.disturbed);
  result.step = result.timeline.step_end - result.timeline.step_begin;
  result.steady = outcome.steady;
  result.operations = outcome.operations;
  result.simulate_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace

SimResult simulate(const Schedule& schedule, BoundStep step, const Costs& costs, const SimOptions& options) {
  require_steps(options);
  const auto begin = std::chrono::steady_clock::now();
  step = with_stragglers_apart(schedule, std::move(step), costs);
  const FlatPrograms flat = flatten_all(schedule, step.programs, costs, step.issued.partners);
  SimResult result = result_of(schedule, step, flat, costs, options, nullptr, begin);
  static_cast<BoundStep&>(result) = std::move(step);
  return result;
}

std::shared_ptr<const StepTwins> RepeatedSimulation::twins_for(const SimOptions& options) const {
  if (options.round_micro_batches == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!twins_ || twins_->micro_batches() != options.round_micro_batches || twins_->from() != options.round_from)
    twins_ =
        std::make_shared<const StepTwins>(schedule_, step_.programs, options.round_micro_batches, options.round_from);
  return twins_;
}

SimResult RepeatedSimulation::simulate(const Costs& costs, const SimOptions& options) const {
  if (!costs.of_rank.empty()) return sim::simulate(schedule_, step_, costs, options);
  require_steps(options);
  const auto begin = std::chrono::steady_clock::now();
  TimedPrograms programs;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      programs = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  const FlatPrograms& flat = programs.with(schedule_, step_, costs);
  SimResult result = result_of(schedule_, step_, flat, costs, options, twins_for(options), begin);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(programs));
  return result;
}

}  // namespace stretto::sim
