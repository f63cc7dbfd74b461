#pragma once
#include <cstdint>
#include <span>

#include "model/schedule/dtype.hpp"
#include "model/schedule/work.hpp"

namespace stretto::local {

// One member's share of a collective over buffers in one address space. `buffers[i]` is member i's whole buffer. Every
// member must call this with its own index, after all members have arrived and before any leaves; the calls may run at
// the same time on different threads (each writes only what no other reads, see the notes on each).
//
// reduce_scatter: member r sums slice r of all buffers in the order 0…n−1 into slice r of its own. Others never read it.
// all_gather:     member r copies slice s of buffer s into slice s of its own, s ≠ r. Others read only slice r of it.
// all_reduce:     needs two calls with a barrier between, because every member both reads and writes everything:
//                 phase 0 sums slice r (as reduce_scatter, uneven slices allowed), phase 1 gathers (as all_gather).
// Sums are in rank order and bf16 is accumulated in f32 and rounded once: results do not depend on timing or on who sums.
void run_share(CollectiveKind kind, Dtype dtype, std::int64_t elements, int member, std::span<void* const> buffers,
               int phase);
inline int phases(CollectiveKind kind) { return kind == CollectiveKind::all_reduce ? 2 : 1; }

// Bytes that one member reads and writes in memory while running its share; what calibration fits and sim predicts.
std::int64_t share_bytes(CollectiveKind kind, Dtype dtype, std::int64_t elements, int members);

}  // namespace stretto::local
