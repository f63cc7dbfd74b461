#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

constexpr const char* kWhat = "cross-entropy: target";

// Returns the target of a row, kNoTarget where `masked` allows it.
std::int32_t target_at(const Operand& targets, std::int64_t row, std::int64_t classes, bool masked) {
  if (masked && *row_of<std::int32_t>(targets, row) == kNoTarget) return kNoTarget;
  return index_at(targets, row, classes, kWhat);
}

// The classes among the columns of one shard's slice, and the place of a target among them.
struct Slice {
  std::int64_t begin = 0, classes = 0;
  Slice(const Expr& first, std::int64_t cols, std::int64_t all)
      : begin(first.value()), classes(std::clamp<std::int64_t>(all - begin, 0, cols)) {}
  bool holds(std::int64_t target) const { return target >= begin && target < begin + classes; }
};

// Statistics of one row over all shards, from their stats [3, rows]: max, Σ exp(x − max), logit of the target.
template <class T>
struct RowStats {
  T top = -std::numeric_limits<T>::infinity(), sum = 0, target = 0;
  RowStats(const Operand& stats, std::int64_t rows, std::int64_t row) {
    for (std::int64_t s = 0; s < stats.rows; ++s) {
      const T theirs = row_of<T>(stats, s)[row];
      if (!(theirs <= top)) top = theirs;  // keeps a NaN
    }
    for (std::int64_t s = 0; s < stats.rows; ++s) {
      const T* of_shard = row_of<T>(stats, s);
      if (of_shard[rows + row] != 0) sum += of_shard[rows + row] * std::exp(of_shard[row] - top);
      target += of_shard[2 * rows + row];
    }
  }
};

// row ← work.scale · (softmax − onehot), from its exponentials; padding ← 0. The scale has the loss's weight in it,
// here and below.
template <class T>
void finish_row(T* x, const Slice& slice, const CrossEntropy& work, std::int64_t target, T sum) {
  row_scale(x, slice.classes, static_cast<T>(work.scale) / sum);
  if (slice.holds(target)) x[target - slice.begin] -= static_cast<T>(work.scale);
  std::fill(x + slice.classes, x + work.cols, T(0));
}

template <class T>
double sum_nll(const CrossEntropy& work, const Operand& logits, const Operand& targets) {
  const Slice slice(0, work.cols, work.classes);
  double nll = 0;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    T* x = row_of<T>(logits, row);
    const std::int32_t target = target_at(targets, row, work.classes, work.masked);
    if (target == kNoTarget) {
      std::fill_n(x, work.cols, T(0));
      continue;
    }
    const T top = row_max(x, slice.classes);
    const double shifted = static_cast<double>(x[target]) - static_cast<double>(top);
    const T sum = row_exp(x, slice.classes, top);
    nll += std::log(static_cast<double>(sum)) - shifted;
    finish_row(x, slice, work, target, sum);
  }
  return nll;
}

template <class T>
double sum_nll(const CrossEntropy& work, const Operand& logits, const Operand& targets, const Operand& stats) {
  const Slice slice(work.first_class, work.cols, work.classes);
  double nll = 0;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    T* x = row_of<T>(logits, row);
    const std::int32_t target = target_at(targets, row, work.classes, work.masked);
    if (target == kNoTarget) {
      std::fill_n(x, work.cols, T(0));
      continue;
    }
    const RowStats<T> all(stats, work.rows, row);
    if (slice.classes > 0) row_exp(x, slice.classes, all.top);
    nll += std::log(static_cast<double>(all.sum)) - (static_cast<double>(all.target) - static_cast<double>(all.top));
    finish_row(x, slice, work, target, all.sum);
  }
  return nll;
}

template <class T>
void write_stats(const VocabStats& work, const Operand& logits, const Operand& targets, T* stats) {
  const Slice slice(work.first_class, work.cols, work.classes);
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* x = row_of<T>(logits, row);
    const std::int32_t target = target_at(targets, row, work.classes, work.masked);
    T top = -std::numeric_limits<T>::infinity(), sum = 0;
    if (slice.classes > 0) {
      top = row_max(x, slice.classes);
      Simd<T> sums = Simd<T>::Zero();
      for_simd<T>(slice.classes, [&](std::int64_t i, std::int64_t count) {
        Simd<T> y = (load(x + i, count, top) - top).exp();
        if (count < kSimdWidth<T>) y.tail(kSimdWidth<T> - count).setZero();
        sums += y;
      });
      sum = sums.sum();
    }
    stats[row] = top;
    stats[work.rows + row] = sum;
    stats[2 * work.rows + row] = slice.holds(target) ? x[target - slice.begin] : T(0);
  }
}

void check_targets(const Operand& targets, std::int64_t rows, std::int64_t classes, bool masked) {
  assert(targets.dtype == Dtype::i32 && has_shape(targets, rows, 1));
  for (std::int64_t row = 0; row < rows; ++row) target_at(targets, row, classes, masked);
}

}  // namespace

void run_kernel(const CrossEntropy& given, std::span<const Operand> operands) {
  assert(operands.size() == (given.shards > 1 ? 4u : 3u) + given.masked);
  CrossEntropy work = given;
  if (work.masked) work.scale *= *data_of<double>(operands[operands.size() - 2]);
  const Operand& logits = operands[0];
  const Operand& targets = operands[1];
  const Operand& loss = operands.back();
  assert(has_shape(logits, work.rows, work.cols));
  assert(loss.dtype == Dtype::f64 && elements_of(loss) == 1);
  check_targets(targets, work.rows, work.classes, work.masked);
  with_compute_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const double nll =
        work.shards > 1 ? sum_nll<T>(work, logits, targets, operands[2]) : sum_nll<T>(work, logits, targets);
    *data_of<double>(loss) += work.scale / double(work.shards) * nll;
  });
}

void run_kernel(const VocabStats& work, std::span<const Operand> operands) {
  assert(operands.size() == 3 && has_shape(operands[0], work.rows, work.cols));
  assert(elements_of(operands[2]) == 3 * work.rows && is_contiguous(operands[2]));
  check_targets(operands[1], work.rows, work.classes, work.masked);
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    write_stats<T>(work, operands[0], operands[1], data_of<T>(operands[2]));
  });
}

}  // namespace stretto::host
