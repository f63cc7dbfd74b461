#include "sim/network/fluid.hpp"

#include <cmath>

namespace stretto::sim {

std::optional<Picoseconds> FluidNetwork::start(std::uint32_t, std::uint32_t, std::int64_t edge_bytes,
                                               Picoseconds begin) {
  return begin + std::llround(static_cast<double>(edge_bytes) * 1e12 / link_bytes_per_s_);
}

void FluidNetwork::run(TimedCore& core) { core.advance(kNever); }

}  // namespace stretto::sim
