#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/partners.hpp"

namespace stretto {

// Solo calls: calls in which no other representative takes part. Their operations are computation, collectives whose
// other members are all folded away, and messages with both ends in the call (between ranks folded onto this one). Once
// the first operation starts, the others wait for nothing outside the call. So the course of the call depends on the
// block alone, and verifier and simulator compute it once for all calls.

// The counterparts with which the operations of each template communicate, seen from one program.
struct Counterparts {
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};  // computation, or all counterparts are folded away
  static constexpr std::uint32_t kOthers = kNobody - 1;
  // [OpId]: kNobody, kOthers, or for messages from the program to itself a route number: the n-th send of a route is
  // matched with the route's n-th receive.
  std::vector<std::uint32_t> of;
};
Counterparts counterparts_of(const Schedule& schedule, const Partners& partners, std::size_t program);

// The part of a solo call that is equal for all calls of the same range of a block.
struct SoloShape {
  struct OnLane {
    LaneId lane = 0;
    std::uint32_t first = 0;  // first operation of the call on this lane
    std::uint32_t count = 0;
    bool operator==(const OnLane&) const = default;
  };
  std::vector<OnLane> lanes;  // the lane of the call's first operation comes first; the other lanes wait for the call
  LaneId last_lane = 0;       // lane of the call's last operation
  std::uint32_t count = 0;
  std::vector<std::uint32_t>
      other_end;  // [operation of the call]: index of the message's other end, else its own index
  bool operator==(const SoloShape&) const = default;
};

struct SoloCalls {
  std::vector<SoloShape> shapes;
  std::vector<std::uint16_t> at;  // [op] → shape + 1 of the solo call that begins with the operation; 0: none does
};

// Finds the solo calls of at least two operations.
SoloCalls find_solo_calls(const Schedule& schedule, const BoundProgram& program, const Counterparts& counterparts);

// Returns whether no later operation on the lanes of the solo call that begins with `op` can start before the call's
// last operation has ended.
bool is_waited_for(const BoundProgram& program, std::uint32_t op, const SoloShape& shape);

// Vector clocks inside a solo call: how many operations of each of its lanes are known to have finished, counted from
// the beginning of the call. Operations with equal clocks share a row.
struct SoloClocks {
  // Operations of the call that finish one after the other.
  struct OpRange {
    std::uint32_t first = 0, count = 0;
  };
  std::vector<OpRange> order;  // a legal order of finishing; empty when the call deadlocks
  // [operation of the call] row of its clock at the start; row 0 belongs to the first operation
  std::vector<std::uint32_t> row;
  std::vector<std::uint32_t> last;      // [lane of the shape] clock after the lane's last operation
  std::vector<std::uint32_t> finished;  // [row · lanes of the shape + lane of the shape]
};
// Executes the call abstractly; when several operations can proceed, the first one in issue order does.
SoloClocks clocks_inside(const BoundProgram& program, std::uint32_t op, const SoloShape& shape);

}  // namespace stretto
