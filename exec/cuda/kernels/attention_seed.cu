#include "exec/cuda/kernels/attention_seed.hpp"
#include "exec/cuda/kernels/launch.hpp"
#include "exec/cuda/kernels/philox.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {
namespace {

// DropoutMask never uses this counter column (it uses a column / 4), so these bits are no mask's.
constexpr std::uint32_t kOfSeed = 0xffffffffu;

__global__ void seed_kernel(const std::int32_t* key, std::int64_t first_head, std::int64_t* seed_and_offset) {
  const Random4 bits = philox4x32(
      {{kOfSeed, static_cast<std::uint32_t>(first_head), 0, static_cast<std::uint32_t>(DropoutSite::attention)}},
      static_cast<std::uint32_t>(key[0]), static_cast<std::uint32_t>(key[1]));
  seed_and_offset[0] = static_cast<std::int64_t>(std::uint64_t{bits.at[1]} << 32 | bits.at[0]);
  seed_and_offset[1] = kWordsOfSample * key[2];
}

}  // namespace

void write_attention_seed(const exec::Operand& key, std::int64_t first_head, std::int64_t* seed_and_offset,
                          const Stream& stream) {
  launch(stream, dim3{1, 1, 1}, dim3{1, 1, 1}, seed_kernel, static_cast<const std::int32_t*>(key.data), first_head,
         seed_and_offset);
}

}  // namespace stretto::cuda
