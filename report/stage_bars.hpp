#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The work of a bar. Recomputing is part of the backward pass of its micro-batch.
enum class BarKind : std::uint8_t {
  forward,
  backward,         // data gradients, with or without weight gradients
  weight_gradient,  // weight gradients alone
  setup,
  grad_sync,
  optimizer,
  param_sync,
};
const char* name_of(BarKind kind);
constexpr int kBarKinds = static_cast<int>(BarKind::param_sync) + 1;

// A stretch in which a stage computes for one chunk of the model and one micro-batch, or synchronises gradients,
// updates parameters and so on: from the start of its first operation to the end of its last. A wait ends a bar, and
// the next bar goes on behind it. In bars of micro-batches, of which there may be thousands, waits that nobody sees
// stay inside and add up to `waits`.
struct StageBar {
  BarKind kind = BarKind::forward;
  std::int32_t micro_batch = 0;
  std::int16_t chunk = 0;
  Picoseconds start = 0, end = 0;  // from the beginning of the step
  Picoseconds waits = 0;           // time within in which no operation of the bar runs

  Picoseconds computes() const { return end - start - waits; }
};
// A wait of a thousandth of the step is as wide as a pixel, where the strip of a page is a thousand pixels wide.
constexpr Picoseconds kSeenWaits = 1000;

struct StageTrack {
  std::string role;
  std::int64_t rank = 0;  // whose times they are
  std::vector<StageBar> bars;
};

// The compute lanes of the first rank of every role, in order of roles: all of the step, far less than its operations.
std::vector<StageTrack> stage_bars(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                   const Timeline& timeline);

}  // namespace stretto
