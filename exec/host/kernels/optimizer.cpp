#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/bf16.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

// The scalars of one step, in the element type.
template <class T>
struct AdamWStep {
  T clip, beta1, beta2, rate, inverse_sqrt_correction2, eps, decay;
};

template <class T>
AdamWStep<T> adamw_step(const double* hyper, double norm_squared) {
  const double lr = hyper[0], weight_decay = hyper[4], clip = hyper[5];
  const double ratio = clip / (std::sqrt(norm_squared) + 1e-6);
  const bool clipped = clip > 0 && !(ratio >= 1);  // a NaN norm must reach the parameters, not be ignored
  return {.clip = static_cast<T>(clipped ? ratio : 1.0),
          .beta1 = static_cast<T>(hyper[1]),
          .beta2 = static_cast<T>(hyper[2]),
          .rate = static_cast<T>(lr / hyper[6]),
          .inverse_sqrt_correction2 = static_cast<T>(1.0 / std::sqrt(hyper[7])),
          .eps = static_cast<T>(hyper[3]),
          .decay = static_cast<T>(1.0 - lr * weight_decay)};
}

// Elements whose decay factors are written at once: enough that searching the ranges costs nothing, few enough for L1.
constexpr std::int64_t kChunk = 1024;

// Fills factors: 1 − lr·weight_decay for elements of the bucket inside a decayed range, 1 for others.
template <class T>
void fill_decay(T* factor, T decay, const std::vector<AdamW::Range>& decayed, std::int64_t bucket_begin,
                std::int64_t count) {
  std::fill_n(factor, count, T(1));
  for (const AdamW::Range& range : decayed) {
    const std::int64_t begin = std::max(range.begin - bucket_begin, std::int64_t{0});
    const std::int64_t end = std::min(range.end - bucket_begin, count);
    if (begin < end) std::fill(factor + begin, factor + end, decay);
  }
}

// Joins f32 numbers from their halves, param widened from bf16 and remainders, and cuts them in place again (AdamW).
void join(float* param, const std::int16_t* lower, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) param[i] = float_of(param[i], lower[i]);
}
void cut(float* param, std::int16_t* lower, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Halves halves = halves_of(param[i]);
    param[i] = to_float(halves.upper);
    lower[i] = halves.lower;
  }
}

template <class T>
void adamw(const AdamW& work, std::span<const Operand> operands) {
  const T* grad = data_of<T>(operands[0]);
  T* param = data_of<T>(operands[3]);
  const bool has_master = work.master && !work.remainders;
  T* master = has_master ? data_of<T>(operands[6]) : param;
  std::int16_t* lower = work.remainders ? data_of<std::int16_t>(operands[6]) : nullptr;
  T* m = data_of<T>(operands[4]);
  T* v = data_of<T>(operands[5]);
  const AdamWStep<T> step = adamw_step<T>(data_of<double>(operands[2]), *data_of<double>(operands[1]));
  alignas(64) T factor[kChunk];
  for (std::int64_t begin = 0; begin < work.elements; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, work.elements - begin);
    if constexpr (std::is_same_v<T, float>)
      if (lower != nullptr) join(param + begin, lower + begin, count);
    fill_decay(factor, step.decay, work.decayed, work.shard.value() * work.elements + begin, count);
    for_simd<T>(count, [&](std::int64_t offset, std::int64_t lanes) {
      const std::int64_t i = begin + offset;
      const Simd<T> g = load(grad + i, lanes) * step.clip;
      const Simd<T> m1 = step.beta1 * load(m + i, lanes) + (T(1) - step.beta1) * g;
      const Simd<T> m2 = step.beta2 * load(v + i, lanes) + (T(1) - step.beta2) * g.square();
      const Simd<T> update = step.rate * m1 / (m2.sqrt() * step.inverse_sqrt_correction2 + step.eps);
      const Simd<T> next = load(factor + offset, lanes) * load(master + i, lanes) - update;
      store<T>(param + i, lanes, next);
      if (has_master) store<T>(master + i, lanes, next);
      store<T>(m + i, lanes, m1);
      store<T>(v + i, lanes, m2);
    });
    if constexpr (std::is_same_v<T, float>)
      if (lower != nullptr) cut(param + begin, lower + begin, count);
  }
}

// Sixteen running sums in f64, so that the additions overlap; their order depends only on the length.
template <class T>
double sum_squares(const T* x, std::int64_t elements) {
  constexpr std::int64_t lanes = 16;
  double sum[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const double value = static_cast<double>(x[i + lane]);
      sum[lane] += value * value;
    }
  }
  for (; i < elements; ++i) sum[i % lanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double total = 0;
  for (const double part : sum) total += part;
  return total;
}

}  // namespace

void run_kernel(const AdamW& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.master ? 7u : 6u) && work.shard.value() >= 0 && work.shard.value() < work.shards);
  assert(operands[1].dtype == Dtype::f64 && operands[2].dtype == Dtype::f64 && elements_of(operands[2]) == 8);
  for (std::size_t index = 0; index < operands.size(); ++index) {
    if (index == 1 || index == 2) continue;
    assert(elements_of(operands[index]) == work.elements && is_contiguous(operands[index]));
    assert(operands[index].dtype == (index == 6 && work.remainders ? Dtype::i16 : operands[0].dtype));
    static_cast<void>(index);
  }
  with_compute_type(operands[0].dtype, [&](auto type) { adamw<decltype(type)>(work, operands); });
}

void run_kernel(const SumSquares& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && operands[1].dtype == Dtype::f64 && elements_of(operands[1]) == 1);
  assert(elements_of(operands[0]) == work.elements && is_contiguous(operands[0]));
  with_compute_type(operands[0].dtype, [&](auto type) {
    const double sum = sum_squares(data_of<const decltype(type)>(operands[0]), work.elements);
    *data_of<double>(operands[1]) += sum / double(work.copies);
  });
}

}  // namespace stretto::host
