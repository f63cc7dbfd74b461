#pragma once
#include <cstdint>

#include "model/transformer.hpp"

namespace stretto {

// Returns the share of all query-key pairs whose products are executed: a fused kernel skips most of the masked pairs,
// and pairs across documents of document_tokens tokens on average (model/schedule/work.hpp, AttentionPairs; 0: each
// sequence is one document). Unfused attention skips none.
double executed_attention_share(AttentionBackend backend, std::int64_t seq, double document_tokens = 0);

// FLOPs of one forward and backward pass over one sequence of seq_length tokens.
// Convention (docs/mfu.md): GEMMs and attention matmuls count 2·m·n·k; backward is twice forward; attention is causal,
// so its matmuls count half; the LM head counts; embedding look-ups, norms and elementwise work do not.
struct Flops {
  double model = 0;  // counted by MFU, as frameworks count: over whole sequences, whatever documents they hold
  double model_within_documents = 0;  // `model` with only the pairs of tokens of one document; equal without documents
  double hardware = 0;                // counted by HFU: executed by the schedule, with recompute; attention as executed
  // `model` with the causal half of attention counted too: Megatron's published convention
  double model_full_attention = 0;
};
// A frozen base has no weight gradients, so linear layers and the head count twice their forward pass and not three
// times.
Flops training_flops_per_sequence(const Transformer& model, bool frozen_base = false,
                                  AttentionBackend backend = AttentionBackend::fused, double document_tokens = 0);

}  // namespace stretto
