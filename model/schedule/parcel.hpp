#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/values_of.hpp"
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

// Returns the kinds whose members give and get as much as every other.
inline std::vector<CollectiveKind> kinds_of_equal_slices() {
  std::vector<CollectiveKind> kinds;
  for (const CollectiveKind kind : values_of<CollectiveKind>())
    if (!rule_of(kind).of_rows) kinds.push_back(kind);
  return kinds;
}

// Returns the rows that a member gives to another in a dispatch or a combine, in elements. `offsets` are those of
// Collective; the caller has checked that they leave no buffer (fits()).
inline Parcel parcel_of_rows(const Collective& collective, const std::int32_t* offsets, std::int64_t members,
                             std::int64_t giver, std::int64_t getter) {
  const std::int64_t each = collective.experts / members;
  const bool is_dispatch = collective.kind == CollectiveKind::dispatch;
  const std::int64_t owner = is_dispatch ? giver : getter, holder = is_dispatch ? getter : giver;
  const auto begin = [&](std::int64_t member, std::int64_t of) -> std::int64_t {
    return offsets[member * (collective.experts + 1) + of * each];
  };
  std::int64_t before = 0;  // rows of members before the owner
  for (std::int64_t member = 0; member < owner; ++member) before += begin(member, holder + 1) - begin(member, holder);
  const std::int64_t first = begin(owner, holder) * collective.cols, received = before * collective.cols,
                     elements = (begin(owner, holder + 1) - begin(owner, holder)) * collective.cols;
  return is_dispatch ? Parcel{first, received, elements} : Parcel{received, first, elements};
}

// Returns whether no parcel of a dispatch or a combine leaves a buffer.
inline bool fits(const Collective& collective, const std::int32_t* offsets, std::int64_t members) {
  const std::int64_t each = collective.experts / members, rows = collective.elements / collective.cols;
  for (std::int64_t member = 0; member < members; ++member) {
    const std::int32_t* own = offsets + member * (collective.experts + 1);
    if (own[0] < 0 || own[collective.experts] > rows) return false;
    for (std::int64_t e = 0; e < collective.experts; ++e)
      if (own[e] > own[e + 1]) return false;
  }
  for (std::int64_t holder = 0; holder < members; ++holder) {
    std::int64_t received = 0;
    for (std::int64_t member = 0; member < members; ++member) {
      const std::int32_t* own = offsets + member * (collective.experts + 1);
      received += own[(holder + 1) * each] - own[holder * each];
    }
    if (received * collective.cols > collective.capacity) return false;
  }
  return true;
}

}  // namespace stretto
