#include "model/lower/sharding.hpp"

#include <catch2/catch.hpp>
#include <set>

namespace stretto {
namespace {

Parameter make(std::int64_t rows, std::int64_t cols, Shard shard, std::vector<std::int64_t> segments = {}) {
  Parameter p;
  p.name = "p";
  p.rows = rows;
  p.cols = cols;
  p.shard = shard;
  p.segments = std::move(segments);
  return p;
}

}  // namespace

TEST_CASE("the parts of a parameter are the whole, each element once", "[lower]") {
  const std::vector<Parameter> cut = {make(12, 5, Shard::rows), make(4, 6, Shard::columns), make(1, 18, Shard::rows),
                                      make(24, 5, Shard::rows, {12, 6, 6}), make(1, 24, Shard::rows, {12, 6, 6})};
  for (const Parameter& whole : cut)
    for (const std::int64_t tp : {1, 2, 3}) {
      CAPTURE(whole.rows, whole.cols, tp);
      if ((whole.shard == Shard::columns ? whole.cols : std::max(whole.rows, whole.cols)) % tp != 0) continue;
      const Parameter part = part_of(whole, tp);
      CHECK(part.elements() * tp == whole.elements());
      std::set<std::int64_t> seen;
      for (std::int64_t t = 0; t < tp; ++t)
        for (std::int64_t i = 0; i < part.elements(); ++i) seen.insert(index_in_whole(whole, tp, t, i));
      CHECK(std::int64_t(seen.size()) == whole.elements());
      CHECK(*seen.rbegin() == whole.elements() - 1);
    }
}

TEST_CASE("segments are cut one by one: q, k and v of a head stay together", "[lower]") {
  const Parameter qkv = make(12, 2, Shard::rows, {6, 3, 3});
  const auto row = [&](std::int64_t t, std::int64_t i) { return index_in_whole(qkv, 3, t, 2 * i) / 2; };
  CHECK(row(0, 0) == 0);
  CHECK(row(0, 1) == 1);
  CHECK(row(0, 2) == 6);
  CHECK(row(0, 3) == 9);
  CHECK(row(2, 1) == 5);
  CHECK(row(2, 2) == 8);
  CHECK(index_in_whole(qkv, 3, 2, 7) == 11 * 2 + 1);
}

TEST_CASE("what is not cut is the same everywhere", "[lower]") {
  const Parameter norm = make(1, 7, Shard::none);
  CHECK(part_of(norm, 4).elements() == 7);
  CHECK(index_in_whole(norm, 4, 3, 5) == 5);
  CHECK(is_replicated(norm, 4));
  CHECK_FALSE(is_replicated(norm, 1));
}

}  // namespace stretto
