#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/bf16.hpp"
#include "base/scaling.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {

// The largest magnitude of the numbers that were added; NaN when one is NaN. Magnitudes are compared as whole numbers,
// whose order is that of the f32 they are the bits of, with the NaNs last.
class Magnitude {
 public:
  void add(const float* x, std::int64_t count) {
    std::uint32_t largest = bits_;
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, bits_of(x[i]));
    bits_ = largest;
  }
  float largest() const { return std::bit_cast<float>(bits_); }
  static std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

 private:
  std::uint32_t bits_ = 0;
};

// Writes rows [first, first + count) of x, of any floating type, to rows[count, x.cols].
inline void read_rows(const Operand& x, std::int64_t first, std::int64_t count, float* rows) {
  for (std::int64_t r = 0; r < count; ++r) {
    float* to = rows + r * x.cols;
    if (x.dtype == Dtype::bf16) {
      const Bf16* from = row_of<Bf16>(x, first + r);
      for (std::int64_t c = 0; c < x.cols; ++c) to[c] = to_float(from[c]);
    } else {
      with_compute_type(x.dtype, [&](auto type) {
        const auto* from = row_of<decltype(type)>(x, first + r);
        for (std::int64_t c = 0; c < x.cols; ++c) to[c] = static_cast<float>(from[c]);
      });
    }
  }
}

// hadamard16 (base/scaling.hpp) of each column of x[16, cols]. x and y do not overlap.
inline void hadamard_down_columns(const float* x, std::int64_t cols, float* y) {
  constexpr std::int64_t kColumns = 64;  // sums of this many columns stay in registers or L1
  for (std::int64_t begin = 0; begin < cols; begin += kColumns) {
    const std::int64_t count = std::min(kColumns, cols - begin);
    for (std::size_t j = 0; j < kNvBlock; ++j) {
      float sums[kColumns] = {};
      for (std::size_t i = 0; i < kNvBlock; ++i) {
        const float factor = kSignedHadamard[i][j];
        const float* from = x + static_cast<std::int64_t>(i) * cols + begin;
        for (std::int64_t c = 0; c < count; ++c) sums[c] += factor * from[c];
      }
      float* to = y + static_cast<std::int64_t>(j) * cols + begin;
      for (std::int64_t c = 0; c < count; ++c) to[c] = to_float(to_bf16(sums[c] * 0.25f));
    }
  }
}

}  // namespace stretto::host
