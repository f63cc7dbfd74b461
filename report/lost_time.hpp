#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Why none of a rank's compute lanes computes: the categories of Breakdown (report/exposure.hpp).
enum class LossCause : std::uint8_t {
  exposed,     // the next operation waits for a transfer
  core_wait,   // … for cores
  queue_wait,  // … for an earlier operation of its hardware queue
  host,        // … to be issued
  bubble,      // … for a peer's compute, or for nothing
};
const char* name_of(LossCause cause);  // "exposed", …
constexpr int kLossCauses = static_cast<int>(LossCause::bubble) + 1;

// A stretch of a rank's step without computation.
struct LostTime {
  static constexpr std::uint32_t kNoOp = ~std::uint32_t{0};
  Picoseconds begin = 0, end = 0;  // measured from step_begin; below 0 where the step's compute begins before that
  LossCause cause = LossCause::bubble;
  std::uint32_t communicator = 0;  // of an exposed transfer
  std::uint32_t op = kNoOp;        // the exposed transfer, an index into BoundProgram::ops
};

// Returns a rank's lost time in order. The stretches do not overlap, and their sums by cause and communicator are those
// of breakdown(). `program` must be the BoundProgram of that rank that the rows' `op` index into.
std::vector<LostTime> lost_times(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline);

}  // namespace stretto
