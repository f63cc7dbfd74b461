#pragma once
#include <cstdint>
#include <optional>

#include "base/timeline.hpp"
#include "sim/inputs.hpp"

namespace stretto::sim {

// Looks for a moment t from which a simulated step repeats itself: every operation that is active in [t, t + T), on
// every lane of every rank, has a twin `micro_batches` later whose four times are exactly T later, and the host has
// issued it at most T later; every lane that has such twins goes on by one round of them, and neither the step before
// nor the next is active. Then the state at t + T is the state at t, so a step with `micro_batches` more takes T longer. Returns T; nullopt where the step has no such moment.
//
// `timeline` has the rows of all of `inputs.programs`, in order. The caller guarantees that the programs of the longer
// step begin and end like these and have further rounds like this one between: orders of pipelines do, when
// `micro_batches` is a multiple of their round.
std::optional<Picoseconds> find_round(const SimInputs& inputs, const Timeline& timeline, std::int64_t micro_batches);

}  // namespace stretto::sim
