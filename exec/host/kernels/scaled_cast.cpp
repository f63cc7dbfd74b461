#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/bf16.hpp"
#include "base/fp8.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

template <class T>
float narrow(T value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return to_float(value);
  else
    return static_cast<float>(value);
}
template <class T>
T widen(float value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return to_bf16(value);
  else
    return static_cast<T>(value);
}

template <class T>
void pack_block(const T* x, std::uint8_t* values, std::uint8_t& scale) {
  float amax = 0;
  for (std::int64_t i = 0; i < kScaleBlock; ++i) {
    const float size = std::fabs(narrow(x[i]));
    if (!std::isnan(amax) && !(size <= amax)) amax = size;  // keeps a NaN
  }
  scale = scale_of_block(amax);
  for (std::int64_t i = 0; i < kScaleBlock; ++i)
    values[i] = scale == kNanScale ? 0 : to_e4m3(narrow(x[i]) * inverse_of_scale(scale));
}

template <class T>
void unpack_block(const std::uint8_t* values, std::uint8_t scale, T* x) {
  const float factor = value_of_scale(scale);
  for (std::int64_t i = 0; i < kScaleBlock; ++i) x[i] = widen<T>(from_e4m3(values[i]) * factor);
}

template <class T>
void run(const ScaledCast& work, T* x, std::uint8_t* packed) {
  for (std::int64_t shard = 0; shard < work.shards; ++shard) {
    std::uint8_t *values = packed + shard * work.packed(), *scales = values + work.elements;
    T* own = x + shard * work.elements;
    for (std::int64_t block = 0; block < work.elements / kScaleBlock; ++block)
      if (work.pass == Pass::forward)
        pack_block(own + block * kScaleBlock, values + block * kScaleBlock, scales[block]);
      else
        unpack_block(values + block * kScaleBlock, scales[block], own + block * kScaleBlock);
  }
}

}  // namespace

void run_kernel(const ScaledCast& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  const Operand &x = operands[is_forward ? 0 : 1], &packed = operands[is_forward ? 1 : 0];
  assert(operands.size() == 2 && elements_of(x) == work.shards * work.elements && is_contiguous(x));
  assert(packed.dtype == Dtype::e4m3 && elements_of(packed) == work.shards * work.packed() && is_contiguous(packed));
  const auto run_as = [&](auto type) { run(work, data_of<decltype(type)>(x), data_of<std::uint8_t>(packed)); };
  if (x.dtype == Dtype::bf16)
    run_as(Bf16{});
  else
    with_compute_type(x.dtype, run_as);
}

}  // namespace stretto::host
