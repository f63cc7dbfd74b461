// The heads of multi-latent attention: a block for each row, whose pairs all turn by that row's angles.
#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

constexpr int kMostPairs = 256;  // of a rope part

// The angles, in radians per token, by which pairs turn; computed on the host, in f64 so that far positions keep their
// digits.
struct Frequencies {
  double of[kMostPairs];
  float factor;  // of turned elements
};

struct Sizes {
  std::int64_t heads, seq;
  int nope, pairs, value;
  __device__ int rope() const { return 2 * pairs; }
  __device__ int width() const { return nope + rope(); }
  __device__ std::int64_t q_cols() const { return heads * width(); }
};

// Turns neighbours by a row's angles, or back.
struct Turn {
  const float *cos_of, *sin_of;
  __device__ void operator()(int pair, float& a, float& b) const {
    const float c = cos_of[pair], s = sin_of[pair], first = a;
    a = first * c - b * s;
    b = b * c + first * s;
  }
};

// All threads of the block must call it.
__device__ inline Turn turn_at(std::int64_t position, int pairs, float direction, const Frequencies& frequencies) {
  __shared__ float cos_of[kMostPairs], sin_of[kMostPairs];
  __syncthreads();  // threads may still be turning by the angles before
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += static_cast<int>(blockDim.x)) {
    const double angle = static_cast<double>(position) * frequencies.of[i];
    constexpr double turn = 6.283185307179586;
    const auto small = static_cast<float>(angle - turn * floor(angle / turn));
    cos_of[i] = frequencies.factor * cosf(small);
    sin_of[i] = frequencies.factor * direction * sinf(small);
  }
  __syncthreads();
  return {cos_of, sin_of};
}

// Calls fn(head, i) for i < width of all heads.
template <class Fn>
__device__ void for_heads(std::int64_t heads, int width, Fn fn) {
  const std::int64_t all = heads * width;
  for (std::int64_t i = threadIdx.x; i < all; i += blockDim.x) fn(i / width, static_cast<int>(i % width));
}

template <class T>
__device__ void turn_queries(const Sizes& s, const Turn& turn, T* q) {
  for_heads(s.heads, s.pairs, [&](std::int64_t head, int pair) {
    T* at = q + head * s.width() + s.nope + 2 * pair;
    float a = widened(at[0]), b = widened(at[1]);
    turn(pair, a, b);
    at[0] = rounded<T>(a);
    at[1] = rounded<T>(b);
  });
}

template <class T>
__global__ void latent_heads_kernel(Sizes s, Frequencies frequencies, Rows<const T> ups, Rows<const T> keys, Rows<T> qs,
                                    Rows<T> kvs) {
  const std::int64_t row = blockIdx.x;
  const Turn turn = turn_at(row % s.seq, s.pairs, 1.0f, frequencies);
  turn_queries(s, turn, qs.row(row));
  const T *up = ups.row(row), *key = keys.row(row);
  T *to_key = kvs.row(row), *to_value = to_key + s.q_cols();
  for_heads(s.heads, s.nope + s.value, [&](std::int64_t head, int i) {
    const T x = up[head * (s.nope + s.value) + i];
    if (i < s.nope)
      to_key[head * s.width() + i] = x;
    else
      to_value[head * s.value + i - s.nope] = x;
  });
  for_heads(s.heads, s.pairs, [&](std::int64_t head, int pair) {
    float a = widened(key[2 * pair]), b = widened(key[2 * pair + 1]);
    turn(pair, a, b);
    T* at = to_key + head * s.width() + s.nope + 2 * pair;
    at[0] = rounded<T>(a);
    at[1] = rounded<T>(b);
  });
}

template <class T>
__global__ void latent_heads_gradient_kernel(Sizes s, Frequencies frequencies, Rows<const T> d_kvs, Rows<T> d_qs,
                                             Rows<T> d_ups, Rows<T> d_keys) {
  const std::int64_t row = blockIdx.x;
  const Turn turn = turn_at(row % s.seq, s.pairs, -1.0f, frequencies);
  turn_queries(s, turn, d_qs.row(row));
  const T *d_key = d_kvs.row(row), *d_value = d_key + s.q_cols();
  T *d_up = d_ups.row(row), *to_key = d_keys.row(row);
  for_heads(s.heads, s.nope + s.value, [&](std::int64_t head, int i) {
    d_up[head * (s.nope + s.value) + i] =
        i < s.nope ? d_key[head * s.width() + i] : d_value[head * s.value + i - s.nope];
  });
  // The key is one for all heads: the sum of their gradients, in the order of the heads.
  for (int pair = static_cast<int>(threadIdx.x); pair < s.pairs; pair += static_cast<int>(blockDim.x)) {
    float a = 0, b = 0;
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const T* at = d_key + head * s.width() + s.nope + 2 * pair;
      a += widened(at[0]);
      b += widened(at[1]);
    }
    turn(pair, a, b);
    to_key[2 * pair] = rounded<T>(a);
    to_key[2 * pair + 1] = rounded<T>(b);
  }
}

}  // namespace

void run_kernel(const LatentHeads& work, std::span<const exec::Operand> o, const Stream& stream) {
  if (work.rope > 2 * kMostPairs)
    throw runtime_failure("kernels of latent attention are for rope parts of up to " + std::to_string(2 * kMostPairs) +
                          ", not " + std::to_string(work.rope));
  Frequencies frequencies{};
  for (std::int64_t i = 0; i < work.rope / 2; ++i) frequencies.of[i] = work.yarn.frequency(i, work.rope, work.base);
  frequencies.factor = static_cast<float>(work.yarn.of_elements());
  const Sizes sizes{work.heads, work.seq, static_cast<int>(work.nope), static_cast<int>(work.rope / 2),
                    static_cast<int>(work.value)};
  const dim3 grid{static_cast<unsigned>(work.rows), 1, 1}, block{kThreads, 1, 1};
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    if (work.pass == Pass::forward)
      return launch(stream, grid, block, latent_heads_kernel<T>, sizes, frequencies, rows_of<const T>(o[0]),
                    rows_of<const T>(o[1]), rows_of<T>(o[2]), rows_of<T>(o[3]));
    launch(stream, grid, block, latent_heads_gradient_kernel<T>, sizes, frequencies, rows_of<const T>(o[0]),
           rows_of<T>(o[1]), rows_of<T>(o[2]), rows_of<T>(o[3]));
  });
}

}  // namespace stretto::cuda
