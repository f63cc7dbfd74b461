#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/positions.hpp"

namespace stretto::cuda {
namespace {

// Each thread turns the pair (i, i + half) of every head of one row: the angle, in f64 so that far positions keep their
// digits, is computed only once.
template <class T>
__global__ void rope_kernel(std::int64_t rows, int half, int turned, Positions positions, double log2_base,
                            RopeScaling scaling, float direction, Rows<T> qkv) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= half) return;
  const double step = scaling.applied_to(exp2(-log2_base * i / half));
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const double angle = static_cast<double>(positions.of(row)) * step;
    constexpr double turn = 6.283185307179586;
    const auto small = static_cast<float>(angle - turn * floor(angle / turn));
    const float c = cosf(small), s = direction * sinf(small);
    T* head = qkv.row(row) + i;
    for (int h = 0; h < turned; ++h, head += 2 * half) {
      const float a = widened(head[0]), b = widened(head[half]);
      head[0] = rounded<T>(a * c - b * s);
      head[half] = rounded<T>(b * c + a * s);
    }
  }
}

}  // namespace

void run_kernel(const Rope& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const std::int64_t half = work.head_dim / 2;
  const Tiling t = tile(work.rows, half);
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, t.grid, t.block, rope_kernel<T>, work.rows, static_cast<int>(half),
           static_cast<int>(work.heads + work.kv_heads), Positions(work.parts, work.seq), std::log2(work.base),
           work.scaling, work.pass == Pass::forward ? 1.0f : -1.0f, rows_of<T>(operands[0]));
  });
}

}  // namespace stretto::cuda
