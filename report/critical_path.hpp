#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Why a step took as long as it did: the path from the operation that ended last back to the beginning of the step.
// Each step of the path goes to the latest of an operation's predecessors: the previous operation on its lane, one that
// it waits for, or, for communication, the member that arrived last and that member's predecessors (the critical path
// of Yang and Miller, ICDCS 1988). With compute + communication + between = length, the last is time in which none of
// them computed: launching, waiting for cores, the beginning of the step.
struct CriticalPath {
  // in the order of execution; communication has the row of the member that arrived last
  std::vector<TimelineRow> rows;
  std::vector<Picoseconds> counted;  // [row] the part of its time that no later row of the path has
  Picoseconds length = 0;            // from step_begin to the end of the last operation
  Picoseconds compute = 0, communication = 0, between = 0;
};

// Finds the critical path. `step` has the programs that the rows' `op` index into, for all ranks or for all
// representatives; rows are in order of (rank, op), and some may be missing. A wait for an operation of the previous
// step counts as the beginning of the step.
CriticalPath critical_path(const BoundStep& step, const Timeline& timeline);

// Returns what the path consists of, as shares of its length that add up to 1, the largest first: computation by phase
// ("forward", "dgrad", "recompute"), communication by axis ("tp"), and "between". `step` is that of the path.
std::vector<std::pair<std::string, double>> path_shares(const Schedule& schedule, const BoundStep& step,
                                                        const CriticalPath& path);
// Returns "the critical path: 36 % dgrad, 30 % forward, 5 % tp", without shares below half a percent.
std::string path_text(const std::vector<std::pair<std::string, double>>& shares);

nlohmann::json path_json(const std::vector<std::pair<std::string, double>>& shares);  // [{`part`, `share`}]

}  // namespace stretto
