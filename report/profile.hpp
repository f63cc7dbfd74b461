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
  double GFLOPs = 0;  // of GEMMs and attention, in the type that the schedule computes in
  double memory_GBps = 0;
  std::string source;  // of both: "data sheet", …
};

// Bytes of an operation's operands: each once, and twice where it is read and written. Of an embedding's table only
// what is looked up.
double bytes_moved(const Schedule& schedule, const Operation& operation);

// The least time that an operation can take: the longer of its arithmetic at the device's peak and each of its
// operands moved once to or from memory (the roofline of Williams et al., CACM 2009). 0 when no peak is known, and for
// communication. Operands that a cache still holds may beat the second.
struct Floor {
  double us = 0;
  bool is_memory = false;  // which of the two it is
};
Floor floor_of(const Schedule& schedule, const Operation& operation, const Peak& peak);

// One operation template, as it was measured.
struct ProfiledOperation {
  std::string name, work;  // "fc1.fprop", "gemm 8192x3072x768 nt"
  bool is_communication = false;
  double calls = 0;             // in a step, mean over ranks
  double us = 0;                // of one call: median over instances, ranks and repeats
  double total_ms = 0;          // of all calls in a step: mean over ranks, median over repeats
  double flops = 0, bytes = 0;  // of one call; bytes: each operand once
  Floor floor;                  // of one call
  double floor_ms() const { return calls * floor.us * 1e-3; }
};

// The time of a step, broken down.
struct Profile {
  std::string device;
  Peak peak;
  std::vector<double> step_ms;        // every repeat, without the times of operations being taken
  std::vector<double> timed_step_ms;  // every repeat, with them
  std::int64_t path_operations = 0;   // of the critical path, in the repeat whose step is the median
  double path_compute_ms = 0, path_communication_ms = 0, path_between_ms = 0;
  std::vector<ProfiledOperation> operations;  // most time over the floor first

  double overhead_pct() const;  // what taking times costs a step, in percent of one without
  // The step (without times being taken) over the operations of its critical path.
  double step_over_path() const;
};

// The operations of `timelines`, one a repeat. No floor lies above what was measured: where an operation's median does
// more arithmetic than the peak that is given, the device can do that, and the peak is raised to it; where one takes
// less than its operands from memory would, they came from a cache, and its floor is what it took.
std::vector<ProfiledOperation> profile_operations(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                                  const std::vector<Timeline>& timelines, Peak& peak);

std::string profile_text(const Profile& profile);
nlohmann::json profile_json(const Profile& profile);  // keys: docs/json.md

}  // namespace stretto
