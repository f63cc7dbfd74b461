#include "sim/network/fluid.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace stretto::sim {

std::optional<Picoseconds> FluidNetwork::start(std::uint32_t, std::uint32_t, std::int64_t edge_bytes,
                                               double most_bytes_per_s, Picoseconds begin) {
  const double rate = most_bytes_per_s > 0 ? std::min(most_bytes_per_s, link_bytes_per_s_) : link_bytes_per_s_;
  const double picoseconds = static_cast<double>(edge_bytes) * 1e12 / rate;
  constexpr double kLongest = 9e18;  // largest value in 64 bits
  if (static_cast<double>(begin) + picoseconds > kLongest)
    throw input_error("simulation: a transfer takes more than 100 days: [cluster] link_GBps is too low");
  return begin + std::llround(picoseconds);
}

void FluidNetwork::run(TimedCore& core) { core.advance(kNever); }

}  // namespace stretto::sim
