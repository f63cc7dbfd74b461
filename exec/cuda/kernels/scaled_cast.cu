#include <bit>

#include "base/fp8.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

// Each warp packs the block of one scale. `blocks`: of all shards.
template <class T>
__global__ void pack_kernel(std::int64_t blocks, std::int64_t blocks_of_shard, const T* x, unsigned char* packed) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (std::int64_t block = std::int64_t{blockIdx.x} * warps + threadIdx.x / kWarp; block < blocks;
       block += std::int64_t{gridDim.x} * warps) {
    const std::int64_t shard = block / blocks_of_shard, within = block % blocks_of_shard;
    unsigned char* values = packed + shard * blocks_of_shard * (kWarp + 1);
    const float value = widened(x[block * kWarp + lane]);
    const std::uint8_t scale =
        scale_of_block(warp_max(std::bit_cast<float>(std::bit_cast<unsigned>(value) & 0x7fffffffu)));
    values[within * kWarp + lane] = scale == kNanScale ? 0 : to_e4m3(value * inverse_of_scale(scale));
    if (lane == 0) values[blocks_of_shard * kWarp + within] = scale;
  }
}

template <class T>
__global__ void unpack_kernel(std::int64_t blocks, std::int64_t blocks_of_shard, const unsigned char* packed, T* x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (std::int64_t block = std::int64_t{blockIdx.x} * warps + threadIdx.x / kWarp; block < blocks;
       block += std::int64_t{gridDim.x} * warps) {
    const std::int64_t shard = block / blocks_of_shard, within = block % blocks_of_shard;
    const unsigned char* values = packed + shard * blocks_of_shard * (kWarp + 1);
    const float factor = value_of_scale(values[blocks_of_shard * kWarp + within]);
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
