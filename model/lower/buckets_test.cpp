#include "model/lower/buckets.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "model/transformer.hpp"

using namespace stretto;

namespace {

std::vector<Parameter> of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<Parameter> result;
  for (const std::int64_t size : sizes) result.push_back({"p" + std::to_string(result.size()), -1, 1, size, false});
  return result;
}

// Returns the parameters of each bucket, by index.
std::vector<std::vector<std::size_t>> contents(const std::vector<Bucket>& buckets) {
  std::vector<std::vector<std::size_t>> result;
  for (const Bucket& bucket : buckets) {
    result.emplace_back();
    for (const BucketEntry& entry : bucket.entries) result.back().push_back(entry.parameter);
  }
  return result;
}

using Contents = std::vector<std::vector<std::size_t>>;

}  // namespace

TEST_CASE("parameters are laid out in reverse order, each aligned to 64 elements") {
  const auto buckets = make_buckets(of_sizes({10, 64, 65, 1}), 0, 2);
  REQUIRE(contents(buckets) == Contents{{3, 2, 1, 0}});
  CHECK(buckets[0].entries[0].offset == 0);
  CHECK(buckets[0].entries[1].offset == 64);
  CHECK(buckets[0].entries[2].offset == 192);
  CHECK(buckets[0].entries[3].offset == 256);
  CHECK(buckets[0].elements == 384);  // 266 padded to a multiple of 128
}

TEST_CASE("a bucket closes when its elements reach the bucket size") {
  // Buckets hold 100, then 128 + 100 = 228 (with the gap before the second), then 256 + 100.
  const auto sizes = of_sizes({100, 100, 100, 100});
  CHECK(contents(make_buckets(sizes, 1, 2)) == Contents{{3}, {2}, {1}, {0}});
  CHECK(contents(make_buckets(sizes, 100, 2)) == Contents{{3}, {2}, {1}, {0}});
  CHECK(contents(make_buckets(sizes, 101, 2)) == Contents{{3, 2}, {1, 0}});
  CHECK(contents(make_buckets(sizes, 228, 2)) == Contents{{3, 2}, {1, 0}});
  CHECK(contents(make_buckets(sizes, 229, 2)) == Contents{{3, 2, 1}, {0}});
  CHECK(contents(make_buckets(sizes, 1'000'000, 2)) == Contents{{3, 2, 1, 0}});
}

TEST_CASE("a bucket ends at a multiple of lcm(dp, 128)") {
  for (const std::int64_t dp : {1, 2, 3, 5, 8, 96, 128, 384}) {
    const auto buckets = make_buckets(of_sizes({1, 129}), 1, dp);
    REQUIRE(buckets.size() == 2);
    const std::int64_t unit = std::lcm(dp, std::int64_t{128});
    CHECK(buckets[1].elements == unit);
    CHECK(buckets[0].elements == (129 + unit - 1) / unit * unit);
    for (const Bucket& bucket : buckets) CHECK(bucket.elements % dp == 0);
  }
}

TEST_CASE("every parameter of a model lies in exactly one bucket and they do not overlap") {
  const auto all = parameters(preset("gpt2-124m"));
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1'000'003}, default_bucket_size(8)}) {
    const auto buckets = make_buckets(all, size, 8);
    std::int64_t elements = 0;
    std::size_t next = all.size();
    for (const Bucket& bucket : buckets) {
      std::int64_t end = 0;
      for (const BucketEntry& entry : bucket.entries) {
        CHECK(entry.parameter == --next);
        CHECK(entry.offset >= end);
        CHECK(entry.offset % 64 == 0);
        end = entry.offset + all[entry.parameter].elements();
        elements += all[entry.parameter].elements();
      }
      CHECK(end <= bucket.elements);
      CHECK(bucket.elements - end < 128);
    }
    CHECK(next == 0);
    CHECK(elements == 124'439'808);
    if (size == 0) CHECK(buckets.size() == 1);
    if (size == 1) CHECK(buckets.size() == all.size());
  }
}

TEST_CASE("the default bucket size is Megatron's") {
  CHECK(default_bucket_size(1) == 40'000'000);
  CHECK(default_bucket_size(40) == 40'000'000);
  CHECK(default_bucket_size(64) == 64'000'000);
}

TEST_CASE("no parameters, no buckets") { CHECK(make_buckets({}, 100, 2).empty()); }
