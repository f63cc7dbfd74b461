#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/schedule/folding.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// One rank's concrete operations: every template is instantiated and every expression of the rank evaluated. Verifier,
// memory plan, simulator and executors all start from this and from nothing else. Value types; they refer to the
// schedule by index only.

// Wait until the lane has finished (or started) its operation at `position`, `steps_ago` steps before this one. Lanes
// run in order, so one counter for each lane says which operations are done.
struct BoundWait {
  EdgeKind kind = EdgeKind::finish_start;
  LaneId lane = 0;
  std::uint8_t steps_ago = 0;
  std::uint32_t position = 0;  // index in BoundProgram::lanes[lane]
  std::uint32_t op = 0;        // the same operation as an index into BoundProgram::ops
};

struct BoundOp {
  OpId op = 0;  // template
  std::int32_t layer = 0;
  std::int32_t micro_batch = 0;
  std::int32_t slot = 0, buffer = 0;
  std::int16_t chunk = 0;
  bool joined = false;  // batched with the operation before it on its lane (Call::joined)
  LaneId lane = 0;
  std::uint32_t position = 0;                  // in its lane
  std::uint32_t wait_begin = 0, wait_end = 0;  // into BoundProgram::waits
};

struct BoundProgram {
  std::int64_t rank = 0;
  // With a folding by axes, the ranks that this one represents, itself included: every combination of these coordinates
  // on these axes. On all other axes they have this rank's coordinates. Empty: it represents itself only.
  struct ClassAxis {
    Coord axis = Coord::dp;
    ClassCoordinates coordinates;  // two or more
  };
  std::vector<ClassAxis> represents;
  std::int64_t ranks = 1;    // that it represents, itself included; of a folding that is not by axes, all that is said
  std::size_t role = 0;      // index into Schedule::programs
  Coordinates coordinates;   // of the rank; those of calls are 0
  std::vector<Work> works;   // [OpId]: every template's work as this rank does it, with nothing left to evaluate
  std::vector<BoundOp> ops;  // host issue order
  std::vector<BoundWait> waits;
  std::vector<std::vector<std::uint32_t>> lanes;  // [lane] → indices into ops, in order
  const Work& work_of(std::uint32_t op) const { return works[ops[op].op]; }
};

// Throws Error(input) when an edge names an operation that the program does not contain, or two instances of the same
// template share all coordinates.
BoundProgram bind(const Schedule& schedule, std::int64_t rank);
// The program of another rank of the same role: what does not depend on the rank is copied.
BoundProgram bind_like(const Schedule& schedule, const BoundProgram& of_role, std::int64_t rank);
// The programs of the representatives, in order of rank, each with the ranks that it represents. `of_roles`, if there
// are any, has a program of every role, which are copied.
std::vector<BoundProgram> bind_representatives(const Schedule& schedule, const Folding& folding,
                                               std::span<const BoundProgram> of_roles = {});

// The point at which the operation's views are evaluated: the rank's coordinates and those of the call.
Coordinates coordinates_of(const BoundProgram& program, const BoundOp& op);

// A view with all expressions evaluated.
struct BoundView {
  StorageId storage = 0;
  std::int64_t offset = 0;  // elements from the start of the storage
  std::int64_t rows = 1, cols = 1, ld = 1;
  std::int64_t layer = 0;  // of the tensor's instance
};

// Throws Error(input) when the view leaves its tensor instance, or names a layer or slot that does not exist.
BoundView resolve(const Schedule& schedule, const BoundProgram& program, const BoundOp& op, std::size_t access);

// "h.3 fc1.dgrad mb 0", or without a layer "adamw mb 0", for messages. An operation is of a layer when its block is:
// when some view in it depends on the layer.
std::string label(const Schedule& schedule, const BoundOp& op);

}  // namespace stretto
