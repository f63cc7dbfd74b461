#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The work of a bar. Recomputation is part of the backward pass of its micro-batch.
enum class BarKind : std::uint8_t {
  forward,
  backward,         // data gradients, with or without weight gradients
  weight_gradient,  // only weight gradients
  setup,
  grad_sync,
  optimizer,
  param_sync,
};
const char* name_of(BarKind kind);
constexpr int kBarKinds = static_cast<int>(BarKind::param_sync) + 1;

// A stretch in which a stage computes for one chunk of the model and one micro-batch, or synchronises gradients,
// updates parameters and so on: from the start of its first operation to the end of its last. A wait ends a bar, and
// the next bar begins after it. In bars of micro-batches (there may be thousands) waits that are too short to
// be seen stay inside and add up to `waits`.
struct StageBar {
  BarKind kind = BarKind::forward;
  std::int32_t micro_batch = 0;
  std::int16_t chunk = 0;
  Picoseconds start = 0, end = 0;  // measured from the beginning of the step
  Picoseconds waits = 0;           // time inside the bar in which none of its operations runs

  Picoseconds computes() const { return end - start - waits; }
};
// The shortest wait that is seen, as a divisor of the step: a thousandth is as wide as a pixel where the strip of a
// page is a thousand pixels wide.
constexpr Picoseconds kSeenWaits = 1000;

struct StageTrack {
  std::string role;  // and the passes that the track has, where forward and backward passes have tracks of their own
  std::int64_t rank = 0;  // rank whose times these are
  std::vector<StageBar> bars;
};

// Returns the compute lanes of the first rank of every role, in order of roles: the whole step, in far fewer bars than
// operations. Where a forward and a backward pass of different micro-batches run together, layer by layer
// (overlap_moe_expert_parallel_comm), a role has two tracks, so that both are seen side by side: one of its backward
// passes, and one of everything else before it.
std::vector<StageTrack> stage_bars(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                   const Timeline& timeline);

}  // namespace stretto
