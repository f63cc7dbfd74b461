#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Facts about the group of a communicator that a rank is in (members_of). They take no time and no memory for each
// member, because there may be millions of members.
struct ProcessGroup {
  std::int64_t first = 0;  // the member of the lowest number
  std::int64_t size = 0;   // 0: the rank is not a member
};
ProcessGroup process_group_of(const Mesh& mesh, const Communicator& communicator, std::int64_t rank);

// Returns how many members of `rank`'s group have numbers from `begin` to `end` - 1.
std::int64_t members_within(const Mesh& mesh, const Communicator& communicator, std::int64_t rank, std::int64_t begin,
                            std::int64_t end);

// Returns the member that is `offset` places after `rank` in the ring of its group; `rank` must be a member.
std::int64_t ring_member(const Mesh& mesh, const Communicator& communicator, std::int64_t rank, std::int64_t offset);

}  // namespace stretto
