#pragma once
#include <cstddef>
#include <cstdint>

#include "exec/cuda/kernels/stream.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto::cuda {

// Where the tokens of `batch` sequences lie. A rank holds parts of the sequences. Tokens of a sequence are counted in
// the order of their positions. A matrix has a block of rows for each held part and sequence (SequenceParts). Passed to
// kernels by value.
struct TokenOrder {
  std::int64_t batch = 1, tokens = 0;  // tokens: those held of one sequence
  std::int64_t chunk = 0, chunks = 1;  // runs of consecutive positions, of equal length
  std::int64_t block = 0;              // tokens of one sequence in consecutive rows

  // Returns which of the sequence's held tokens, in the order of rows, token `i` is.
  constexpr std::int64_t place_of(std::int64_t i) const {
    const std::int64_t run = i / chunk, half = chunks / 2;
    return chunks == 1 ? i : (run < half ? 2 * run : 2 * (chunks - 1 - run) + 1) * chunk + i % chunk;
  }
  constexpr std::int64_t row_of(std::int64_t sample, std::int64_t i) const {
    const std::int64_t place = place_of(i);
    return (place / block * batch + sample) * block + place % block;
  }
};
// Returns the order of an operand's rows.
TokenOrder order_of(const SequenceParts& parts, std::int64_t seq, std::int64_t batch);
// Returns the order of rows that follow their positions, sequence after sequence.
TokenOrder order_by_position(std::int64_t batch, std::int64_t tokens);

// A matrix of bf16 in the device's memory, whose rows are tokens; every row is aligned to 16 bytes.
struct TokenRows {
  std::byte* data = nullptr;
  std::int64_t ld = 0;
  TokenOrder order = {};
};
// Log-sum-exps f32[batch · heads, tokens], in the order of an operand's rows.
struct TokenStatistics {
  float* data = nullptr;
  std::int64_t ld = 0, heads = 0;
  TokenOrder order = {};
};
// Tokens [first, first + count) of every sequence.
struct TokenRange {
  std::int64_t first = 0, count = 0;
};

// Launches, asynchronous on the stream, for `cols` elements of each row, a multiple of 8. Ranges may be empty.
void copy_tokens(const TokenRows& from, const TokenRows& to, const TokenRange& range, std::int64_t cols,
                 const Stream& stream);
// to += from, in f32, rounded once.
void add_tokens(const TokenRows& from, const TokenRows& to, const TokenRange& range, std::int64_t cols,
                const Stream& stream);
void clear_tokens(const TokenRows& to, const TokenRange& range, std::int64_t cols, const Stream& stream);

// Launches likewise. `packed` has f32[batch · heads, range.count], in the order of positions.
void pack_statistics(const TokenStatistics& from, float* packed, const TokenRange& range, const Stream& stream);
void unpack_statistics(const float* packed, const TokenStatistics& to, const TokenRange& range, const Stream& stream);
// Writes −∞: the log-sum-exps of queries that see no key.
void clear_statistics(const TokenStatistics& to, const TokenRange& range, const Stream& stream);

}  // namespace stretto::cuda
