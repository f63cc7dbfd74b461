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

Parallel over(std::int64_t tp) {
  Parallel parallel;
  parallel.tensor_model_parallel_size = tp;
  return parallel;
}

// Returns the indices in the whole of the elements of rank t's part.
std::vector<std::int64_t> numbers_of(const Parameter& whole, std::int64_t tp, std::int64_t t) {
  Coordinates at;
  at[Coord::tp] = t;
  std::vector<std::int64_t> numbers;
  for (const ArrayCut& cut : cuts_of(whole, over(tp)))
    for (std::int64_t i = 0; i < cut.rows; ++i)
      for (std::int64_t j = 0; j < cut.cols; ++j) numbers.push_back(cut.begin.eval(at) + i * cut.ld + j);
  return numbers;
}

}  // namespace

TEST_CASE("the parts of a parameter are the whole, each element once", "[lower]") {
  const std::vector<Parameter> cut = {make(12, 5, Shard::rows), make(4, 6, Shard::columns), make(1, 18, Shard::rows),
                                      make(24, 5, Shard::rows, {12, 6, 6}), make(1, 24, Shard::rows, {12, 6, 6})};
  for (const Parameter& whole : cut)
    for (const std::int64_t tp : {1, 2, 3}) {
      CAPTURE(whole.rows, whole.cols, tp);
      if ((whole.shard == Shard::columns ? whole.cols : std::max(whole.rows, whole.cols)) % tp != 0) continue;
      const Parameter part = part_of(whole, over(tp));
      CHECK(part.elements() * tp == whole.elements());
      std::set<std::int64_t> seen;
      for (std::int64_t t = 0; t < tp; ++t) {
        const std::vector<std::int64_t> numbers = numbers_of(whole, tp, t);
        CHECK(std::ssize(numbers) == part.elements());
        seen.insert(numbers.begin(), numbers.end());
      }
      CHECK(std::int64_t(seen.size()) == whole.elements());
      CHECK(*seen.rbegin() == whole.elements() - 1);
    }
}

TEST_CASE("segments are cut one by one: q, k and v of a head stay together", "[lower]") {
  const Parameter qkv = make(12, 2, Shard::rows, {6, 3, 3});
  CHECK(numbers_of(qkv, 3, 0) == std::vector<std::int64_t>{0, 1, 2, 3, 12, 13, 18, 19});
  CHECK(numbers_of(qkv, 3, 2) == std::vector<std::int64_t>{8, 9, 10, 11, 16, 17, 22, 23});
}

TEST_CASE("columns are cut row by row", "[lower]") {
  CHECK(numbers_of(make(2, 6, Shard::columns), 3, 1) == std::vector<std::int64_t>{2, 3, 8, 9});
}

TEST_CASE("what is not cut is the same everywhere", "[lower]") {
  const Parameter norm = make(1, 7, Shard::none);
  CHECK(part_of(norm, over(4)).elements() == 7);
  CHECK(numbers_of(norm, 4, 3) == numbers_of(norm, 1, 0));
  CHECK(is_replicated(norm, 4));
  CHECK_FALSE(is_replicated(norm, 1));
}

}  // namespace stretto
