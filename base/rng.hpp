#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace stretto {

// Counter-based random numbers: pure functions of (seed, stream, index). Neither the number of ranks nor the order of
// execution changes a drawn number. Every function here is thread-safe.
//
// Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11). The key
// is the seed; the 128-bit counter is (index, stream), so distinct (stream, index) never share a block.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// Returns the stream of a named object (a tensor): FNV-1a, 64 bits (Fowler, Noll, Vo).
std::uint64_t stream_of(std::string_view name);

// 64 uniformly distributed bits.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
// Uniform in [0, 1): a multiple of 2^-53.
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
// Standard normal (Box and Muller 1958), |value| < 8.6. Uses the C library's log, sqrt and cos: equal on equal
// machines.
double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

// Returns the place of `index` in a random permutation of [0, size) that (seed, stream) selects. The bijection needs no
// table: a Feistel network with a Philox round function, cycle-walked into the range (Black and Rogaway, CT-RSA 2002).
// Needs index < size.
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed, std::uint64_t stream);

}  // namespace stretto
