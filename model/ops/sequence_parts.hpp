#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/ops/expr.hpp"

namespace stretto {

// The tokens of a sequence that a rank has under context parallelism. The sequence is cut into 2·of chunks of equal
// length, and part p is chunk p followed by chunk 2·of − 1 − p, so that all parts have equally many queries and keys
// below a causal diagonal (Megatron-LM and TransformerEngine: "zigzag", "dual chunk swap"). The rank holds parts
// [first, first + count). With of = 1 the only part is the whole sequence in its order.
//
// A matrix with the tokens of `batch` sequences has a block of rows for each held part; a block has the part's tokens
// of the first sequence, then those of the second, ….
struct SequenceParts {
  std::int64_t of = 1;
  Expr first = 0;
  std::int64_t count = 1;

  std::int64_t tokens(std::int64_t seq) const { return seq / of * count; }  // tokens of one sequence that are held
  static constexpr std::array kFields = {"of", "first", "count"};
  bool operator==(const SequenceParts&) const = default;
};

// Consecutive tokens of one sequence in consecutive rows of such a matrix.
struct SequenceRun {
  std::int64_t row = 0, position = 0, length = 0;
};

// Returns all runs of sequence number `sample`, in the order of rows. `first` must be a constant.
std::vector<SequenceRun> runs_of(const SequenceParts& parts, std::int64_t seq, std::int64_t batch, std::int64_t sample);

// The sequence of a row, and its position in that sequence, where one part is held. `first` must be a constant.
struct SequencePlace {
  std::int64_t sample = 0, position = 0;
};
inline SequencePlace place_of_row(const SequenceParts& parts, std::int64_t seq, std::int64_t row) {
  if (parts.of == 1) return {row / seq, row % seq};
  const std::int64_t chunk = seq / (2 * parts.of), part = parts.first.value(), token = row % (2 * chunk);
  return {row / (2 * chunk), token + chunk * (token < chunk ? part : 2 * parts.of - 2 - part)};
}

// Returns why a sequence cannot be cut so; "" when it can.
std::string problem_of(const SequenceParts& parts, std::int64_t seq);

}  // namespace stretto
