#include <Eigen/Core>
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/scaling.hpp"
#include "exec/code_groups.hpp"
#include "exec/host/kernels/codes.hpp"
#include "exec/host/kernels/families.hpp"

namespace stretto::host {
namespace {

// A product of codes is exact in f32, and so are codes × scales of blocks. Sums are therefore equal to the bit on every
// machine as soon as their order is: a sum goes from 0 in order of k, with Scaling::block_128 and block_128x128 over
// 128 products at a time, and these sums are added in order. BLAS orders sums by the processor, so the loops are here.

using Packet = Eigen::internal::packet_traits<float>::type;
constexpr std::int64_t kPacket = Eigen::internal::packet_traits<float>::size;
// A tile of sums stays in registers: 12 packets of 16.
constexpr std::int64_t kRows = 6, kCols = 2 * kPacket;

using Panels = std::vector<float, Eigen::aligned_allocator<float>>;

// The numbers of op(A) or op(B) in the order in which tiles read them: for every `width` rows of op(A) or columns of
// op(B), [k][width], with zeros after the last.
void pack(const Codes& codes, bool k_is_stored_column, std::int64_t width, Panels& panels) {
  const std::int64_t count = k_is_stored_column ? codes.rows : codes.cols;
  const std::int64_t k = k_is_stored_column ? codes.cols : codes.rows;
  const std::int64_t size = (count + width - 1) / width * width * k;
  if (std::ssize(panels) < size) panels.resize(static_cast<std::size_t>(size));
  thread_local std::vector<float> numbers;
  if (k_is_stored_column) {
    numbers.resize(static_cast<std::size_t>(width * k));
    for (std::int64_t first = 0; first < count; first += width) {
      const std::int64_t rows = std::min(width, count - first);
      decode(codes, first, rows, numbers.data());
      float* panel = panels.data() + first * k;
      for (std::int64_t r = 0; r < width; ++r)
        for (std::int64_t i = 0; i < k; ++i) panel[i * width + r] = r < rows ? numbers[r * k + i] : 0.0f;
    }
    return;
  }
  constexpr std::int64_t kStep = 16;  // stored rows that are decoded at once
  numbers.resize(static_cast<std::size_t>(kStep * count));
  for (std::int64_t begin = 0; begin < k; begin += kStep) {
    const std::int64_t rows = std::min(kStep, k - begin);
    decode(codes, begin, rows, numbers.data());
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t first = 0; first < count; first += width) {
        const std::int64_t columns = std::min(width, count - first);
        float* to = panels.data() + first * k + (begin + i) * width;
        std::copy_n(numbers.data() + i * count + first, columns, to);
        std::fill(to + columns, to + width, 0.0f);
      }
  }
}

// sums[kRows, kCols] of two panels, `block` products at a time.
template <std::size_t... r>
void sum_tile(const float* a, const float* b, std::int64_t k, std::int64_t block, float* sums,
              std::index_sequence<r...>) {
  namespace simd = Eigen::internal;
  const Packet zero = simd::pset1<Packet>(0);
  Packet total_left[kRows], total_right[kRows];
  for (std::int64_t begin = 0; begin < k; begin += block) {
    Packet left[kRows], right[kRows];
    ((left[r] = right[r] = zero), ...);
    const std::int64_t end = std::min(begin + block, k);
    for (std::int64_t i = begin; i < end; ++i) {
      const Packet first = simd::pload<Packet>(b + i * kCols), second = simd::pload<Packet>(b + i * kCols + kPacket);
      (([&] {
         const Packet factor = simd::pset1<Packet>(a[i * kRows + static_cast<std::int64_t>(r)]);
         left[r] = simd::pmadd(factor, first, left[r]);
         right[r] = simd::pmadd(factor, second, right[r]);
       }()),
       ...);
    }
    if (begin == 0) {
      ((total_left[r] = left[r], total_right[r] = right[r]), ...);
    } else {
      ((total_left[r] = simd::padd(total_left[r], left[r]), total_right[r] = simd::padd(total_right[r], right[r])),
       ...);
    }
  }
  ((simd::pstore(sums + r * kCols, total_left[r]), simd::pstore(sums + r * kCols + kPacket, total_right[r])), ...);
}

// Writes one row of a tile to C. The steps are loops of their own, so that no compiler makes one rounding of two.
template <class T>
void finish_row(float* sums, std::int64_t count, float factor, const T* bias, bool accumulates, T* to) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] *= factor;
  if (bias)
    for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<float>(bias[c]);
  if (accumulates)
    for (std::int64_t c = 0; c < count; ++c) to[c] += static_cast<T>(sums[c]);
  else
    for (std::int64_t c = 0; c < count; ++c) to[c] = static_cast<T>(sums[c]);
}

template <class T>
void multiply(const Gemm& work, const Panels& a, const Panels& b, std::int64_t block, float factor, const Operand* bias,
              const Operand& c) {
  alignas(64) float sums[kRows * kCols];
  for (std::int64_t col = 0; col < work.n; col += kCols) {
    const std::int64_t columns = std::min(kCols, work.n - col);
    for (std::int64_t row = 0; row < work.m; row += kRows) {
      sum_tile(a.data() + row * work.k, b.data() + col * work.k, work.k, block, sums,
               std::make_index_sequence<kRows>());
      for (std::int64_t r = 0; r < std::min(kRows, work.m - row); ++r)
        finish_row<T>(sums + r * kCols, columns, factor, bias ? data_of<T>(*bias) + col : nullptr,
                      c.mode == AccessMode::accumulate, row_of<T>(c, row + r) + col);
    }
  }
}

}  // namespace

void gemm_of_codes(const Gemm& work, std::span<const Operand> operands) {
  assert(work.epilogue == GemmEpilogue::none && work.k > 0);
  assert(operands.size() == work.c_index() + 1 && work.scaling_b != Scaling::none);
  const Codes a = exec::codes_of_a(work, operands[0]), b = exec::codes_of_b(work, operands[1]);
  thread_local Panels panels_a, panels_b;
  pack(a, !work.trans_a, kRows, panels_a);
  pack(b, work.trans_b, kCols, panels_b);
  float factor = 1;
  if (work.has_factors())
    factor = *data_of<float>(operands[work.inverse_index()]) * *data_of<float>(operands[work.inverse_index() + 1]);
  const bool by_block = a.rule().block == kBlockwise || b.rule().block == kBlockwise;
  const Operand *bias = work.bias ? &operands[2] : nullptr, &c = operands[work.c_index()];
  assert(has_shape(c, work.m, work.n) && (!bias || (elements_of(*bias) == work.n && bias->dtype == c.dtype)));
  with_compute_type(c.dtype, [&](auto type) {
    multiply<decltype(type)>(work, panels_a, panels_b, by_block ? kBlockwise : work.k, factor, bias, c);
  });
}

void grouped_gemm_of_codes(const GroupedGemm& work, std::span<const Operand> operands) {
  const exec::RowGroups groups(work.equal ? nullptr : &operands[2], work.grouped());
  groups.for_each(group_rows_of(work.scaling_a), [&](std::int64_t g, std::int64_t at, std::int64_t rows,
                                                     std::int64_t first, std::int64_t padded) {
    if (rows == 0) return;
    const exec::GroupProduct product = exec::product_of_group(work, operands, g, at, rows, first, padded);
    gemm_of_codes(product.work, product.operands);
  });
}

}  // namespace stretto::host
