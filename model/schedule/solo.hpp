#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// Solo calls: calls of which nobody else takes part. All their operations are computation and collectives whose other
// members are folded away, and only the first operation waits for what is not of the call. What happens inside depends
// on the block alone, wherever it is called: the verifier and the simulator work it out once.

// What the calls of one range of a block have in common.
struct SoloShape {
  struct OnLane {
    LaneId lane = 0;
    std::uint32_t first = 0;  // operation of the call
    std::uint32_t count = 0;
    bool operator==(const OnLane&) const = default;
  };
  std::vector<OnLane> lanes;  // the lane of the call's first operation comes first; the others wait for the call
  LaneId last_lane = 0;       // of the call's last operation
  std::uint32_t count = 0;
  bool operator==(const SoloShape&) const = default;
};

struct SoloCalls {
  std::vector<SoloShape> shapes;
  std::vector<std::uint16_t> at;  // [op] → shape + 1 of the solo call that begins with it; 0: none does
};

// Of at least two operations. `is_local`: [communicator], the rank is its only member that is not folded away.
SoloCalls find_solo_calls(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_local);

// Whether nothing that follows on the lanes of a solo call, which begins with `op`, can start before the last operation
// of the call has ended.
bool is_waited_for(const BoundProgram& program, std::uint32_t op, const SoloShape& shape);

// What the operations of a solo call know of each other when they start: how many of each lane of the call have
// finished, counted from its beginning. Operations that know the same share a row.
struct SoloClocks {
  std::vector<std::uint32_t> row;       // [operation of the call]; 0: what the first one knows
  std::vector<std::uint32_t> finished;  // [row · lanes of the shape + lane of the shape]
};
SoloClocks clocks_inside(const BoundProgram& program, std::uint32_t op, const SoloShape& shape);

}  // namespace stretto
