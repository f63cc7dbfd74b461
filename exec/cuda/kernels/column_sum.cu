#include "exec/cuda/kernels/column_sums.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

template <int N, class T>
struct Column {
  Rows<const T> x;
  __device__ void operator()(std::int64_t row, std::int64_t col, float (&out)[1][N]) const {
    load(out[0], x.row(row) + col);
  }
};

// out += x, where x is one row.
template <class T>
__global__ void add_row_kernel(std::int64_t cols, const T* x, float* out) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col < cols) out[col] += widened(x[col]);
}

}  // namespace

void run_column_sum(const Elementwise& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const SumOutputs<1> out{{static_cast<float*>(operands[1].data)}};
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int widest = 8 / static_cast<int>(sizeof(T));
    const Rows<const T> x = rows_of<const T>(operands[0]);
    if (work.rows == 1)
      return launch(stream, {static_cast<unsigned>(ceil_div(work.cols, kThreads)), 1, 1}, {kThreads, 1, 1},
                    add_row_kernel<T>, work.cols, x.data, out.at[0]);
    if (work.cols % widest == 0 && is_packable(x, widest))
      add_column_sums<widest, 1>(stream, work.rows, work.cols, out, Column<widest, T>{x});
    else
      add_column_sums<1, 1>(stream, work.rows, work.cols, out, Column<1, T>{x});
  });
}

}  // namespace stretto::cuda
