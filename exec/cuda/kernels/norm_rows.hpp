#pragma once
// Rows and statistics, as all kernels of LayerNorm and RMSNorm read them.
#include "exec/cuda/kernels/launch.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {

// Rows of an operand. Each row is `heads` rows of `cols` elements side by side.
template <class T>
struct HeadRows {
  Rows<T> rows;
  std::int64_t heads = 1, cols = 0;
  __device__ T* row(std::int64_t i) const { return heads == 1 ? rows.row(i) : rows.row(i / heads) + i % heads * cols; }
};

// stats[rows, 2] (mean, reciprocal standard deviation) when `kCentred`, as in LayerNorm; else [rows, 1].
template <bool kCentred>
struct RowStats {
  float mean = 0, scale = 1;
  __device__ RowStats() {}
  __device__ explicit RowStats(const float* of_row) {
    if constexpr (kCentred) mean = of_row[0];
    scale = of_row[kCentred ? 1 : 0];
  }
  __device__ void write(float* of_row) const {
    if constexpr (kCentred) of_row[0] = mean;
    of_row[kCentred ? 1 : 0] = scale;
  }
};

template <class T>
HeadRows<T> heads_of(const exec::Operand& operand, std::int64_t heads) {
  return {rows_of<T>(operand), heads, operand.cols / heads};
}

}  // namespace stretto::cuda
