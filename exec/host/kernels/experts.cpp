#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <string>

#include "exec/code_groups.hpp"
#include "exec/expert_errors.hpp"
#include "exec/host/kernels/blas.hpp"
#include "exec/host/kernels/codes.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {
namespace {

// An index that another operation has made, which in a wrong schedule may be anything.
std::int64_t checked(std::int32_t index, std::int64_t end, const char* what) {
  if (index < 0 || index >= end) throw runtime_failure(exec::number_outside(what, index, end));
  return index;
}

[[noreturn]] void throw_no_room(std::int64_t rows, std::int64_t capacity) {
  throw runtime_failure(exec::no_room_at_rank("this rank", rows, capacity));
}

template <class T>
void grouped_gemm(const GroupedGemm& work, std::span<const Operand> operands) {
  const Operand &a = operands[0], &b = operands[1], &c = operands.back();
  const exec::RowGroups groups(work.equal ? nullptr : &operands[2], work.grouped());
  for (std::int64_t g = 0; g < work.groups; ++g) {
    const std::int64_t first = groups.at(g), rows = groups.size(g);
    if (rows == 0) continue;
    const std::int64_t weight = g * work.n;  // first row of its weight or gradient
    if (work.pass == Pass::forward)
      blas_gemm(false, true, rows, work.n, work.k, T(1), row_of<T>(a, first), a.ld, row_of<T>(b, weight), b.ld, T(0),
                row_of<T>(c, first), c.ld);
    else if (work.pass == Pass::dgrad)
      blas_gemm(false, false, rows, work.k, work.n, T(1), row_of<T>(a, first), a.ld, row_of<T>(b, weight), b.ld, T(0),
                row_of<T>(c, first), c.ld);
    else
      blas_gemm(true, false, work.n, work.k, rows, T(1), row_of<T>(a, first), a.ld, row_of<T>(b, first), b.ld, T(1),
                row_of<T>(c, weight), c.ld);
  }
}

// Returns the row of a copy, or -1.
std::int64_t row_of_copy(const Permute& work, const Operand& positions, std::int64_t token, std::int64_t copy) {
  const std::int32_t at = row_of<std::int32_t>(positions, token)[copy];
  return at == -1 && work.rows > 0 ? -1 : checked(at, work.matrix_rows(), "position");
}

template <class T>
void copy_to_rows(const Permute& work, const Operand& positions, const Operand& x, const Operand& rows) {
  if (work.padded)
    for (std::int64_t row = 0; row < work.matrix_rows(); ++row) std::fill_n(row_of<T>(rows, row), work.cols, T(0));
  for (std::int64_t token = 0; token < work.tokens; ++token)
    for (std::int64_t j = 0; j < work.copies; ++j) {
      const std::int64_t at = row_of_copy(work, positions, token, j);
      if (at < 0) continue;
      std::copy_n(row_of<T>(x, token) + (work.apart ? j * work.cols : 0), work.cols, row_of<T>(rows, at));
    }
}

// Copies of a token are added up in the order of their experts.
template <class T>
void sum_to_tokens(const Permute& work, const Operand& positions, const Operand& rows, const Operand& x) {
  for (std::int64_t token = 0; token < work.tokens; ++token) {
    bool adds = x.mode == AccessMode::accumulate;
    if (!adds && work.rows > 0) std::fill_n(row_of<T>(x, token), work.x_cols(), T(0));
    for (std::int64_t j = 0; j < work.copies; ++j) {
      const std::int64_t at = row_of_copy(work, positions, token, j);
      if (at < 0) continue;
      const T* from = row_of<T>(rows, at);
      T* to = row_of<T>(x, token) + (work.apart ? j * work.cols : 0);
      if (!adds)
        std::copy_n(from, work.cols, to);
      else
        for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
          store<T>(to + i, count, load(to + i, count) + load(from + i, count));
        });
      if (!work.apart) adds = true;
    }
  }
}

// The activation without its factor is dense MLPs' own, row by row.
template <class T>
struct Row {
  Operand of(T* data, std::int64_t cols, AccessMode mode) const {
    return {data, sizeof(T) == 8 ? Dtype::f64 : Dtype::f32, 1, cols, cols, mode};
  }
};

