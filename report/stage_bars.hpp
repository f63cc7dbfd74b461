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

// A stretch in which a stage computes for one chunk of the model and one micro-batch: all its layers, from the start of
// the first operation to the end of the last. Waiting inside is part of it, waiting between bars is not.
struct StageBar {
  BarKind kind = BarKind::forward;
  std::int32_t micro_batch = 0;
  std::int16_t chunk = 0;
  Picoseconds start = 0, end = 0;  // from the beginning of the step
};

struct StageTrack {
  std::string role;
  std::int64_t rank = 0;  // whose times they are
  std::vector<StageBar> bars;
};

// The compute lanes of the first rank of every role, in order of roles: all of the step, far less than its operations.
std::vector<StageTrack> stage_bars(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                   const Timeline& timeline);

}  // namespace stretto
