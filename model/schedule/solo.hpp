#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/partners.hpp"

namespace stretto {

// Solo calls: calls of which nobody else takes part. All their operations are computation, collectives whose other
// members are folded away, and messages of which the call has both ends: those between ranks that are folded onto this
// one. When the first operation starts, whatever the others wait for outside the call is over. What happens inside
// depends on the block alone, wherever it is called: the verifier and the simulator work it out once.

// Whom the operations of a template meet, seen from one program; [OpId].
struct Counterparts {
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};  // computation, or the others are folded away
  static constexpr std::uint32_t kOthers = kNobody - 1;
  // kNobody, kOthers, or for messages from the program to itself a number: the n-th send with that number meets the
  // n-th receive with it.
  std::vector<std::uint32_t> of;
};
Counterparts counterparts_of(const Schedule& schedule, const Partners& partners, std::size_t program);

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
  std::vector<std::uint32_t> other_end;  // [operation of the call]: of a message; its own number of what is none
  bool operator==(const SoloShape&) const = default;
};

struct SoloCalls {
  std::vector<SoloShape> shapes;
  std::vector<std::uint16_t> at;  // [op] → shape + 1 of the solo call that begins with it; 0: none does
};

// Of at least two operations.
SoloCalls find_solo_calls(const Schedule& schedule, const BoundProgram& program, const Counterparts& counterparts);

// Whether nothing that follows on the lanes of a solo call, which begins with `op`, can start before the last operation
// of the call has ended.
bool is_waited_for(const BoundProgram& program, std::uint32_t op, const SoloShape& shape);

// What the operations of a solo call know of each other: how many of each lane of the call have finished, counted from
// its beginning. Operations that know the same share a row.
struct SoloClocks {
  // Operations of the call that finish one after the other.
  struct OpRange {
    std::uint32_t first = 0, count = 0;
  };
  std::vector<OpRange> order;           // in which they finish; empty when they cannot
  std::vector<std::uint32_t> row;       // [operation of the call] when it starts; 0: what the first one knows
  std::vector<std::uint32_t> last;      // [lane of the shape] the same, when its last has finished
  std::vector<std::uint32_t> finished;  // [row · lanes of the shape + lane of the shape]
};
// Always the first operation in issue order that can move does.
SoloClocks clocks_inside(const BoundProgram& program, std::uint32_t op, const SoloShape& shape);

}  // namespace stretto
