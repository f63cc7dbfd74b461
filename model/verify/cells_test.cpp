#include "model/verify/cells.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

std::set<std::int64_t> bytes_of_view(const Schedule& schedule, const BoundView& view, const RolePlan* plan) {
  const std::int64_t size = bytes_of(schedule.storages[view.storage].dtype);
  // Without a plan storages are placed far from each other.
  const std::int64_t base = plan ? plan->offset_bytes[view.storage] : std::int64_t{view.storage} << 20;
  std::set<std::int64_t> bytes;
  for (std::int64_t row = 0; row < view.rows; ++row)
    for (std::int64_t byte = 0; byte < view.cols * size; ++byte)
      bytes.insert(base + (view.offset + row * view.ld) * size + byte);
  return bytes;
}

std::set<std::uint32_t> cells_of(const Cells& cells, std::uint32_t footprint) {
  std::set<std::uint32_t> result;
  for (std::uint32_t u = cells.begin[footprint]; u < cells.begin[footprint + 1]; ++u)
    for (std::uint32_t cell = cells.uses[u].first; cell < cells.uses[u].last; ++cell) CHECK(result.insert(cell).second);
  return result;
}

template <class T>
std::set<T> common(const std::set<T>& a, const std::set<T>& b) {
  std::set<T> result;
  for (const T& t : a)
    if (b.contains(t)) result.insert(t);
  return result;
}

}  // namespace

TEST_CASE("columns of a matrix are one cell each") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 1000, 8);
  t.fill("left", 0, View{x, 0, 0, 0, 1000, 4, 8});
  t.fill("right", 0, View{x, 0, 0, 4, 1000, 4, 8});
  t.fill("all", 0, x);
  const BoundProgram program = bind(t.schedule, 0);
  Footprints footprints(t.schedule, program);
  const Cells cells = cut_into_cells(t.schedule, program, footprints, nullptr);
  CHECK(cells.uses.size() == 3);
  CHECK(cells_of(cells, 0) == std::set<std::uint32_t>{0});
  CHECK(cells_of(cells, 1) == std::set<std::uint32_t>{1});
  CHECK(cells_of(cells, 2) == std::set<std::uint32_t>{0, 1});
}

TEST_CASE("accesses share cells when they share bytes, and what is of three is of all") {
  std::mt19937 random(11);
  const auto draw = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  int shared = 0, apart = 0;
  for (int trial = 0; trial < 200; ++trial) {
    TinySchedule t;
    std::vector<TensorId> tensors;
    for (int i = 0; i < 3; ++i) tensors.push_back(t.tensor("t" + std::to_string(i), 6, 12));
    for (int i = 0; i < 7; ++i) {
      const bool is_strided = draw(3) > 0;
      const std::int64_t rows = 1 + draw(4), ld = is_strided ? 4 + draw(9) : 0, cols = 1 + draw(is_strided ? ld : 12);
      const std::int64_t span = (rows - 1) * (is_strided ? ld : cols) + cols;
      t.fill("op" + std::to_string(i), 0,
             View{tensors[draw(3)], 0, 0, draw(72 - span + 1), rows, cols, is_strided ? ld : cols});
    }
    RolePlan plan;
    for (int i = 0; i < 3; ++i) plan.offset_bytes.push_back(4 * draw(40));
    const RolePlan* const with = trial % 2 == 0 ? &plan : nullptr;
    const BoundProgram program = bind(t.schedule, 0);
    Footprints footprints(t.schedule, program);
    const Cells cells = cut_into_cells(t.schedule, program, footprints, with);
    std::vector<std::set<std::int64_t>> bytes;
    std::vector<std::set<std::uint32_t>> of;
    for (std::uint32_t f = 0; f < 7; ++f) {
      bytes.push_back(bytes_of_view(t.schedule, footprints.views(f)[0], with));
      of.push_back(cells_of(cells, f));
      REQUIRE_FALSE(of.back().empty());
      REQUIRE(*of.back().rbegin() < cells.count);
    }
    for (std::size_t a = 0; a < 7; ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const auto both_bytes = common(bytes[a], bytes[b]);
        const auto both = common(of[a], of[b]);
        REQUIRE(both_bytes.empty() == both.empty());
        (both.empty() ? apart : shared) += 1;
        for (std::size_t c = 0; c < b; ++c)
          REQUIRE(common(both_bytes, bytes[c]).empty() == common(both, of[c]).empty());
      }
  }
  CHECK(shared > 500);
  CHECK(apart > 500);
}
