#include <algorithm>
#include <cassert>
#include <cstdint>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

constexpr const char* kWhat = "embedding: token";

template <class T>
void add_row(T* to, const T* a, const T* b, std::int64_t cols) {
  for_simd<T>(cols, [&](std::int64_t i, std::int64_t count) {
    store<T>(to + i, count, load(a + i, count) + load(b + i, count));
  });
}

// A rank's cut of the tables: rows of wte from `first_row` on, columns of wpe from `first_col` on.
struct Part {
  std::int64_t rows = 0, first_row = 0, cols = 0, first_col = 0;
  explicit Part(const Embedding& work)
      : rows(work.vocab / work.shards),
        first_row(work.shard.value() * rows),
        cols(work.cols / work.shards),
        first_col(work.shard.value() * cols) {}
  // Returns the token's row, or -1 when another rank has it.
  std::int64_t row_of(std::int64_t token) const {
    return token >= first_row && token < first_row + rows ? token - first_row : -1;
  }
};

// Returns the position of a row, in its sequence or in its document.
std::int64_t position_of(const Embedding& work, const Operand* documents, std::int64_t row) {
  const SequencePlace place = place_of_row(work.parts, work.seq, row);
  return documents ? place.position - row_of<std::int32_t>(*documents, place.sample)[place.position] : place.position;
}

// `wpe` is null without positions, and `documents` where they are those of the sequence, here and below.
template <class T>
void forward(const Embedding& work, const Part& part, const Operand& tokens, const Operand& wte, const Operand* wpe,
             const Operand& x, const Operand* documents) {
  for (std::int64_t row = 0; row < work.rows; ++row) {
    T* to = row_of<T>(x, row);
    const std::int64_t of_token = part.row_of(index_at(tokens, row, work.vocab, kWhat));
    if (of_token < 0)
      std::fill_n(to, work.cols, T(0));
    else
      std::copy_n(row_of<T>(wte, of_token), work.cols, to);
    if (wpe)
      add_row(to + part.first_col, to + part.first_col, row_of<T>(*wpe, position_of(work, documents, row)), part.cols);
  }
}

// The loop goes row after row, so a token that occurs twice always sums in one order.
template <class T>
void wgrad(const Embedding& work, const Part& part, const Operand& tokens, const Operand& dx, const Operand& dwte,
           const Operand* dwpe, const Operand* documents) {
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* from = row_of<T>(dx, row);
    if (const std::int64_t of_token = part.row_of(index_at(tokens, row, work.vocab, kWhat)); of_token >= 0) {
      T* to = row_of<T>(dwte, of_token);
      add_row(to, to, from, work.cols);
    }
    if (!dwpe) continue;
    T* of_position = row_of<T>(*dwpe, position_of(work, documents, row));
    add_row(of_position, of_position, from + part.first_col, part.cols);
  }
}

}  // namespace

void run_kernel(const Embedding& work, std::span<const Operand> operands) {
  const Operand* documents = work.by_document ? &operands.back() : nullptr;
  if (documents) operands = operands.first(operands.size() - 1);
  assert(operands.size() == (work.positions ? 4u : 3u) && work.pass != Pass::dgrad);
  const bool is_forward = work.pass == Pass::forward;
  const Part part(work);
  const Operand& tokens = operands[0];
  const Operand& x = is_forward ? operands.back() : operands[1];
  const Operand& wte = is_forward ? operands[1] : operands[2];
  const Operand* wpe = work.positions ? &operands[is_forward ? 2 : 3] : nullptr;
  assert(tokens.dtype == Dtype::i32 && has_shape(tokens, work.rows, 1) && has_shape(x, work.rows, work.cols));
  assert(has_shape(wte, part.rows, work.cols) && wte.dtype == x.dtype);
  assert(!wpe || (wpe->cols == part.cols && wpe->rows >= work.seq && wpe->dtype == x.dtype));
  for (std::int64_t row = 0; row < work.rows; ++row) index_at(tokens, row, work.vocab, kWhat);
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    is_forward ? forward<T>(work, part, tokens, wte, wpe, x, documents)
               : wgrad<T>(work, part, tokens, x, wte, wpe, documents);
  });
}

}  // namespace stretto::host
