#pragma once
#include <cstdint>

#include "exec/cuda/kernels/launch.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto::cuda {

// place_of_row() of model/ops/sequence_parts.hpp on the device: the positions in their sequences of the tokens of
// one held part. Passed to kernels by value.
struct Positions {
  std::int64_t tokens, chunk, skip_first, skip_second;  // the skips are added to the token's number in its chunk pair
  // `seq` is the length of the whole sequence in tokens; parts.of, or 2 · parts.of if above 1, divides it.
  Positions(const SequenceParts& parts, std::int64_t seq)
      : tokens(seq / parts.of),
        chunk(parts.of == 1 ? seq : seq / (2 * parts.of)),
        skip_first(parts.of == 1 ? 0 : parts.first.value() * chunk),
        skip_second(parts.of == 1 ? 0 : (2 * parts.of - 2 - parts.first.value()) * chunk) {}

  // `row` counts the tokens of the held part over all samples. Return the row's sample, and its position in the sample.
  __device__ std::int64_t sample(std::int64_t row) const { return row / tokens; }
  __device__ std::int64_t of(std::int64_t row) const {
    const std::int64_t token = row % tokens;
    return token + (token < chunk ? skip_first : skip_second);
  }
};

}  // namespace stretto::cuda
