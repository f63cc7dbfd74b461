#pragma once
#include <cstdint>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"

namespace stretto::cuda {

// For a library that draws masks of attention's dropout itself, by Philox: writes a seed and an offset, two i64 in the
// device's memory at `seed_and_offset`. They are a pure function of the operand `key` of Attention
// (model/schedule/work.hpp) and the rank's first head, so that the gradient, and a forward pass that is repeated, get
// those of the forward pass. Different steps, layers and ranks of tensor parallelism have different seeds, and
// micro-batches different offsets: kWordsOfSample apart for each sample before them in the step's global batch.
void write_attention_seed(const exec::Operand& key, std::int64_t first_head, std::int64_t* seed_and_offset,
                          const Stream& stream);

// TransformerEngine advances the offset by so much for a call of cuDNN's attention, whatever its size
// (BACKEND_F16arb_ELTS_PER_THREADS, transformer_engine/pytorch/cpp_extensions/fused_attn.py).
constexpr std::int64_t kWordsOfSample = 16;

}  // namespace stretto::cuda
