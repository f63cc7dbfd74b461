#pragma once
#include <algorithm>
#include <cstdint>

#include "model/schedule/work.hpp"

namespace stretto {

// The elements that one member of a collective (the giver) gives to another (the getter) in a phase: from `source` on
// in the giver's buffer, to `target` on in the getter's buffer.
struct Parcel {
  std::int64_t source = 0, target = 0, elements = 0;
};

// Returns where a member's slice of a whole begins, which is where the previous member's slice ends. Slices are equal
// when members divide the whole; otherwise they differ by at most one element, and some are empty when there are more
// members than elements.
inline std::int64_t slice_begin(std::int64_t elements, std::int64_t members, std::int64_t member) {
  return member * (elements / members) + std::min(member, elements % members);
}

// Returns the parcel of a phase. `elements` is the size of the whole. The giver's buffer is its input, or its result
// (CollectivePhase::from_result).
inline Parcel parcel_of(const CollectiveRule& rule, int phase, std::int64_t elements, std::int64_t members,
                        std::int64_t giver, std::int64_t getter) {
  const CollectivePhase& moves = rule.phase[static_cast<std::size_t>(phase)];
  const auto begin = [&](CollectivePhase::Slice slice, std::int64_t next) {
    return slice_begin(elements, members, (slice == CollectivePhase::Slice::of_giver ? giver : getter) + next);
  };
  const std::int64_t source = begin(moves.source, 0);
  return {(moves.from_result ? rule.gets_shard : rule.gives_shard) ? 0 : source,
          rule.gets_shard ? 0 : begin(moves.target, 0), begin(moves.source, 1) - source};
}

}  // namespace stretto
