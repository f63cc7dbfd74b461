#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>

#include "exec/host/kernels/dropout_mask.hpp"
#include "exec/host/kernels/families.hpp"

namespace stretto::host {
namespace {

template <class T>
void dropout(const Dropout& work, std::span<const Operand> operands) {
  const Operand* next = operands.data();
  const Operand* residual = work.pass == Pass::forward && work.residual ? next++ : nullptr;
  const Operand& in = *next++;
  const T* bias = work.pass == Pass::forward && work.bias ? data_of<T>(*next++) : nullptr;
  const bool is_drawn = work.pass == Pass::forward || !work.keeps_mask;
  std::optional<DropoutMask> mask;
  if (is_drawn) mask.emplace(*next, work.probability, work.site);
  const Operand* kept = is_drawn ? nullptr : next;
  const Operand& out = *++next;
  if (work.pass == Pass::forward && work.keeps_mask) kept = ++next;
  const T scale = static_cast<T>(1 / (1 - work.probability));
  const std::int64_t first = work.first_row.value(), before = work.rows_before.value();
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const SequencePlace token = place_of_row(work.parts, work.seq, first + row);
    const T* from = row_of<T>(in, row);
    const T* add = residual ? row_of<T>(*residual, row) : nullptr;
    T* to = row_of<T>(out, row);
    // The mask has one byte for each element, padded to whole words.
    auto* bytes = kept ? reinterpret_cast<std::uint8_t*>(row_of<std::int32_t>(*kept, row)) : nullptr;
    if (bytes && is_drawn) std::memset(bytes, 0, static_cast<std::size_t>(4 * work.mask_cols()));
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
      Simd<T> x = load(from + i, count);
      if (bias) x += load(bias + i, count);
      Simd<T> factors = Simd<T>::Zero();
      if (is_drawn)
        factors = mask->factors<T>(token.sample, before + token.position, i);
      else
        for (std::int64_t j = 0; j < count; ++j) factors[j] = bytes[i + j] != 0 ? scale : T(0);
      if (bytes && is_drawn)
        for (std::int64_t j = 0; j < count; ++j) bytes[i + j] = factors[j] != T(0);
      x *= factors;
      if (add) x += load(add + i, count);
      store<T>(to + i, count, x);
    });
  }
}

}  // namespace

void run_kernel(const Dropout& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  const std::size_t given = 3u + (is_forward && work.residual) + (is_forward && work.bias);
  assert(operands.size() == given + (is_forward && work.keeps_mask));
  assert(has_shape(operands[0], work.rows, work.cols) && has_shape(operands[given - 1], work.rows, work.cols));
  static_cast<void>(given);
  static_cast<void>(is_forward);
  with_compute_type(operands[0].dtype, [&](auto type) { dropout<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
