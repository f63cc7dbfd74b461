#include "predict/caching_allocator.hpp"

#include <catch2/catch.hpp>

#include "base/rng.hpp"

using namespace stretto;
using namespace stretto::predict;

namespace {
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
}

TEST_CASE("segments have the sizes of PyTorch's allocator", "[memory]") {
  CachingAllocator allocator(false, 0);
  allocator.allocate(1000);  // in the small pool
  CHECK(allocator.reserved_bytes() == 2 * kMiB);
  allocator.allocate(2 * kMiB - 1024);  // no longer small
  CHECK(allocator.reserved_bytes() == 22 * kMiB);
  allocator.allocate(9 * kMiB);
  CHECK(allocator.reserved_bytes() == 22 * kMiB);
  allocator.allocate(11 * kMiB - 1);
  CHECK(allocator.reserved_bytes() == 34 * kMiB);
}

TEST_CASE("a freed block is too small for a larger one, unless the segment grows", "[memory]") {
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator(expandable, 0);
    const auto first = allocator.allocate(40 * kMiB);
    allocator.free(first);
    const auto second = allocator.allocate(60 * kMiB);
    CHECK(allocator.reserved_bytes() == (expandable ? 60 : 100) * kMiB);
    allocator.allocate(40 * kMiB);  // in the first one's block, or after it
    CHECK(allocator.reserved_bytes() == 100 * kMiB);
    allocator.free(second);
    allocator.allocate(30 * kMiB);
    allocator.allocate(30 * kMiB);  // both halves of one block
    CHECK(allocator.peak_reserved_bytes() == 100 * kMiB);
  }
}

TEST_CASE("at its limit it gives back what is free before it fails", "[memory]") {
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator(expandable, 100 * kMiB);
    allocator.free(allocator.allocate(60 * kMiB));
    allocator.allocate(80 * kMiB);
    CHECK_FALSE(allocator.is_out_of_memory());
    CHECK(allocator.reserved_bytes() == 80 * kMiB);
    allocator.allocate(40 * kMiB);
    CHECK(allocator.is_out_of_memory());
  }
}

TEST_CASE("it never holds less than is allocated, nor more than all that was", "[memory]") {
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t bound) { return random_bits(7, 0, drawn++) % bound; };
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator(expandable, 0);
    std::vector<std::pair<CachingAllocator::Handle, std::int64_t>> live;
    std::int64_t allocated = 0, all = 0;
    for (int i = 0; i < 3000; ++i) {
      if (!live.empty() && below(2) == 0) {
        std::swap(live[below(live.size())], live.back());
        allocated -= live.back().second;
        allocator.free(live.back().first);
        live.pop_back();
      } else {
        const auto bytes = static_cast<std::int64_t>(1 + below(below(2) == 0 ? 1 << 19 : 30 << 20));
        live.push_back({allocator.allocate(bytes), bytes});
        allocated += bytes;
        all += bytes;
      }
      REQUIRE(allocator.reserved_bytes() >= allocated);
    }
    CHECK(allocator.peak_reserved_bytes() < all / 2);
  }
}
