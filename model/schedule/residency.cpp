#include "model/schedule/residency.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace stretto {

int resident_cores(const Communicator& communicator) {
  return communicator.engine == CommEngine::sm && communicator.size > 1 ? communicator.channels : 0;
}

namespace {

struct Most {
  int cores = 0;
  const Communicator* communicator = nullptr;
};

// Returns, for each lane, the most cores that one of its operations holds.
std::vector<Most> most_of_lanes(const Schedule& schedule) {
  std::vector<Most> result(schedule.lanes.size());
  for (const Operation& operation : schedule.operations) {
    if (!is_communication(operation.work)) continue;
    const Communicator& communicator = schedule.communicators[communicator_of(operation.work)];
    Most& most = result[operation.lane];
    if (resident_cores(communicator) > most.cores) most = {resident_cores(communicator), &communicator};
  }
  return result;
}

std::int64_t ranks_of_device(const Schedule& schedule) {
  return std::min(schedule.placement.ranks_per_device, schedule.mesh.ranks());
}

}  // namespace

std::int64_t cores_needed(const Schedule& schedule) {
  std::int64_t held = 0;
  for (const Most& most : most_of_lanes(schedule)) held += most.cores;
  return held * ranks_of_device(schedule) + schedule.placement.threads_per_rank;
}

void check_residency(const Schedule& schedule, std::int64_t cores_per_device) {
  const int threads = schedule.placement.threads_per_rank;
  const std::int64_t needed = cores_needed(schedule);
  if (needed == threads || needed <= cores_per_device) return;
  std::string who;
  for (const Most& most : most_of_lanes(schedule))
    if (most.cores > 0) who += (who.empty() ? "" : ", ") + most.communicator->name + " " + std::to_string(most.cores);
  throw input_error("channels (" + who + ") of " + std::to_string(ranks_of_device(schedule)) + " ranks can hold " +
                    std::to_string(needed - threads) + " cores of a device at once and compute needs " +
                    std::to_string(threads) + "; expected [cluster] cores_per_device of at least " +
                    std::to_string(needed) + ", got " + std::to_string(cores_per_device) +
                    ": raise it, or lower max_ctas");
}

}  // namespace stretto
