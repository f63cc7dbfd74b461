#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

// Whether `call` is the next part of the block that `before` is a part of, called at the same coordinates.
bool continues(const Call& before, const Call& call);

// The address by which edges name the operation at a position.
OpAddress address_of(const Schedule& schedule, const Program& program, OrderPosition at, int steps_ago = 0);

// At which the views of a call's operations are evaluated, on a rank at `at`.
Coordinates coordinates_of(const Call& call, Coordinates at = {});
// Where the instance that the view names there lies.
StorageId storage_of(const Schedule& schedule, const View& view, const Coordinates& at);

// First and last operation, in order, that touches any of a storage with (for `last_writers`) a write or accumulate, of
// operations on `lane`; of the calls before `end` for `last_writers`. One pass for all storages, which must differ.
// Views are taken at their tensor's place, whatever the rank. nullopt where none does.
std::vector<std::optional<OrderPosition>> first_users(const Schedule& schedule, const Program& program,
                                                      std::span<const StorageId> storages, LaneId lane);
std::vector<std::optional<OrderPosition>> last_writers(const Schedule& schedule, const Program& program,
                                                       std::span<const StorageId> storages, LaneId lane,
                                                       std::size_t end);

// Index of the (only) call that consists of exactly this operation, for each of `ops`, which must differ. One pass.
// Throws std::logic_error when there is none.
std::vector<std::size_t> calls_of(const Schedule& schedule, const Program& program, std::span<const OpId> ops);

// Edits of one order, made in one pass however many they are. Positions are those of the order before any of them.
class OrderEdits {
 public:
  explicit OrderEdits(Program& program) : program_(program) {}

  // Takes a whole call out. Nothing may wait in it.
  void remove(std::size_t call) { removed_.push_back(call); }
  // Puts `calls` before the operation at `at`; `at.within` may be the number of operations of the call: behind it. What
  // is inserted at one place later comes first.
  void insert(OrderPosition at, std::vector<Call> calls);
  // The operation at `at` begins a call of its own.
  void cut(OrderPosition at) { insert(at, {}); }
  // The same, and the call waits for `edge` too, behind what its waits were.
  void wait(OrderPosition at, const Edge& edge);
  // Makes the edits, once.
  void apply();

 private:
  struct Edit {
    OrderPosition at;
    std::vector<Call> calls;
    std::optional<Edge> edge;
  };
  OrderPosition normal(OrderPosition at) const;

  Program& program_;
  std::vector<Edit> edits_;
  std::vector<std::size_t> removed_;
};

}  // namespace stretto
