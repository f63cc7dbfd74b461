#include "model/schedule/process_group.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>

#include "model/schedule/partners.hpp"

using namespace stretto;

TEST_CASE("facts about a process group agree with the list of its members") {
  Schedule schedule;
  schedule.mesh = Mesh({{Coord::pp, 3}, {Coord::dp, 5}, {Coord::cp, 2}, {Coord::tp, 4}});
  schedule.mesh.add_decomposition({{Coord::pp, 3}, {Coord::cp_exchange, 40}});
  const Mesh& mesh = schedule.mesh;
  std::vector<Communicator> communicators = {{"first and last", {Coord::pp}, CommEngine::nic, 1, 2, {0, 2}}};
  for (const std::vector<Coord>& axes : {std::vector<Coord>{},
                                         {Coord::tp},
                                         {Coord::dp},
                                         {Coord::cp, Coord::dp},
                                         {Coord::pp},
                                         {Coord::pp, Coord::tp},
                                         {Coord::cp_exchange}})
    communicators.push_back({"group", axes, CommEngine::nic, 1, 1});
  for (const Communicator& of : communicators)
    for (std::int64_t rank = 0; rank < mesh.ranks(); rank += 7) {
      const std::vector<std::int64_t> members = members_of(schedule, of, rank);
      const ProcessGroup group = process_group_of(mesh, of, rank);
      CHECK(group.size == std::ssize(members));
      if (members.empty()) continue;
      CHECK(group.first == members.front());
      for (std::int64_t end = -1; end <= mesh.ranks() + 1; end += 3)
        CHECK(members_within(mesh, of, rank, 5, std::max<std::int64_t>(5, end)) ==
              std::count_if(members.begin(), members.end(),
                            [&](std::int64_t member) { return member >= 5 && member < end; }));
      const auto size = std::ssize(members), at = std::find(members.begin(), members.end(), rank) - members.begin();
      for (std::int64_t offset = -3; offset <= 3; ++offset)
        CHECK(ring_member(mesh, of, rank, offset) ==
              members[static_cast<std::size_t>(((at + offset) % size + size) % size)]);
    }
}
