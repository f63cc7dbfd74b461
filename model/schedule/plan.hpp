#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

class Footprints;
struct BoundStep;
struct HappensBefore;

// The offset of every storage in a rank's arena; equal for all ranks of a role. Two storages share bytes only when
// every use of one happens before every use of the other, in this step and across the step boundary. Persistent, input
// and scalar storages share with none. Offsets are multiples of 64 bytes.
struct RolePlan {
  static constexpr std::int64_t kNowhere = -1;
  std::vector<std::int64_t> offset_bytes;  // [storage]; kNowhere: ranks of this role do not have it
  std::int64_t bytes = 0;                  // predicted and allocated peak of a rank
  std::int64_t bytes_without_sharing = 0;
  bool has(StorageId storage) const { return offset_bytes[storage] != kNowhere; }
};

struct MemoryPlan {
  std::vector<RolePlan> roles;      // [program]
  std::int64_t peak_bytes() const;  // peak of the role that needs most
};

// Returns whether the bytes of this kind belong to one storage alone.
inline bool shares_with_nobody(BufferKind kind) {
  return is_persistent(kind) || kind == BufferKind::input || kind == BufferKind::scalar;
}

// Plans the memory of a schedule. Throws Error(input) when the schedule cannot be bound or deadlocks; the schedule need
// not have been verified otherwise.
MemoryPlan plan_memory(const Schedule& schedule);
// Plans for a step that has been bound already; `step` is the schedule's.
MemoryPlan plan_memory(const Schedule& schedule, const BoundStep& step);
// Plans for representatives that have been bound and ordered already. `clocks` must have run to its end; `footprints`
// are those of its programs.
MemoryPlan plan_memory(const Schedule& schedule, const HappensBefore& clocks, std::vector<Footprints>& footprints);

}  // namespace stretto
