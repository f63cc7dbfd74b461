#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/solo.hpp"
#include "sim/cost/cost.hpp"

namespace stretto::sim {

// A bound program with its costs, laid out for the engine: one array per lane, in order. Ranks whose programs are equal
// share one (a rank class).

enum class FlatKind : std::uint8_t { compute, collective, send, receive };

// One operation of a lane. Times are in picoseconds; durations are those without interference.
struct FlatOp {
  Picoseconds duration = 0;  // compute: Demand.alone
  // time at which the host has issued it (its group), after its segment began (HostCosts)
  Picoseconds issued = 0;
  std::uint32_t segment = 0;     // how often the host has waited in this step before it issues the operation
  bool ends_segment = false;     // the host waits for it
  Picoseconds awaited = 0;       // then: the time at which the host begins to wait, after its segment began
  std::uint32_t wait_begin = 0;  // into FlatProgram::waits
  std::uint32_t op = 0;          // index into BoundProgram::ops
  OpId id = 0;                   // template
  std::uint16_t wait_count = 0;
  std::uint16_t cores = 0;         // cores held from start to end; for the first of a group: the most of any
  std::int16_t communicator = -1;  // -1: a compute operation
  DemandClass cls = DemandClass::memory;
  FlatKind kind = FlatKind::compute;
  std::uint16_t shape = 0;  // shape of the call that begins here, as index into shapes + 1; 0: not to be played
  std::uint16_t group = 1;  // operations that start with this one, itself included (BoundOp::joined); 0: not the first
  bool operator==(const FlatOp&) const = default;
};

// An operation waits until operation `position` of lane `lane` of its own rank has finished (or started, by `kind`),
// `steps_ago` steps before the current one.
struct FlatWait {
  std::uint32_t position = 0;
  LaneId lane = 0;
  std::uint8_t steps_ago = 0;
  EdgeKind kind = EdgeKind::finish_start;
  bool operator==(const FlatWait&) const = default;
};

struct FlatProgram {
  std::vector<FlatOp> ops;                // sorted by lane
  std::vector<std::uint32_t> lane_begin;  // [lane]; one more entry than lanes
  std::vector<FlatWait> waits;
  std::vector<SoloShape> shapes;
  std::vector<int> lane_cores;  // [lane]: the most cores that one of its operations, or its data movement, holds
  // Returns the number of operations of a lane in one step.
  std::uint32_t length(LaneId lane) const { return lane_begin[lane + 1] - lane_begin[lane]; }
  bool operator==(const FlatProgram&) const = default;
};

// `costs` and `counterparts` belong to the program. Throws Error(input) when the costs do not cover the schedule or ask
// for more cores than a device has.
FlatProgram flatten(const Schedule& schedule, const BoundProgram& program, const OpCosts& costs, const HostCosts& host,
                    const Counterparts& counterparts);
// [program] → its flat form; equal forms are one object.
using FlatPrograms = std::vector<std::shared_ptr<const FlatProgram>>;
FlatPrograms flatten_all(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Costs& costs,
                         const Partners& partners);

// The flat forms of a step's programs. All ranks of a program have equal costs; a caller may set other costs. A value
// type.
class TimedPrograms {
 public:
  // Sets the costs, and returns the flat forms, which are valid until the next call. All calls must be for one step.
  // Throws as flatten_all() does.
  const FlatPrograms& with(const Schedule& schedule, const BoundStep& step, const Costs& costs);

 private:
  FlatPrograms programs_;
  std::vector<std::pair<std::shared_ptr<FlatProgram>, std::size_t>> distinct_;  // of `programs_`, and a program of each
  HostCosts host_;  // which waits the flat forms have follows from the host's
};

}  // namespace stretto::sim
