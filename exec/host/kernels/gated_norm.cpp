#include <cassert>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

template <class T>
void gated_norm(const GatedNorm& w, std::span<const Operand> o) {
  const std::size_t at = w.pass == Pass::forward ? 0 : 1;  // index of x
  const auto n = static_cast<std::size_t>(w.cols);
  std::vector<T> sigmoid(n), in(n), d(n);  // in: what is normalised; d: the gradient of in / root
  for (std::int64_t row = 0; row < w.rows; ++row)
    for (std::int64_t group = 0; group < w.groups; ++group) {
      const std::int64_t first = group * w.cols;
      const T *const x = row_of<T>(o[at], row) + first, *const z = row_of<T>(o[at + 1], row) + first;
      T squares = 0;
      for (std::size_t i = 0; i < n; ++i) {
        sigmoid[i] = T(1) / (T(1) + std::exp(-z[i]));
        in[i] = w.gate_first ? x[i] * z[i] * sigmoid[i] : x[i];
        squares += in[i] * in[i];
      }
      const T inverse = T(1) / std::sqrt(squares / T(w.cols) + T(w.epsilon));
      T* const weight = data_of<T>(o[w.pass == Pass::wgrad ? 3 : at + 2]) + (w.gate_first ? first : 0);
      if (w.pass == Pass::forward) {
        T* const y = row_of<T>(o[3], row) + first;
        for (std::size_t i = 0; i < n; ++i)
          y[i] = in[i] * inverse * weight[i] * (w.gate_first ? T(1) : z[i] * sigmoid[i]);
        continue;
      }
      const T* const dy = row_of<T>(o[0], row) + first;
      if (w.pass == Pass::wgrad) {
        for (std::size_t i = 0; i < n; ++i)
          weight[i] += dy[i] * in[i] * inverse * (w.gate_first ? T(1) : z[i] * sigmoid[i]);
        continue;
      }
      T along = 0;
      for (std::size_t i = 0; i < n; ++i) {
        d[i] = dy[i] * weight[i] * (w.gate_first ? T(1) : z[i] * sigmoid[i]);
        along += d[i] * in[i];
      }
      along *= inverse * inverse / T(w.cols);
      T *const dx = row_of<T>(o[4], row) + first, *const dz = row_of<T>(o[5], row) + first;
      for (std::size_t i = 0; i < n; ++i) {
        const T d_in = inverse * (d[i] - in[i] * along), of_gate = sigmoid[i] * (T(1) + z[i] * (T(1) - sigmoid[i])),
                gate = z[i] * sigmoid[i];
        const T plain = x[i];
        dx[i] = w.gate_first ? d_in * gate : d_in;
        dz[i] = of_gate * (w.gate_first ? d_in * plain : dy[i] * in[i] * inverse * weight[i]);
      }
    }
}

}  // namespace

void run_kernel(const GatedNorm& work, std::span<const Operand> operands) {
  assert(have_one_dtype(operands));
  with_compute_type(operands[0].dtype, [&](auto type) { gated_norm<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