template <class T>
void weighted_activation(const WeightedActivation& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  std::int64_t rows = work.rows;
  if (work.capacity > 0) {
    rows = exec::RowGroups(&operands.front(), {work.groups, work.rows, work.capacity, false}).at(work.groups);
    operands = operands.subspan(1);
  }
  const Operand &x = operands[is_forward ? 0 : 1], &p = operands[is_forward ? 1 : 2];
  const Row<T> row_operand;
  T* const scratch = thread_scratch<T>(work.cols);
  const auto apply = [&](bool backward, T* dy, T* from, T* to) {
    const ElementwiseFn fn = work.gated ? backward ? ElementwiseFn::swiglu_backward : ElementwiseFn::swiglu
                             : backward ? ElementwiseFn::gelu_backward
                                        : ElementwiseFn::gelu;
    std::array<Operand, 4> list;
    std::size_t count = 0;
    if (backward) list[count++] = row_operand.of(dy, work.cols, AccessMode::read);
    list[count++] = row_operand.of(from, work.cols, AccessMode::read);
    if (work.gated) list[count++] = row_operand.of(from + work.cols, work.cols, AccessMode::read);
    list[count++] = row_operand.of(to, backward ? work.in_cols() : work.cols, AccessMode::write);
    run_kernel(Elementwise{fn, 1, work.cols}, std::span<const Operand>(list.data(), count));
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    const T weight = *row_of<T>(p, row);
    T* from = row_of<T>(x, row);
    if (is_forward) {
      T* to = row_of<T>(operands[2], row);
      apply(false, nullptr, from, to);
      row_scale(to, work.cols, weight);
      continue;
    }
    T* dy = row_of<T>(operands[0], row);
    apply(false, nullptr, from, scratch);
    T sum = 0;
    for (std::int64_t i = 0; i < work.cols; ++i) sum += dy[i] * scratch[i];
    *row_of<T>(operands[4], row) = sum;
    std::copy_n(dy, work.cols, scratch);
    row_scale(scratch, work.cols, weight);
    apply(true, scratch, from, row_of<T>(operands[3], row));
  }
}

template <class T>
void gate_rows(const GateRows& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  const Operand &x = operands[is_forward ? 0 : 1], &logits = operands[is_forward ? 1 : 2];
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T gate = T(1) / (T(1) + std::exp(-*row_of<T>(logits, row)));
    const T* from = row_of<T>(x, row);
    if (is_forward) {
      std::copy_n(from, work.cols, row_of<T>(operands[2], row));
      row_scale(row_of<T>(operands[2], row), work.cols, gate);
      continue;
    }
    const T* dy = row_of<T>(operands[0], row);
    T sum = 0;
    for (std::int64_t i = 0; i < work.cols; ++i) sum += dy[i] * from[i];
    std::copy_n(dy, work.cols, row_of<T>(operands[3], row));
    row_scale(row_of<T>(operands[3], row), work.cols, gate);
    *row_of<T>(operands[4], row) = sum * gate * (T(1) - gate);
  }
}

// Rows of one rank for one expert: their number, and where they begin by rank and by expert.
struct Chunk {
  std::int64_t rows = 0, received = 0, sorted = 0;
};

// Calls visit(expert, chunk) for each of the local experts and each rank, expert by expert.
template <class Work, class Visit>
void for_each_chunk(const Work& work, const Operand& all, const Visit& visit) {
  const std::int64_t first = work.first.value();
  if constexpr (requires { work.each; })
    if (work.each > 0) {
      for (std::int64_t expert = 0; expert < work.local; ++expert)
        for (std::int64_t rank = 0; rank < work.ranks; ++rank)
          visit(expert,
                Chunk{work.each, (rank * work.local + expert) * work.each, (expert * work.ranks + rank) * work.each});
      return;
    }
  const auto begin = [&](std::int64_t rank, std::int64_t expert) -> std::int64_t {
    const std::int32_t* offsets = static_cast<const std::int32_t*>(all.data) + rank * (work.experts + 1);
    return checked(offsets[expert], std::int64_t{1} << 31, "offset");
  };
  const auto size = [&](std::int64_t rank, std::int64_t from, std::int64_t to) {
    const std::int64_t rows = begin(rank, to) - begin(rank, from);
    if (rows < 0) throw runtime_failure(exec::kOffsetsDescend);
    return rows;
  };
  std::int64_t sorted = 0;
  for (std::int64_t expert = 0; expert < work.local; ++expert) {
    std::int64_t before = 0;  // rows of ranks before this one, for all local experts
    for (std::int64_t rank = 0; rank < work.ranks; ++rank) {
      const Chunk chunk{size(rank, first + expert, first + expert + 1), before + size(rank, first, first + expert),
                        sorted};
      visit(expert, chunk);
      sorted += chunk.rows;
      before += size(rank, first, first + work.local);
    }
  }
}

}  // namespace

void run_kernel(const CountRows& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && operands[0].rows * operands[0].cols == work.ranks * (work.experts + 1));
  std::int64_t rows = 0;
  for_each_chunk(work, operands[0], [&](std::int64_t, const Chunk& chunk) { rows += chunk.rows; });
  if (rows > work.capacity) throw_no_room(rows, work.capacity);
  auto* offsets = static_cast<std::int32_t*>(operands[1].data);
  std::fill_n(offsets, work.local + 1, 0);
  for_each_chunk(work, operands[0], [&](std::int64_t expert, const Chunk& chunk) {
    offsets[expert + 1] = static_cast<std::int32_t>(chunk.sorted + chunk.rows);
  });
}

