#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

// Cosines and sines of the pairs of a rope part at one position, times the factor of turned elements.
template <class T>
struct Turn {
  const LatentHeads& work;
  std::vector<double> frequencies;
  std::vector<T> cos, sin;

  explicit Turn(const LatentHeads& heads) : work(heads) {
    for (std::int64_t i = 0; i < work.rope / 2; ++i)
      frequencies.push_back(work.yarn.frequency(i, work.rope, work.base));
    cos.resize(frequencies.size());
    sin.resize(frequencies.size());
  }
  void move_to(std::int64_t position) {
    const double factor = work.yarn.of_elements(), direction = work.pass == Pass::forward ? 1 : -1;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = double(position) * frequencies[i];
      cos[i] = static_cast<T>(factor * std::cos(angle));
      sin[i] = static_cast<T>(factor * direction * std::sin(angle));
    }
  }
  void apply(T* part) const {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const T a = part[2 * i], b = part[2 * i + 1];
      part[2 * i] = a * cos[i] - b * sin[i];
      part[2 * i + 1] = b * cos[i] + a * sin[i];
    }
  }
};

template <class T>
void latent_heads(const LatentHeads& work, std::span<const Operand> o) {
  const std::int64_t nope = work.nope, rope = work.rope, value = work.value, width = nope + rope;
  Turn<T> turn(work);
  std::vector<T> key(static_cast<std::size_t>(rope));
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const std::int64_t position = row % work.seq;
    turn.move_to(work.by_document ? position - row_of<std::int32_t>(o[4], row / work.seq)[position] : position);
    T* const q = row_of<T>(o[1 + (work.pass == Pass::forward)], row);
    for (std::int64_t head = 0; head < work.heads; ++head) turn.apply(q + head * width + nope);
    if (work.pass == Pass::forward) {
      const T* up = row_of<T>(o[0], row);
      T *to_key = row_of<T>(o[3], row), *to_value = to_key + work.q_cols();
      std::copy_n(row_of<T>(o[1], row), rope, key.begin());
      turn.apply(key.data());
      for (std::int64_t head = 0; head < work.heads; ++head) {
        to_key = std::copy_n(up, nope, to_key);
        to_key = std::copy(key.begin(), key.end(), to_key);
        to_value = std::copy_n(up + nope, value, to_value);
        up += nope + value;
      }
    } else {
      const T *d_key = row_of<T>(o[0], row), *d_value = d_key + work.q_cols();
      T* d_up = row_of<T>(o[2], row);
      std::fill(key.begin(), key.end(), T(0));
      for (std::int64_t head = 0; head < work.heads; ++head, d_key += width, d_value += value) {
        d_up = std::copy_n(d_key, nope, d_up);
        d_up = std::copy_n(d_value, value, d_up);
        for (std::int64_t i = 0; i < rope; ++i) key[static_cast<std::size_t>(i)] += d_key[nope + i];
      }
      turn.apply(key.data());
      std::copy(key.begin(), key.end(), row_of<T>(o[3], row));
    }
  }
}

}  // namespace

void run_kernel(const LatentHeads& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  assert(operands.size() == (work.by_document ? 5u : 4u) && (is_forward || work.pass == Pass::dgrad) &&
         work.rope % 2 == 0);
  assert(have_one_dtype(operands.first(4)));
  [[maybe_unused]] const std::int64_t cols[] = {
      is_forward ? work.up_cols() : work.kv_cols(), is_forward ? work.rope : work.q_cols(),
      is_forward ? work.q_cols() : work.up_cols(), is_forward ? work.kv_cols() : work.rope};
  for (std::size_t i = 0; i < 4; ++i) assert(has_shape(operands[i], work.rows, cols[i]));
  with_compute_type(operands[0].dtype, [&](auto type) { latent_heads<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
