#pragma once
#include <cstdint>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"

namespace stretto::cuda {

// Seeds for a library that draws the masks of attention's dropout itself, by Philox: writes a seed and an offset, two
// i64 in device memory at `seed_and_offset`. They are a pure function of the operand `key` of Attention
// (model/ops/dropout.hpp) and the rank's first head, so that the gradient, and a repeated forward pass, get the
// values of the first forward pass. Different steps, layers and ranks of tensor parallelism have different seeds, and
// micro-batches different offsets: kWordsOfSample for each earlier sample of the step's global batch.
void write_attention_seed(const exec::Operand& key, std::int64_t first_head, std::int64_t* seed_and_offset,
                          const Stream& stream);

// TransformerEngine advances the offset by this number for a call of cuDNN's attention, whatever its size
// (BACKEND_F16arb_ELTS_PER_THREADS, transformer_engine/pytorch/cpp_extensions/fused_attn.py).
constexpr std::int64_t kWordsOfSample = 16;

}  // namespace stretto::cuda
