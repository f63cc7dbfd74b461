#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bf16.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, Bf16>) {
    return to_bf16(value);
  } else if constexpr (std::is_same_v<From, Bf16>) {
    return static_cast<To>(to_float(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class Fn>
void with_float_type(Dtype dtype, Fn fn) {
  if (dtype == Dtype::bf16) return fn(Bf16{});
  with_compute_type(dtype, fn);
}

template <class To, class From>
void cast(const Operand& src, const Operand& dst) {
  const LoopShape loop = loop_of({&src, &dst});
  for (std::int64_t row = 0; row < loop.rows; ++row) {
    const From* from = row_of<From>(src, row);
    To* to = row_of<To>(dst, row);
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to, from, static_cast<std::size_t>(loop.cols) * sizeof(To));
    } else {
      for (std::int64_t i = 0; i < loop.cols; ++i) to[i] = convert<To>(from[i]);
    }
  }
}

template <class T>
void fill(const Operand& dst, T value) {
  const LoopShape loop = loop_of({&dst});
  for (std::int64_t row = 0; row < loop.rows; ++row) std::fill_n(row_of<T>(dst, row), loop.cols, value);
}

}  // namespace

void run_kernel(const Fill& work, std::span<const Operand> operands) {
  assert(operands.size() == 1 && elements_of(operands[0]) == work.elements);
  if (operands[0].dtype == Dtype::i32) return fill(operands[0], static_cast<std::int32_t>(work.value));
  with_float_type(operands[0].dtype, [&](auto type) { fill(operands[0], convert<decltype(type)>(work.value)); });
}

void run_kernel([[maybe_unused]] const Cast& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && elements_of(operands[0]) == work.elements);
  assert(elements_of(operands[1]) == work.elements);
  // Codes of equal types are copied: parts of a gather of codes.
  if (is_code(operands[0].dtype) && operands[0].dtype == operands[1].dtype)
    return cast<std::uint8_t, std::uint8_t>(operands[0], operands[1]);
  with_float_type(operands[0].dtype, [&](auto from) {
    with_float_type(operands[1].dtype, [&](auto to) { cast<decltype(to), decltype(from)>(operands[0], operands[1]); });
  });
}

}  // namespace stretto::host
