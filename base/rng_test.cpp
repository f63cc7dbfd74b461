#include "base/rng.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

using namespace stretto;
using Words = std::array<std::uint32_t, 4>;

TEST_CASE("philox4x32-10 gives the published answers", "[rng]") {
  // Random123's kat_vectors, lines "philox4x32 10": counter, key, answer.
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("streams are FNV-1a 64 of the name", "[rng]") {
  // Test vectors of the FNV draft (draft-eastlake-fnv).
  CHECK(stream_of("") == 0xcbf29ce484222325);
  CHECK(stream_of("a") == 0xaf63dc4c8601ec8c);
  CHECK(stream_of("foobar") == 0x85944171f73967e8);
}

TEST_CASE("the words of a block land where the layout says", "[rng]") {
  const std::uint64_t index = 0x85a308d3243f6a88, stream = 0x0370734413198a2e, seed = 0x299f31d0a4093822;
  CHECK(random_bits(seed, stream, index) == 0x94fdccebd16cfe09);
  CHECK(uniform(seed, stream, index) == static_cast<double>(0x94fdccebd16cfe09 >> 11) * 0x1p-53);
}

TEST_CASE("draws depend on seed, stream and index and on nothing else", "[rng]") {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed : {0, 1})
    for (std::uint64_t stream : {0, 1})
      for (std::uint64_t index = 0; index < 100; ++index) seen.insert(random_bits(seed, stream, index));
  CHECK(seen.size() == 400);
  CHECK(normal(1, 2, 3) == normal(1, 2, 3));
}

TEST_CASE("moments are those of the distributions", "[rng]") {
  const int n = 200'000;
  double u1 = 0, u2 = 0, z1 = 0, z2 = 0, z4 = 0, lag = 0, before = 0;
  for (int i = 0; i < n; ++i) {
    const double u = uniform(7, stream_of("wte.weight"), i), z = normal(7, stream_of("wte.weight"), i);
    REQUIRE((u >= 0 && u < 1));
    REQUIRE(std::isfinite(z));
    u1 += u, u2 += u * u, z1 += z, z2 += z * z, z4 += z * z * z * z, lag += z * before;
    before = z;
  }
  CHECK(u1 / n == Approx(0.5).margin(0.003));
  CHECK(u2 / n == Approx(1.0 / 3).margin(0.003));
  CHECK(z1 / n == Approx(0).margin(0.01));
  CHECK(z2 / n == Approx(1).margin(0.015));
  CHECK(z4 / n == Approx(3).margin(0.1));
  CHECK(lag / n == Approx(0).margin(0.01));
}

TEST_CASE("permuted is a bijection of every size", "[rng]") {
  for (std::uint64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 255, 1000, 4097}) {
    std::vector<bool> hit(size, false);
    std::uint64_t fixed = 0;
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t to = permuted(i, size, 42, 3);
      REQUIRE(to < size);
      REQUIRE_FALSE(hit[to]);
      hit[to] = true;
      fixed += to == i;
    }
    if (size >= 255) CHECK(fixed < 10);
  }
}

TEST_CASE("permuted works at the top of its range and differs between streams", "[rng]") {
  const std::uint64_t huge = ~std::uint64_t{0};
  CHECK(permuted(huge - 1, huge, 1, 1) < huge);
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) equal += permuted(i, 1000, 1, 1) == permuted(i, 1000, 1, 2);
  CHECK(equal < 12);
}

TEST_CASE("permutations of a tiny range all occur about equally often", "[rng]") {
  int count[6] = {};
  for (std::uint64_t stream = 0; stream < 6000; ++stream) {
    const auto a = permuted(0, 3, 9, stream), b = permuted(1, 3, 9, stream);
    ++count[a * 2 + (b > a ? b - 1 : b)];
  }
  for (int c : count) CHECK(c == Approx(1000).margin(250));
}
