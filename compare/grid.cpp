#include "compare/grid.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/trainer.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/residency.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::compare {
namespace {

std::vector<std::string> modes_to_compare(const Scenario& scenario) {
  std::vector<std::string> modes = scenario.compare.modes;
  if (modes.empty()) modes = modes_of(scenario);
  try {
    for (const std::string& mode : modes)
      if (mode != kAsGiven) find_overlap_mode(mode);
  } catch (const Error& error) {
    throw input_error(scenario.file + ": [compare] modes: " + error.what());
  }
  const std::string& plain = overlap_modes().front().name;
  if (const auto found = std::find(modes.begin(), modes.end(), plain); found == modes.end())
    modes.insert(modes.begin(), plain);
  else
    std::rotate(modes.begin(), found, found + 1);
  return modes;
}

// Only a comparison needs these numbers of ranks to be possible: the file may also be used to train a layout that they
// do not fit.
void require_whole_models(const Scenario& scenario, const std::vector<std::int64_t>& ranks) {
  const std::int64_t of_model = scenario.parallel.model_ranks();
  const std::int64_t instances = scenario.parallel.num_distributed_optimizer_instances;
  // Inside an instance at least two ranks share the sharded state.
  const std::int64_t least = instances * (scenario.parallel.context_parallel_size > 1 ? 1 : 2);
  for (const std::int64_t n : ranks) {
    if (n % of_model != 0)
      throw input_error(fmt::format("{}: [compare] ranks: expected multiples of {} = {}, got {}", scenario.file,
                                    Parallel::kModelRanks, of_model, n));
    if (const std::int64_t dp = n / of_model; instances > 1 && (dp % instances != 0 || dp < least))
      throw input_error(
          fmt::format("{}: [compare] ranks: expected a data_parallel_size of at least {} that "
                      "num_distributed_optimizer_instances {} divides, got {} on {} ranks",
                      scenario.file, least, instances, dp, n));
  }
}

// Adds notes on the knobs that a mode requests and that cannot act. Knobs that are already off in the plain schedule,
// whose notes `plain` collects, belong to the scenario and not to the mode.
void add_notes(const Schedule& schedule, const std::string& mode, std::int64_t ranks, std::vector<std::string>& plain,
               std::vector<std::string>& notes) {
  if (mode == "plain") {
    plain = schedule.notes;
    return;
  }
  const std::string at = fmt::format(" at {} {}: ", ranks, ranks == 1 ? "rank" : "ranks");
  for (const std::string& note : schedule.notes) {
    const bool is_said =
        std::any_of(notes.begin(), notes.end(), [&](const std::string& said) { return said.ends_with(at + note); });
    if (!is_said && std::find(plain.begin(), plain.end(), note) == plain.end()) notes.push_back(mode + at + note);
  }
}

}  // namespace

Grid grid_of(const Scenario& given, const sim::Platform& platform, const exec::Machine& machine) {
  const launch::ProcessGroup* processes = machine.processes;
  const bool on_gpu = platform.gpu.has_value();
  Grid grid;
  grid.scenario = given;
  Cluster& cluster = grid.scenario.cluster;
  if (on_gpu) {
    cluster.ranks_per_device = processes ? 1 : 0;  // 0: all ranks share the GPU
    cluster.network = processes ? Network::nccl : Network::links;
  }
  grid.modes = modes_to_compare(given);
  grid.ranks = given.compare.ranks;
  if (grid.ranks.empty()) grid.ranks = {given.parallel.ranks()};
  if (processes) grid.ranks = {processes->size()};
  require_whole_models(given, grid.ranks);
  exec::require_executable(given);
  for (const std::int64_t n : grid.ranks) {
    std::vector<std::string> plain;
    std::vector<Schedule>& schedules = grid.schedules.emplace_back();
    for (const std::string& mode : grid.modes) {
      try {
        const Schedule& schedule =
            schedules.emplace_back(build_schedule(with_mode(grid.scenario, mode, n), free_memory_bytes()));
        // Some modes need more lanes than others, and so cores for more channels.
        if (!on_gpu) check_residency(schedule, sim::cores_per_device(platform, cluster));
        sim::cost_schedule(schedule, platform, cluster);  // throws if the platform lacks a cost
        grid.streams = std::max(grid.streams, static_cast<std::size_t>(processes ? 1 : n) * schedule.lanes.size());
        add_notes(schedule, mode, n, plain, grid.notes);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::input) throw;
        throw input_error(fmt::format("{}: mode {} at {} ranks: {}", given.file, mode, n, error.what()));
      }
    }
  }
  if (processes && given.compare.ranks != grid.ranks && !given.compare.ranks.empty())
    grid.notes.push_back(fmt::format("[compare] ranks is not looked at: there are {} processes", grid.ranks[0]));
  if (on_gpu && !processes && given.cluster.ranks_per_device > 0 &&
      given.cluster.ranks_per_device < *std::max_element(grid.ranks.begin(), grid.ranks.end()))
    grid.notes.push_back("ranks_per_device is not looked at: all ranks share one GPU");
  return grid;
}

}  // namespace stretto::compare
