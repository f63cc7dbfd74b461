#include "base/rng.hpp"

#include <bit>
#include <cassert>
#include <cmath>
#include <numbers>

namespace stretto {
namespace {

constexpr int kPhiloxRounds = 10;
// With a 1-bit half, few rounds reach only some of the permutations of a tiny range; rounds are cheap next to a batch.
constexpr int kFeistelRounds = 8;

std::array<std::uint32_t, 4> block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); };
  return philox4x32({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
}

std::uint64_t join(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto words = block(seed, stream, index);
  return join(words[0], words[1]);
}

double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto words = block(seed, stream, index);
  // The radius is drawn from (0, 1] and not [0, 1), because log(0) is not finite.
  const double radius = static_cast<double>((join(words[0], words[1]) >> 11) + 1) * 0x1p-53;
  const double turn = static_cast<double>(join(words[2], words[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * turn);
}

std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed, std::uint64_t stream) {
  assert(index < size);
  if (size <= 1) return 0;
  const int half_bits = (std::bit_width(size - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  // The network permutes a range below 4 · size, so walking its cycle back into [0, size) takes 4 rounds at most on
  // average.
  do {
    std::uint64_t left = index >> half_bits;
    std::uint64_t right = index & mask;
    for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t mixed = left ^ (random_bits(seed, stream, round << 32 | right) & mask);
      left = right;
      right = mixed;
    }
    index = left << half_bits | right;
  } while (index >= size);
  return index;
}

}  // namespace stretto
