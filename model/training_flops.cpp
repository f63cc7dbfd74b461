#include "model/training_flops.hpp"

#include "model/schedule/work.hpp"

namespace stretto {

namespace {

AttentionPairs pairs_of_sequence(std::int64_t seq, double document_tokens) {
  Attention whole;
  whole.seq = seq;
  whole.by_document = true;
  whole.document_tokens = document_tokens;
  return attention_pairs(whole);
}

}  // namespace

double executed_attention_share(AttentionBackend backend, std::int64_t seq, double document_tokens) {
  if (backend != AttentionBackend::fused) return 1;
  return pairs_of_sequence(seq, document_tokens).multiplied / (double(seq) * double(seq));
}

Flops training_flops_per_sequence(const Transformer& model, bool frozen_base, AttentionBackend backend,
                                  double document_tokens) {
  const double s = double(model.seq_length), h = double(model.hidden_size);
  // FLOPs of one forward pass over the sequence.
  // attention_matmul: the mean of QKᵀ and PV, of all heads, every key of every query; more_of_scores: what QKᵀ has more
  double linears = 0, attention_matmul = 0, more_of_scores = 0;
  const double scores = double(model.q_size()), mean = (scores + double(model.attention_size())) / 2;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    linears += s * 2 * layer_weights(model, model.layer(layer)).all();
    attention_matmul += 2 * s * s * mean;
    more_of_scores += 2 * s * s * (scores - mean);
  }
  const double head = s * 2 * h * double(model.vocab_size);
  const double padded_head = s * 2 * h * double(model.padded_vocab_size);

  Flops flops;
  const double passes = frozen_base ? 2 : 3;  // passes of products with weights
  flops.model_full_attention = passes * (linears + head) + 3 * 2 * attention_matmul;
  flops.model = passes * (linears + head) + 3 * attention_matmul;
  const double within =
      pairs_of_sequence(model.seq_length, document_tokens).count / pairs_of_sequence(model.seq_length, 0).count;
  flops.model_within_documents = passes * (linears + head) + within * 3 * attention_matmul;
  // The forward kernel multiplies twice (QKᵀ, PV), the backward kernel five times (QKᵀ again, dV, dP, dQ, dK), each
  // over the part of the square that its blocks touch. Unfused attention does not form QKᵀ again because it has kept
  // the probabilities.
  const bool is_fused = backend == AttentionBackend::fused;
  const double share = executed_attention_share(backend, model.seq_length, document_tokens);
  flops.hardware = passes * (linears + padded_head) + (is_fused ? 7 : 6) * share * attention_matmul +
                   (is_fused ? share * more_of_scores : 0);
  return flops;
}

}  // namespace stretto
