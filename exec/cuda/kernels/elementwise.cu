#include "exec/cuda/kernels/activations.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

struct Gelu {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const { out[0] = gelu(in[0]); }
};
struct GeluBackward {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const { out[0] = in[0] * gelu_slope(in[1]); }
};
struct Add {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const { out[0] = in[0] + in[1]; }
};
struct BiasAdd {
  __device__ void operator()(const float (&in)[3], float (&out)[1]) const { out[0] = in[0] + (in[1] + in[2]); }
};
struct Swiglu {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const { out[0] = silu(in[0]) * in[1]; }
};
struct SwigluBackward {  // dy, gate, up → dgate, dup
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    out[0] = in[0] * in[2] * silu_slope(in[1]);
    out[1] = in[0] * silu(in[1]);
  }
};

// Adds x to sums of another type: parts of gradients that were reduced in bf16 to sums in f32.
template <class From, class T>
__global__ void add_to_sums_kernel(std::int64_t rows, std::int64_t cols, Rows<const From> x, Rows<T> sums) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y)
    sums.row(row)[col] = rounded<T>(widened(sums.row(row)[col]) + widened(x.row(row)[col]));
}

void add_to_sums(const Elementwise& e, std::span<const exec::Operand> o, const Stream& stream) {
  const Tiling t = tile(e.rows, e.cols);
  with_device_type(o[0].dtype, [&](auto from) {
    with_device_type(o[1].dtype, [&](auto to) {
      using From = decltype(from);
      using T = decltype(to);
      launch(stream, t.grid, t.block, add_to_sums_kernel<From, T>, e.rows, e.cols, rows_of<const From>(o[0]),
             rows_of<T>(o[1]));
    });
  });
}

template <class T>
void run(const Elementwise& e, std::span<const exec::Operand> o, const Stream& stream) {
  const auto in = [&](std::size_t i) { return rows_of<const T>(o[i]); };
  const auto out = [&](std::size_t i) { return rows_of<T>(o[i]); };
  // Returns the second half of a [rows, 2·cols] operand.
  const auto half = [&](auto rows) {
    rows.data += e.cols;
    return rows;
  };
  switch (e.fn) {
    case ElementwiseFn::gelu:
      return map<1, 1, T, T>(stream, e.rows, e.cols, {{in(0)}}, {{out(1)}}, Gelu{});
    case ElementwiseFn::gelu_backward:
      return map<2, 1, T, T>(stream, e.rows, e.cols, {{in(0), in(1)}}, {{out(2)}}, GeluBackward{});
    case ElementwiseFn::add:
      return map<2, 1, T, T>(stream, e.rows, e.cols, {{in(0), in(1)}}, {{out(2)}}, Add{});
    case ElementwiseFn::accumulate:
      return map<2, 1, T, T>(stream, e.rows, e.cols, {{in(0), in(1)}}, {{out(1)}}, Add{});
    case ElementwiseFn::bias_add:
      return map<3, 1, T, T>(stream, e.rows, e.cols, {{in(0), in(1), shared_row<T>(o[2])}}, {{out(3)}}, BiasAdd{});
    case ElementwiseFn::swiglu:
      return map<2, 1, T, T>(stream, e.rows, e.cols, {{in(0), in(1)}}, {{out(2)}}, Swiglu{});
    case ElementwiseFn::swiglu_backward:
      return map<3, 2, T, T>(stream, e.rows, e.cols, {{in(0), in(1), in(2)}}, {{out(3), half(out(3))}},
                             SwigluBackward{});
    case ElementwiseFn::column_sum:
      return;
  }
}

}  // namespace

void run_kernel(const Elementwise& work, std::span<const exec::Operand> operands, const Stream& stream) {
  if (work.fn == ElementwiseFn::column_sum) return run_column_sum(work, operands, stream);
  if (work.fn == ElementwiseFn::accumulate && operands[0].dtype != operands[1].dtype)
    return add_to_sums(work, operands, stream);
  with_device_type(operands[0].dtype, [&](auto type) { run<decltype(type)>(work, operands, stream); });
}

}  // namespace stretto::cuda
