#include <algorithm>
#include <type_traits>

#include "exec/cuda/kernels/code_operands.hpp"
#include "exec/cuda/kernels/launch.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

// A thread has a scale.
__global__ void arrange_scales_kernel(exec::Codes codes, ScaleGrid grid, unsigned char* to) {
  const ScalingRule rule = codes.rule();
  const bool is_along_rows = codes.along == ScaledAlong::rows;
  const std::int64_t outer_step = rule.is_square && rule.scale_bytes == 4 ? rule.block : 1;
  const std::int64_t all = grid.padded_outer * grid.padded_inner;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t outer = i / grid.padded_inner, inner = i % grid.padded_inner;
    std::uint32_t bits = 0;
    if (outer < grid.outer && inner < grid.inner) {
      const std::int64_t first = outer * outer_step, second = inner * rule.block;
      bits = is_along_rows ? codes.scale_bits_at(first, second) : codes.scale_bits_at(second, first);
    }
    if (rule.scale_bytes == 1) {
      const std::int64_t tile = outer / 128 * (grid.padded_inner / 4) + inner / 4;
      to[tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + inner % 4] = static_cast<unsigned char>(bits);
    } else {
      const std::int64_t at = outer_step > 1 ? outer * grid.padded_inner + inner : inner * grid.padded_outer + outer;
      reinterpret_cast<std::uint32_t*>(to)[at] = bits;
    }
  }
}

// A thread has N bytes of a row.
template <int N>
__global__ void copy_codes_kernel(exec::Codes codes, std::int64_t packs, unsigned char* to, std::int64_t ld) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < codes.rows * packs;
       i += std::int64_t{gridDim.x} * blockDim.x)
    *pack_at<Pack<unsigned char, N>>(to + i / packs * ld + i % packs * N) =
        *pack_at<const Pack<unsigned char, N>>(codes.row(i / packs) + i % packs * N);
}

__global__ void multiply_factors_kernel(const float* inverse_a, const float* inverse_b, float beta, float* to) {
  if (threadIdx.x != 0) return;
  to[0] = *inverse_a * *inverse_b;
  to[1] = beta;
}

__global__ void align_factors_kernel(const float* inverse_a, const float* inverse_b, float* to) {
  if (threadIdx.x != 0) return;
  to[0] = *inverse_a;
  to[kFactor_bytes / sizeof(float)] = *inverse_b;
}

struct First {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const { out[0] = in[0]; }
};
struct Sum {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const { out[0] = in[0] + in[1]; }
};

template <class... Parameters>
dim3 blocks_of(const Stream& stream, std::int64_t threads, void (*kernel)(Parameters...)) {
  return {static_cast<unsigned>(std::min(ceil_div(threads, kThreads), resident_blocks(stream, kernel, kThreads))), 1,
          1};
}

}  // namespace

void arrange_scales(const exec::Codes& codes, void* to, const Stream& stream) {
  const ScaleGrid grid = scale_grid_of(codes.scaling, codes.along, codes.rows, codes.cols);
  launch(stream, blocks_of(stream, grid.padded_outer * grid.padded_inner, arrange_scales_kernel), {kThreads, 1, 1},
         arrange_scales_kernel, codes, grid, static_cast<unsigned char*>(to));
}

void copy_codes(const exec::Codes& codes, void* to, std::int64_t ld, const Stream& stream) {
  const std::int64_t width = codes.cols / codes.per_byte();
  const auto start = [&]<int N>(std::integral_constant<int, N>) {
    launch(stream, blocks_of(stream, codes.rows * (width / N), copy_codes_kernel<N>), {kThreads, 1, 1},
           copy_codes_kernel<N>, codes, width / N, static_cast<unsigned char*>(to), ld);
  };
  const auto is_multiple_of = [&](std::int64_t n) {
    const auto is_aligned = [&](const void* data) {
      return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(n) == 0;
    };
    return width % n == 0 && codes.ld % n == 0 && ld % n == 0 && is_aligned(codes.data) && is_aligned(to);
  };
  if (is_multiple_of(16))
    start(std::integral_constant<int, 16>{});
  else if (is_multiple_of(4))
    start(std::integral_constant<int, 4>{});
  else
    start(std::integral_constant<int, 1>{});
}

void align_factors(const float* inverse_a, const float* inverse_b, float* to, const Stream& stream) {
  launch(stream, {1, 1, 1}, {kWarp, 1, 1}, align_factors_kernel, inverse_a, inverse_b, to);
}
void add_bias(const exec::Operand& bias, const exec::Operand& c, const Stream& stream) {
  assert(bias.dtype == Dtype::f32 && c.dtype == Dtype::f32);
  map<2, 1, float, float>(stream, c.rows, c.cols, {{rows_of<const float>(c), shared_row<float>(bias)}},
                          {{rows_of<float>(c)}}, Sum{});
}

void put_rows(const exec::Operand& from, const exec::Operand& c, const Stream& stream) {
  assert(from.dtype == c.dtype && from.cols == c.cols && from.rows >= c.rows);
  with_device_type(c.dtype, [&](auto type) {
    using T = decltype(type);
    const Rows<T> to = rows_of<T>(c);
    const Rows<const T> rows{static_cast<const T*>(from.data), from.ld};
    if (c.mode == AccessMode::accumulate)
      map<2, 1, T, T>(stream, c.rows, c.cols, {{{to.data, to.ld}, rows}}, {{to}}, Sum{});
    else
      map<1, 1, T, T>(stream, c.rows, c.cols, {{rows}}, {{to}}, First{});
  });
}

void multiply_factors(const float* inverse_a, const float* inverse_b, float beta, float* to, const Stream& stream) {
  launch(stream, {1, 1, 1}, {kWarp, 1, 1}, multiply_factors_kernel, inverse_a, inverse_b, beta, to);
}

}  // namespace stretto::cuda