void run_kernel(const SortByExpert& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  const std::size_t at = work.each > 0 ? 0 : 1;
  const Operand &received = operands[is_forward ? at : at + 1], &sorted = operands[is_forward ? at + 1 : at];
  assert(operands.size() == at + 2 && have_one_dtype(operands.subspan(at)));
  assert(has_shape(received, work.capacity, work.cols) && has_shape(sorted, work.capacity, work.cols));
  const auto copy = [&](auto type) {
    using T = decltype(type);
    for_each_chunk(work, operands[0], [&](std::int64_t, const Chunk& chunk) {
      if (std::max(chunk.received, chunk.sorted) + chunk.rows > work.capacity)
        throw runtime_failure("experts: rows leave their buffer");
      for (std::int64_t row = 0; row < chunk.rows; ++row) {
        T *there = row_of<T>(received, chunk.received + row), *here = row_of<T>(sorted, chunk.sorted + row);
        std::copy_n(is_forward ? there : here, work.cols, is_forward ? here : there);
      }
    });
  };
  if (is_code(received.dtype)) return copy(std::uint8_t{});
  with_compute_type(received.dtype, copy);
}

void run_kernel(const SortTokens& work, std::span<const Operand> operands) {
  const std::int64_t here = work.experts_here(), first = work.local > 0 ? work.first.value() : 0;
  assert(operands.size() == (work.each > 0 ? 2u : 3u) && has_shape(operands[0], work.rows, work.topk));
  assert(work.each > 0 || has_shape(operands[1], 1, here + 1));
  assert(has_shape(operands.back(), work.rows, work.topk));
  // Which of the experts here it is; outside [0, here): none of them.
  const auto expert = [&](std::int64_t row, std::int64_t j) {
    return checked(row_of<std::int32_t>(operands[0], row)[j], work.experts, "index") - first;
  };
  const auto for_each = [&](auto visit) {
    for (std::int64_t row = 0; row < work.rows; ++row)
      for (std::int64_t j = 0; j < work.topk; ++j) visit(row, j);
  };
  // Checked before anything is written.
  for_each(expert);
  std::int32_t* begin = thread_scratch<std::int32_t>(here + 1);
  std::fill_n(begin, here + 1, 0);
  for_each([&](std::int64_t row, std::int64_t j) {
    if (const std::int64_t e = expert(row, j); e >= 0 && e < here) ++begin[e + 1];
  });
  if (work.each > 0) {
    for (std::int64_t e = 0; e < here; ++e)
      if (begin[e + 1] > work.each) throw runtime_failure(exec::no_room_at_expert(first + e, begin[e + 1], work.each));
    for (std::int64_t e = 0; e <= here; ++e) begin[e] = static_cast<std::int32_t>(e * work.each);
  } else {
    for (std::int64_t e = 0; e < here; ++e) begin[e + 1] += begin[e];
    if (work.local > 0 && begin[here] > work.capacity) throw_no_room(begin[here], work.capacity);
    std::copy_n(begin, here + 1, row_of<std::int32_t>(operands[1], 0));
  }
  for_each([&](std::int64_t row, std::int64_t j) {
    const std::int64_t e = expert(row, j);
    row_of<std::int32_t>(operands.back(), row)[j] = e >= 0 && e < here ? begin[e]++ : -1;
  });
}

void run_kernel(const Permute& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  const Operand &x = operands[is_forward ? 1 : 2], &rows = operands[is_forward ? 2 : 1];
  assert(operands.size() == 3 && has_shape(operands[0], work.tokens, work.copies));
  assert(has_shape(x, work.tokens, work.x_cols()) && has_shape(rows, work.matrix_rows(), work.cols));
  if (is_code(x.dtype)) return copy_to_rows<std::uint8_t>(work, operands[0], x, rows);
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    if (is_forward)
      copy_to_rows<T>(work, operands[0], x, rows);
    else
      sum_to_tokens<T>(work, operands[0], rows, x);
  });
}

void run_kernel(const GroupedGemm& work, std::span<const Operand> operands) {
  if (work.has_codes()) return grouped_gemm_of_codes(work, operands);
  assert(work.equal ? operands.size() == 3 : operands.size() == 4 && has_shape(operands[2], 1, work.groups + 1));
  const Dtype type_of_all = operands.back().dtype;
  assert(operands[0].dtype == type_of_all && operands[1].dtype == type_of_all);
  with_compute_type(type_of_all, [&](auto type) { grouped_gemm<decltype(type)>(work, operands); });
}

void run_kernel(const WeightedActivation& work, std::span<const Operand> operands) {
  const std::span<const Operand> values = operands.subspan(work.capacity > 0 ? 1 : 0);
  assert(values.size() == (work.pass == Pass::forward ? 3u : 5u) && have_one_dtype(values));
  with_compute_type(values[0].dtype, [&](auto type) { weighted_activation<decltype(type)>(work, operands); });
}

void run_kernel(const GateRows& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.pass == Pass::forward ? 3u : 5u) && have_one_dtype(operands));
  with_compute_type(operands[0].dtype, [&](auto type) { gate_rows<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
