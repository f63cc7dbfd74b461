#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Plain list edits of a program's order: what overlap modes are made of. Each keeps the operations, their coordinates
// and their relative order, except for what it says it adds.

// Position in an order of one operation: which call, and which operation of that call (0-based within the call).
struct OrderPosition {
  std::size_t call = 0;
  std::uint32_t within = 0;
  auto operator<=>(const OrderPosition&) const = default;
};

// Cuts the call at `at` so that operation `at.within` begins a call of its own, and returns the index of that call.
// Waits stay with the first part. Cutting at 0 changes nothing.
std::size_t cut_before(Program& program, OrderPosition at);

// The address by which edges name the operation at a position.
OpAddress address_of(const Schedule& schedule, const Program& program, OrderPosition at, int steps_ago = 0);

// The operation with that address (steps_ago is not looked at). Throws std::logic_error when there is none.
OrderPosition position_of(const Schedule& schedule, const Program& program, const OpAddress& address);

// First and last operation, in order, that touches any of the storage with (for `last_writer`) a write or accumulate,
// of operations on `lane`. Views are taken at their tensor's place, whatever the rank. Throws std::logic_error when
// none does.
std::optional<OrderPosition> find_first_user(const Schedule& schedule, const Program& program, StorageId storage,
                                             LaneId lane);
OrderPosition first_user(const Schedule& schedule, const Program& program, StorageId storage, LaneId lane);
OrderPosition last_writer(const Schedule& schedule, const Program& program, StorageId storage, LaneId lane);

// Index of the (only) call that consists of exactly this operation. Throws std::logic_error when there is none.
std::size_t call_of(const Schedule& schedule, const Program& program, OpId op);

}  // namespace stretto
