#pragma once
#include <cstdint>
#include <span>

#include "model/ops/dtype.hpp"
#include "model/schedule/work.hpp"

namespace stretto::local {

// The operands of one member of a collective: `in` is what it gives, `out` its result. They may be in place: a shard at
// its slice of the whole, or one buffer (all_reduce always).
struct Buffers {
  const void* in = nullptr;
  void* out = nullptr;
  const std::int32_t* offsets = nullptr;  // of dispatch and combine; all members have equal ones
};
// Returns the buffers of a collective with these operands (exec::Operand).
template <class Operands>
Buffers buffers_of(const Collective& collective, const Operands& operands) {
  return {operands.front().data, operands.back().data,
          collective.by_rows() ? static_cast<const std::int32_t*>(operands[1].data) : nullptr};
}

// Executes one member's share of a collective over buffers in one address space; `buffers[i]` are those of member i.
// Every member must call this with its own index, after all members have arrived and before any leaves; the calls may
// be concurrent, on different threads.
//
// A member gets its parcels of the phase (model/schedule/parcel.hpp). Between phases there must be a barrier. Sums are
// in rank order, and bf16 is accumulated in f32 and rounded once, or as in a ring (Reduction::ring_sum): results depend
// neither on timing nor on which member sums. Throws Error(runtime) where offsets leave a buffer, before anything is
// written.
void run_share(const Collective& collective, Dtype dtype, int member, std::span<const Buffers> buffers, int phase);

// out[i] = Σ in[m][i] over m in order, or the largest of them, i < elements; there are 2 or more inputs, and `out` may
// be one of `in`. `own` is the member whose slice the elements are, with which ring_sum ends.
void reduce(Reduction reduction, Dtype dtype, std::int64_t elements, std::span<const void* const> in, std::size_t own,
            void* out);

// Throws Error(runtime) unless all parcels of a dispatch or a combine lie in their buffers. Every member has the
// offsets of all, and gives the same reason.
void require_fit(const Collective& collective, const std::int32_t* offsets, std::int64_t members);

inline int phases(CollectiveKind kind) { return rule_of(kind).phases; }

}  // namespace stretto::local
