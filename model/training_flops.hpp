#pragma once
#include <cstdint>

#include "model/transformer.hpp"

namespace stretto {

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
// times. Documents have document_tokens tokens on average (0: each sequence is one document). The counts are sums over
// the nodes of the layers' graphs (model/layers, model/passes): a fused kernel of attention skips most of the masked
// pairs, and pairs across documents (model/ops/attention.hpp, AttentionPairs), unfused attention skips none.
Flops training_flops_per_sequence(const Transformer& model, bool frozen_base = false,
                                  AttentionBackend backend = AttentionBackend::fused, double document_tokens = 0);

}  // namespace stretto
