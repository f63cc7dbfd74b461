#include <cassert>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

template <class T>
class Convolution {
 public:
  Convolution(const ShortConv& work, std::span<const Operand> operands)
      : w_(work),
        o_(operands),
        x_(operands[work.pass == Pass::forward ? 0 : 1]),
        at_(work.pass == Pass::forward ? 1 : 2),
        sums_(static_cast<std::size_t>(work.channels)) {}

  void forward() {
    for (std::int64_t row = 0; row < w_.rows; ++row) {
      sum(row);
      T* const y = row_of<T>(o_.back(), row);
      for (std::int64_t c = 0; c < w_.channels; ++c) y[c] = of(c) * sigmoid(of(c));
    }
  }

  void dgrad() {
    const Operand& dx = o_.back();
    for (std::int64_t row = 0; row < w_.rows; ++row) std::fill_n(row_of<T>(dx, row), w_.channels, T(0));
    for (std::int64_t row = 0; row < w_.rows; ++row) {
      differentiate(row);
      for_taps(row, [&](std::int64_t before, std::int64_t tap) {
        T* const to = row_of<T>(dx, before);
        for (std::int64_t c = 0; c < w_.channels; ++c) to[c] += of(c) * row_of<T>(o_[at_], c)[tap];
      });
    }
  }

  void wgrad() {
    const std::size_t to = at_ + (w_.bias ? 2 : 1);
    for (std::int64_t row = 0; row < w_.rows; ++row) {
      differentiate(row);
      for_taps(row, [&](std::int64_t before, std::int64_t tap) {
        const T* const x = row_of<T>(x_, before);
        for (std::int64_t c = 0; c < w_.channels; ++c) row_of<T>(o_[to], c)[tap] += of(c) * x[c];
      });
      if (!w_.bias) continue;
      for (std::int64_t c = 0; c < w_.channels; ++c) data_of<T>(o_[to + 1])[c] += of(c);
    }
  }

 private:
  static T sigmoid(T x) { return T(1) / (T(1) + std::exp(-x)); }
  T& of(std::int64_t channel) { return sums_[static_cast<std::size_t>(channel)]; }
  // Calls fn(row before, tap) for the taps that lie in the row's sequence.
  template <class Fn>
  void for_taps(std::int64_t row, Fn fn) const {
    const std::int64_t position = row % w_.seq;
    for (std::int64_t tap = 0; tap < w_.width; ++tap)
      if (const std::int64_t back = w_.width - 1 - tap; back <= position) fn(row - back, tap);
  }
  void sum(std::int64_t row) {
    for (std::int64_t c = 0; c < w_.channels; ++c) of(c) = w_.bias ? data_of<T>(o_[at_ + 1])[c] : T(0);
    for_taps(row, [&](std::int64_t before, std::int64_t tap) {
      const T* const x = row_of<T>(x_, before);
      for (std::int64_t c = 0; c < w_.channels; ++c) of(c) += x[c] * row_of<T>(o_[at_], c)[tap];
    });
  }
  // Makes of the sums of a row their gradients: SiLU'(c) = σ(c) · (1 + c · (1 − σ(c))).
  void differentiate(std::int64_t row) {
    sum(row);
    const T* const dy = row_of<T>(o_[0], row);
    for (std::int64_t c = 0; c < w_.channels; ++c) {
      const T s = sigmoid(of(c));
      of(c) = dy[c] * s * (T(1) + of(c) * (T(1) - s));
    }
  }

  const ShortConv& w_;
  std::span<const Operand> o_;
  const Operand& x_;
  std::size_t at_;       // index of the weight
  std::vector<T> sums_;  // of the taps of one row
};

// ln(1 + e^x)
template <class T>
T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::fabs(x)));
}

template <class T>
void gates(const LinearGates& w, std::span<const Operand> o) {
  const auto sigmoid = [](T x) { return T(1) / (T(1) + std::exp(-x)); };
  const std::size_t raw = w.pass == Pass::forward ? 0 : 2,
                    decay = raw + (w.own_rate && w.pass != Pass::wgrad ? 1 : 0);  // index of raw_decay
  const T *const a_log = data_of<T>(o[decay + 1]), *const dt_bias = data_of<T>(o[decay + 2]);
  for (std::int64_t row = 0; row < w.rows; ++row)
    for (std::int64_t head = 0; head < w.heads; ++head) {
      const auto of = [&](std::size_t i) -> T& { return row_of<T>(o[i], row)[head]; };
      const T x = of(decay) + dt_bias[head], step = softplus(x), factor = -std::exp(a_log[head]);
      if (w.pass == Pass::forward) {
        of(decay + 3) = w.own_rate ? sigmoid(of(raw)) : step;
        of(decay + 4) = factor * step;
        continue;
      }
      const T d_step = factor * of(1) + (w.own_rate ? T(0) : of(0)), d_raw = d_step * sigmoid(x);
      if (w.pass == Pass::wgrad) {
        data_of<T>(o[decay + 3])[head] += of(1) * factor * step;
        data_of<T>(o[decay + 4])[head] += d_raw;
        continue;
      }
      of(decay + 3 + (w.own_rate ? 1 : 0)) = d_raw;
      if (!w.own_rate) continue;
      const T rate = sigmoid(of(raw));
      of(decay + 3) = of(0) * rate * (T(1) - rate);
    }
}

}  // namespace

void run_kernel(const ShortConv& work, std::span<const Operand> operands) {
  assert(have_one_dtype(operands));
  with_compute_type(operands[0].dtype, [&](auto type) {
    Convolution<decltype(type)> convolution(work, operands);
    if (work.pass == Pass::forward) return convolution.forward();
    if (work.pass == Pass::dgrad) return convolution.dgrad();
    convolution.wgrad();
  });
}

void run_kernel(const LinearGates& work, std::span<const Operand> operands) {
  assert(have_one_dtype(operands));
  with_compute_type(operands[0].dtype, [&](auto type) { gates<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
