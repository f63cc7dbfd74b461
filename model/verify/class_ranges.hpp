#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/footprint.hpp"

namespace stretto {

// Internal to the verifier: where the accesses lie on all ranks that a program stands for (model/schedule/folding.hpp),
// when that depends on the rank: shards of a bucket, pieces of a ring.
//
// What matters for races is which accesses cover a byte together. A pattern is such a set of accesses; on every rank
// each byte of the storage has one pattern. Ranks whose bytes lie alike have the same patterns in other places.

struct ByteRange {
  std::int64_t begin = 0, end = 0;
  auto operator<=>(const ByteRange&) const = default;
};

struct Pattern {
  std::vector<std::uint32_t> accesses;  // that cover it; numbered through all footprints, ascending; maybe none
  std::vector<ByteRange> where;         // of the storage, on some rank or other; ascending and apart
};

// Accesses to one storage whose places depend on the same axes. They are independent of those of other groups.
struct ClassRanges {
  StorageId storage = 0;
  std::vector<Pattern> patterns;
};

// Throws Error(input) when a view leaves its tensor instance on any of the ranks.
std::vector<ClassRanges> find_class_ranges(const Schedule& schedule, const BoundProgram& program,
                                           Footprints& footprints);

}  // namespace stretto
