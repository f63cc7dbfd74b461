#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// Where every storage of a rank lies in its one arena. Predicted and allocated peak are this `bytes`.
// Two storages share bytes only where every use of one happens before every use of the other, in this step and across
// the step boundary (persistent, input and scalar storages share with nobody). Offsets are 64-byte aligned.
struct MemoryPlan {
  std::vector<std::int64_t> offset_bytes;  // [storage]
  std::int64_t bytes = 0;
  std::int64_t bytes_without_sharing = 0;
};

// True for kinds whose bytes belong to one storage alone.
inline bool shares_with_nobody(BufferKind kind) {
  return is_persistent(kind) || kind == BufferKind::input || kind == BufferKind::scalar;
}

// Throws Error(input) when the schedule cannot be bound or deadlocks; it need not have been verified otherwise.
MemoryPlan plan_memory(const Schedule& schedule);

}  // namespace stretto
