#include "model/schedule/mesh.hpp"

#include <catch2/catch.hpp>

using namespace stretto;

TEST_CASE("the last axis is the fastest") {
  const Mesh mesh({{Coord::pp, 2}, {Coord::dp, 3}, {Coord::tp, 4}});
  CHECK(mesh.ranks() == 24);
  CHECK(mesh.size(Coord::dp) == 3);
  CHECK(mesh.size(Coord::cp) == 1);
  const Coordinates at = mesh.coordinates_of(1 * 12 + 2 * 4 + 3);
  CHECK(at[Coord::pp] == 1);
  CHECK(at[Coord::dp] == 2);
  CHECK(at[Coord::tp] == 3);
  CHECK(at[Coord::cp] == 0);
}

TEST_CASE("rank_of undoes coordinates_of") {
  const Mesh mesh({{Coord::pp, 3}, {Coord::dp, 5}, {Coord::cp, 2}, {Coord::tp, 7}});
  for (std::int64_t rank = 0; rank < mesh.ranks(); ++rank) CHECK(mesh.rank_of(mesh.coordinates_of(rank)) == rank);
}

TEST_CASE("members agree on all other axes and come in the order of their coordinates") {
  const Mesh mesh({{Coord::pp, 2}, {Coord::dp, 3}, {Coord::tp, 2}});
  CHECK(mesh.members(7, {Coord::dp}) == std::vector<std::int64_t>{7, 9, 11});
  CHECK(mesh.members(9, {Coord::dp}) == std::vector<std::int64_t>{7, 9, 11});
  CHECK(mesh.members(9, {Coord::tp}) == std::vector<std::int64_t>{8, 9});
  CHECK(mesh.members(9, {Coord::pp}) == std::vector<std::int64_t>{3, 9});
  // Members come in the order of ranks, however the axes are listed.
  const std::vector<std::int64_t> plane = {6, 7, 8, 9, 10, 11};
  CHECK(mesh.members(9, {Coord::dp, Coord::tp}) == plane);
  CHECK(mesh.members(9, {Coord::tp, Coord::dp}) == plane);
}

TEST_CASE("along no axis, or one that is not there, a rank is alone") {
  const Mesh mesh({{Coord::dp, 4}});
  CHECK(mesh.members(2, {}) == std::vector<std::int64_t>{2});
  CHECK(mesh.members(2, {Coord::tp}) == std::vector<std::int64_t>{2});
}

TEST_CASE("a mesh without axes is one rank") {
  const Mesh mesh;
  CHECK(mesh.ranks() == 1);
  CHECK(mesh.members(0, {Coord::dp}) == std::vector<std::int64_t>{0});
}

TEST_CASE("layers that are cut differently see the same ranks as another grid") {
  // Experts share pp; the grid dp x tp of attention is another grid for experts.
  Mesh mesh({{Coord::pp, 2}, {Coord::dp, 3}, {Coord::tp, 4}});
  mesh.add_decomposition({{Coord::pp, 2}, {Coord::cp, 12}});
  for (std::int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const Coordinates at = mesh.coordinates_of(rank);
    CHECK(at[Coord::cp] == rank % 12);
    CHECK(at[Coord::dp] * 4 + at[Coord::tp] == rank % 12);
    CHECK(mesh.rank_of(at) == rank);
    Coordinates again = at;
    again[Coord::cp] = -1;
    mesh.complete(again);
    CHECK(again[Coord::cp] == at[Coord::cp]);
  }
  CHECK(mesh.size(Coord::cp) == 12);
  CHECK(mesh.members(13, {Coord::cp}).size() == 12);
  CHECK(mesh.members(13, {Coord::cp}).front() == 12);
  CHECK(mesh.members(13, {Coord::tp}) == std::vector<std::int64_t>{12, 13, 14, 15});
  // An expression of one decomposition changes along the axes of the other, except along axes that both have.
  CHECK(mesh.depends_on(Coord::cp, Coord::dp));
  CHECK(mesh.depends_on(Coord::cp, Coord::tp));
  CHECK_FALSE(mesh.depends_on(Coord::cp, Coord::pp));
  CHECK_FALSE(mesh.depends_on(Coord::tp, Coord::dp));
}
