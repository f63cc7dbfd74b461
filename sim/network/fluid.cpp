#include "sim/network/fluid.hpp"

#include <algorithm>
#include <cmath>

namespace stretto::sim {

std::optional<Picoseconds> FluidNetwork::start(std::uint32_t, std::uint32_t, std::int64_t edge_bytes,
                                               double most_bytes_per_s, Picoseconds begin) {
  const double rate = most_bytes_per_s > 0 ? std::min(most_bytes_per_s, link_bytes_per_s_) : link_bytes_per_s_;
  return begin + std::llround(static_cast<double>(edge_bytes) * 1e12 / rate);
}

void FluidNetwork::run(TimedCore& core) { core.advance(kNever); }

}  // namespace stretto::sim
