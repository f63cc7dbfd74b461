#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/timeline.hpp"
#include "sim/inputs.hpp"
#include "sim/rounds.hpp"

namespace stretto::sim {

// The pieces of a step whose rounds sim/rounds.hpp looks for.

constexpr std::uint32_t kNoTwin = ~std::uint32_t{0};

// When the host of a rank issued its operations. Empty without a host.
struct IssueTimes {
  // The host begins a segment when it has waited for an operation, and not before it is done with the segment before.
  struct Segment {
    Picoseconds begin = 0;
    Picoseconds waits_from = 0;  // the host was done with the segment before
  };
  std::vector<Picoseconds> issued;  // [operation]
  std::vector<Segment> segments;
  std::vector<std::uint32_t> segment_of;  // [operation]
  std::vector<std::uint32_t> awaited;     // [segment but the last] the operation for which the host waits at its end
};

struct PositionRange {
  std::size_t begin = 0, end = 0;
};

// The twins of a program's operations.
struct Twins {
  std::vector<std::uint32_t> twin;    // [operation] the operation of a later micro-batch, or kNoTwin
  std::vector<std::size_t> apart;     // [lane] positions between twins; 0: the lane has none
  std::vector<PositionRange> steady;  // [lane] the longest range of positions whose operations all have twins
};

// One program with its rows, which have the index of their operation.
struct RankRows {
  std::uint32_t index = 0;  // into SimInputs::programs
  const BoundProgram* program = nullptr;
  std::span<const TimelineRow> rows;
  const Twins* twins = nullptr;
  IssueTimes host;
};

// Ranks that communicate with each other in every round, or share a device.
struct Component {
  std::vector<RankRows> parts;
  Round round;
};

// Splits the parts into components.
std::vector<Component> components_of(const SimInputs& inputs, std::vector<RankRows> parts);

// Returns whether components with rounds shorter than `longest` come to rest before the others come to the first
// communication that components share after their rounds, and whether the others come last to it. Then a step with
// more rounds is as long as that of the others: a component at rest has nothing to do until that communication ends,
// and comes to the same rest earlier.
bool others_wait(const SimInputs& inputs, const std::vector<Component>& components, Picoseconds longest);

}  // namespace stretto::sim
