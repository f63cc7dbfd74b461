#include <cstring>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

// The device's code for the numbers of base/fp8.hpp.
constexpr unsigned kNan = 255;  // scale of a block that has a NaN or an infinity

__device__ inline unsigned bits_of(float value) {
  unsigned bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
__device__ inline float float_of(unsigned bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

__device__ inline unsigned scale_of(float amax) {
  const unsigned bits = bits_of(amax);
  if (bits >= 0x7f800000u) return kNan;
  const int exponent = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
  return exponent < 0 ? 0u : static_cast<unsigned>(exponent);
}

// Rounds a finite number: above 2^-6 by its bits, below in steps of 2^-9, to which adding 2^23 such steps rounds.
__device__ inline unsigned char to_e4m3(float value) {
  const unsigned bits = bits_of(value), sign = bits >> 31 << 7, size = bits & 0x7fffffffu;
  if (size < 0x3c800000u)
    return static_cast<unsigned char>(sign | (bits_of(float_of(size) * 512.0f + 8388608.0f) & 0xffu));
  const unsigned rounded = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
  return static_cast<unsigned char>(sign | (rounded < 0x7eu ? rounded : 0x7eu));
}
__device__ inline float from_e4m3(unsigned byte) {
  const unsigned exponent = (byte >> 3) & 15u, mantissa = byte & 7u;
  const float size = exponent == 0 ? static_cast<float>(mantissa) * (1.0f / 512.0f)
                                   : float_of(((exponent + 120u) << 23) | (mantissa << 20));
  return (byte & 0x80u) != 0 ? -size : size;
}

// Each warp packs the block of one scale. `blocks`: of all shards.
template <class T>
__global__ void pack_kernel(std::int64_t blocks, std::int64_t blocks_of_shard, const T* x, unsigned char* packed) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (std::int64_t block = std::int64_t{blockIdx.x} * warps + threadIdx.x / kWarp; block < blocks;
       block += std::int64_t{gridDim.x} * warps) {
    const std::int64_t shard = block / blocks_of_shard, within = block % blocks_of_shard;
    unsigned char* values = packed + shard * blocks_of_shard * (kWarp + 1);
    const float value = widened(x[block * kWarp + lane]);
    const unsigned scale = scale_of(warp_max(float_of(bits_of(value) & 0x7fffffffu)));
    // 2^(127 − scale).
    const float inverse = float_of((254u - (scale == kNan ? 0u : scale)) << 23);
    values[within * kWarp + lane] = scale == kNan ? 0 : to_e4m3(value * inverse);
    if (lane == 0) values[blocks_of_shard * kWarp + within] = static_cast<unsigned char>(scale);
  }
}

template <class T>
__global__ void unpack_kernel(std::int64_t blocks, std::int64_t blocks_of_shard, const unsigned char* packed, T* x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (std::int64_t block = std::int64_t{blockIdx.x} * warps + threadIdx.x / kWarp; block < blocks;
       block += std::int64_t{gridDim.x} * warps) {
    const std::int64_t shard = block / blocks_of_shard, within = block % blocks_of_shard;
    const unsigned char* values = packed + shard * blocks_of_shard * (kWarp + 1);
    const unsigned scale = values[blocks_of_shard * kWarp + within];
    const float factor = float_of(scale == kNan ? 0x7fc00000u : scale == 0 ? 0x00400000u : scale << 23);
    x[block * kWarp + lane] = rounded<T>(from_e4m3(values[within * kWarp + lane]) * factor);
  }
}

}  // namespace

void run_kernel(const ScaledCast& work, std::span<const exec::Operand> operands, const Stream& stream) {
  static_assert(kScaleBlock == kWarp);
  const bool is_forward = work.pass == Pass::forward;
  const exec::Operand &x = operands[is_forward ? 0 : 1], &packed = operands[is_forward ? 1 : 0];
  const std::int64_t of_shard = work.elements / kScaleBlock, blocks = work.shards * of_shard;
  auto* bytes = static_cast<unsigned char*>(packed.data);
  const auto start = [&](auto kernel, auto* from, auto* to) {
    const std::int64_t grid =
        std::min(ceil_div(blocks, std::int64_t{kThreads} / kWarp), resident_blocks(stream, kernel, kThreads));
    launch(stream, {static_cast<unsigned>(grid), 1, 1}, {kThreads, 1, 1}, kernel, blocks, of_shard, from, to);
  };
  with_device_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    if (is_forward)
      start(pack_kernel<T>, static_cast<const T*>(x.data), bytes);
    else
      start(unpack_kernel<T>, static_cast<const unsigned char*>(bytes), static_cast<T*>(x.data));
  });
}

}  // namespace stretto::cuda
