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
  for_lanes<T>(cols, [&](std::int64_t i, std::int64_t count) {
    store<T>(to + i, count, load(a + i, count) + load(b + i, count));
  });
}

// `wpe` is null without positions, here and below.
template <class T>
void forward(const Embedding& work, const Operand& tokens, const Operand& wte, const Operand* wpe, const Operand& x) {
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* of_token = row_of<T>(wte, index_at(tokens, row, work.vocab, kWhat));
    if (wpe)
      add_row(row_of<T>(x, row), of_token, row_of<T>(*wpe, row % work.seq), work.cols);
    else
      std::copy_n(of_token, work.cols, row_of<T>(x, row));
  }
}

// Row after row, so a token that occurs twice always sums in the same order.
template <class T>
void wgrad(const Embedding& work, const Operand& tokens, const Operand& dx, const Operand& dwte, const Operand* dwpe) {
  for (std::int64_t row = 0; row < work.rows; ++row) {
    T* of_token = row_of<T>(dwte, index_at(tokens, row, work.vocab, kWhat));
    const T* from = row_of<T>(dx, row);
    add_row(of_token, of_token, from, work.cols);
    if (!dwpe) continue;
    T* of_position = row_of<T>(*dwpe, row % work.seq);
    add_row(of_position, of_position, from, work.cols);
  }
}

}  // namespace

void run_embedding(const Embedding& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.positions ? 4u : 3u) && work.pass != Pass::dgrad);
  const bool is_forward = work.pass == Pass::forward;
  const Operand& tokens = operands[0];
  const Operand& x = is_forward ? operands.back() : operands[1];
  const Operand& wte = is_forward ? operands[1] : operands[2];
  const Operand* wpe = work.positions ? &operands[is_forward ? 2 : 3] : nullptr;
  assert(tokens.dtype == Dtype::i32 && has_shape(tokens, work.rows, 1) && has_shape(x, work.rows, work.cols));
  assert(has_shape(wte, work.vocab, work.cols) && wte.dtype == x.dtype);
  assert(!wpe || (wpe->cols == work.cols && wpe->rows >= work.seq && wpe->dtype == x.dtype));
  for (std::int64_t row = 0; row < work.rows; ++row) index_at(tokens, row, work.vocab, kWhat);
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    is_forward ? forward<T>(work, tokens, wte, wpe, x) : wgrad<T>(work, tokens, x, wte, wpe);
  });
}

}  // namespace stretto::host
