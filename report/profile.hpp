#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "report/table.hpp"

namespace stretto {

// Peak rates of a device; 0: not known.
struct Peak {
  double GFLOPs = 0;  // rate of GEMMs and attention, in the type in which the schedule computes
  double memory_GBps = 0;
  std::string source;  // source of both: "data sheet", …
};

// Returns the bytes of an operation's operands: each once, and twice where it is read and written. Of an embedding's
// table only the rows that are looked up.
double bytes_moved(const Schedule& schedule, const Operation& operation);

// The least time of an operation: the longer of its arithmetic at the device's peak and moving each of its operands
// once to or from memory (the roofline of Williams et al., CACM 2009). 0 when no peak is known, and for communication.
// Operands that a cache still holds may be faster than the second.
struct Floor {
  double us = 0;
  bool is_memory = false;  // the memory's time is the longer one
};
Floor floor_of(const Schedule& schedule, const Operation& operation, const Peak& peak);

// One measured operation template.
struct ProfiledOperation {
  std::string name, work;  // "fc1.fprop", "gemm 8192x3072x768 nt"
  bool is_communication = false;
  double calls = 0;             // number of calls in a step, mean over ranks
  double us = 0;                // time of one call: median over instances, ranks and repeats
  double total_ms = 0;          // time of all calls in a step: mean over ranks, median over repeats
  double flops = 0, bytes = 0;  // of one call; bytes: each operand once
  Floor floor;                  // of one call
  double floor_ms() const { return calls * floor.us * 1e-3; }
};

// The time of a step, broken down.
struct Profile {
  std::string device;
  Peak peak;
  std::vector<double> step_ms;        // every repeat, run without timing its operations
  std::vector<double> timed_step_ms;  // every repeat, run with timing its operations
  std::int64_t path_operations = 0;   // operations on the critical path, in the repeat whose step is the median
  double path_compute_ms = 0, path_communication_ms = 0, path_between_ms = 0;
  std::vector<ProfiledOperation> operations;  // sorted by time over the floor, the most first

  double overhead_pct() const;  // cost of timing operations, in percent of a step without
  // Returns the step (without timing operations) / the operations of its critical path.
  double step_over_path() const;
};

// Returns the operations of `timelines`, one for each repeat. No floor is above a measurement: where an operation's
// median does more arithmetic than the given peak, the peak is raised to that rate; where an operation takes less time
// than its operands from memory would, they came from a cache, and its floor is its time.
std::vector<ProfiledOperation> profile_operations(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                                  const std::vector<Timeline>& timelines, Peak& peak);

std::string profile_text(const Profile& profile);
nlohmann::json profile_json(const Profile& profile);  // keys: docs/json.md

}  // namespace stretto
