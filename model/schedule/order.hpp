#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Edits of a program's order, the building blocks of overlap modes. Each keeps all operations, their coordinates and
// their relative order, unless its comment says otherwise. Programs are borrowed. Not thread-safe.

// Position of an operation in an order: index of the call, and index of the operation within that call.
struct OrderPosition {
  std::size_t call = 0;
  std::uint32_t within = 0;
  auto operator<=>(const OrderPosition&) const = default;
};

// Cuts the call at `at` so that operation `at.within` begins a call of its own, and returns the index of that call.
// Waits stay with the first part. A cut at 0 changes nothing.
std::size_t cut_before(Program& program, OrderPosition at);

// Returns whether `call` continues `before`: one block at equal coordinates, beginning where `before` ends.
bool continues(const Call& before, const Call& call);

// Returns the address by which edges name the operation at a position.
OpAddress address_of(const Schedule& schedule, const Program& program, OrderPosition at, int steps_ago = 0);

// Returns the coordinates at which the views of a call's operations are evaluated, on a rank at `at`.
Coordinates coordinates_of(const Call& call, Coordinates at = {});
// Returns the storage of the instance that the view names at these coordinates.
StorageId storage_of(const Schedule& schedule, const View& view, const Coordinates& at);

// For each storage, first_users returns the first operation on a lane of computation among the calls from `begin` on
// that accesses any of it, and last_writers the last one among the calls before `end` that writes or accumulates into
// it. nullopt when there is none. One pass for all storages, which must be distinct. A view counts as an access to the
// storage of its tensor, whatever the rank.
std::vector<std::optional<OrderPosition>> first_users(const Schedule& schedule, const Program& program,
                                                      std::span<const StorageId> storages, std::size_t begin = 0);
std::vector<std::optional<OrderPosition>> last_writers(const Schedule& schedule, const Program& program,
                                                       std::span<const StorageId> storages, std::size_t end);

// For each of `ops`, which must be distinct, returns the index of the only call that consists of exactly this
// operation. One pass. Throws std::logic_error when there is none.
std::vector<std::size_t> calls_of(const Schedule& schedule, const Program& program, std::span<const OpId> ops);

// Collects edits of one order and applies them in one pass. All positions refer to the order before all edits.
class OrderEdits {
 public:
  explicit OrderEdits(Program& program) : program_(program) {}

  // Removes a whole call, which must have no waits.
  void remove(std::size_t call) { removed_.push_back(call); }
  // Inserts `calls` before the operation at `at`. With `at.within` equal to the call's number of operations, the new
  // calls come after the call. When several insertions have one position, the latest comes first.
  void insert(OrderPosition at, std::vector<Call> calls);
  // Makes the operation at `at` the first of its call.
  void cut(OrderPosition at) { insert(at, {}); }
  // Makes the operation at `at` the first of its call and appends `edge` to that call's waits.
  void wait(OrderPosition at, const Edge& edge);
  // Applies all edits. Call it once.
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
