#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/schedule/folding.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// One rank's concrete operations: every template is instantiated and every expression of the rank is evaluated.
// Verifier, memory plan, simulator and executors read these programs and never the unbound schedule. Value types; they
// refer to the schedule by index only.

// Waits until the lane has finished (or started) its operation at `position`, `steps_ago` steps before this one. Lanes
// run in order, so one counter for each lane says which operations are done.
struct BoundWait {
  EdgeKind kind = EdgeKind::finish_start;
  LaneId lane = 0;
  std::uint8_t steps_ago = 0;
  std::uint32_t position = 0;  // index in BoundProgram::lanes[lane]
  std::uint32_t op = 0;        // the operation at that position as an index into BoundProgram::ops
};

struct BoundOp {
  OpId op = 0;  // template
  std::int32_t layer = 0;
  std::int32_t micro_batch = 0;
  std::int32_t slot = 0, buffer = 0;
  std::int16_t chunk = 0;
  bool joined = false;  // issued in one group with the previous operation of its lane (Call::joined)
  LaneId lane = 0;
  std::uint32_t position = 0;                  // position in its lane
  std::uint32_t wait_begin = 0, wait_end = 0;  // into BoundProgram::waits
};

struct BoundProgram {
  std::int64_t rank = 0;
  // The ranks that this one represents, itself included, under a folding by axes: all ranks with one of these
  // coordinates on each of these axes, and with this rank's coordinates on all other axes. Empty: this rank represents
  // only itself.
  struct ClassAxis {
    Coord axis = Coord::dp;
    ClassCoordinates coordinates;  // two or more
  };
  std::vector<ClassAxis> represents;
  // number of represented ranks, itself included; the only information under a folding that is not by axes
  std::int64_t ranks = 1;
  std::size_t role = 0;      // index into Schedule::programs
  Coordinates coordinates;   // the rank's coordinates; coordinates of calls are 0
  std::vector<Work> works;   // [OpId]: the work of every template with all expressions of this rank evaluated
  std::vector<BoundOp> ops;  // host issue order
  std::vector<BoundWait> waits;
  std::vector<std::vector<std::uint32_t>> lanes;  // [lane] → indices into ops, in order
  const Work& work_of(std::uint32_t op) const { return works[ops[op].op]; }
};

// Binds the program of one rank. Throws Error(input) when an edge names an operation that the program does not contain,
// or when two instances of one template share all coordinates.
BoundProgram bind(const Schedule& schedule, std::int64_t rank);
// Binds another rank of a role whose program is bound already, and copies the data that does not depend on the rank.
BoundProgram bind_like(const Schedule& schedule, const BoundProgram& of_role, std::int64_t rank);
// Returns the programs of the representatives in the order of ranks, each with the ranks that it represents.
// `of_roles`, unless empty, has a bound program of every role, from which the results are copied.
std::vector<BoundProgram> bind_representatives(const Schedule& schedule, const Folding& folding,
                                               std::span<const BoundProgram> of_roles = {});

// Returns the coordinates at which the operation's views are evaluated: those of the rank and of the call.
Coordinates coordinates_of(const BoundProgram& program, const BoundOp& op);

// A view with all expressions evaluated.
struct BoundView {
  StorageId storage = 0;
  std::int64_t offset = 0;  // elements from the start of the storage
  std::int64_t rows = 1, cols = 1, ld = 1;
  std::int64_t layer = 0;  // coordinates of the tensor's instance
};

// Evaluates a view. Throws Error(input) when the view leaves its tensor instance, or names a layer or slot that does
// not exist.
BoundView resolve(const Schedule& schedule, const BoundProgram& program, const BoundOp& op, std::size_t access);

// Returns the operation's name for messages: "h.3 fc1.dgrad mb 0", or "adamw mb 0" without a layer. An operation
// belongs to a layer when some view of its block depends on the layer.
std::string label(const Schedule& schedule, const BoundOp& op);

}  // namespace stretto
