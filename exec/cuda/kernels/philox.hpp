#pragma once
#include "exec/cuda/device.hpp"

namespace stretto::cuda {

// Philox4x32-10 on the device, equal to base/rng.hpp bit for bit. Pure functions; a thread draws four words at a time.
struct Random4 {
  std::uint32_t at[4];
};
__device__ inline Random4 philox4x32(Random4 counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t a = counter.at[0], b = counter.at[2];
    counter = {{__umulhi(0xCD9E8D57u, b) ^ counter.at[1] ^ key0, 0xCD9E8D57u * b,
                __umulhi(0xD2511F53u, a) ^ counter.at[3] ^ key1, 0xD2511F53u * a}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Dropout factors (model/ops/dropout.hpp, DropoutSite) of four columns from `col` on, a multiple of 4. `key` is the
// operand i32[1,3] in device memory, borrowed.
struct DropoutMask {
  const std::int32_t* key;
  std::uint32_t site;
  std::uint64_t threshold;  // probability · 2^32
  float scale;
  __device__ void factors(std::int64_t sample, std::int64_t row, std::int64_t col, float (&out)[4]) const {
    const Random4 bits = philox4x32({{static_cast<std::uint32_t>(col / 4), static_cast<std::uint32_t>(row),
                                      static_cast<std::uint32_t>(key[2]) + static_cast<std::uint32_t>(sample), site}},
                                    static_cast<std::uint32_t>(key[0]), static_cast<std::uint32_t>(key[1]));
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = bits.at[i] < threshold ? 0.0f : scale;
  }
};

}  // namespace stretto::cuda
