#pragma once
#include <cstdint>
#include <span>

#include "model/schedule/dtype.hpp"
#include "model/schedule/work.hpp"

namespace stretto::local {

// Where one member's operands of a collective are. `in` is what it gives, `out` what it gets; they may be in place: a
// shard at its slice of the whole, or one buffer (all_reduce always).
struct Buffers {
  const void* in = nullptr;
  void* out = nullptr;
};

// One member's share of a collective over buffers in one address space, `buffers[i]` those of member i. Every member
// must call this with its own index, after all members have arrived and before any leaves; the calls may run at the
// same time on different threads.
//
// It gets its parcels of the phase (model/schedule/parcel.hpp). Between phases is a barrier. Sums are in rank order and
// bf16 is accumulated in f32 and rounded once: results do not depend on timing or on who sums.
void run_share(const Collective& collective, Dtype dtype, int member, std::span<const Buffers> buffers, int phase);

// out[i] = Σ in[m][i] over m in order, or the largest of them, i < elements; m from 2 on, and `out` may be one of `in`.
void reduce(Reduction reduction, Dtype dtype, std::int64_t elements, std::span<const void* const> in, void* out);

inline int phases(CollectiveKind kind) { return rule_of(kind).phases; }

}  // namespace stretto::local
