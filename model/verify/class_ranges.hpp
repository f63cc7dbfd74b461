#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/footprint.hpp"

namespace stretto {

// Internal to the verifier: the byte ranges of accesses on all ranks that a program represents
// (model/schedule/folding.hpp), when the ranges depend on the rank: shards of a bucket, steps of a ring.
//
// For races it matters only which accesses cover a byte together. A pattern is such a set of accesses; on every rank
// each byte of the storage has exactly one pattern. Ranks of a class mostly have the same patterns at different bytes.

struct ByteRange {
  std::int64_t begin = 0, end = 0;
  auto operator<=>(const ByteRange&) const = default;
};

struct Pattern {
  std::vector<std::uint32_t>
      // accesses that cover the bytes; numbered through all footprints, ascending; may be empty
      accesses;
  std::vector<ByteRange> where;  // union over all ranks; ascending and disjoint
};

// Accesses to one storage whose positions depend on the same axes.
struct ClassRanges {
  StorageId storage = 0;
  std::vector<Pattern> patterns;
};

// Throws Error(input) when a view leaves its tensor instance on any of the ranks.
std::vector<ClassRanges> find_class_ranges(const Schedule& schedule, const BoundProgram& program,
                                           Footprints& footprints);

}  // namespace stretto
