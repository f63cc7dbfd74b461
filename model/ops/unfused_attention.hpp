#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// One product of unfused attention, batched over samples and heads; qkv and heads are as in Attention. Scores and
// probabilities are [batch·heads·seq, seq], row (sample · heads + head) · seq + query; q, k and v are columns of qkv,
// and dq, dk and dv have the same columns as matrices of their own. Every query is multiplied with every key: Softmax
// sets masked pairs to 0. scale = 1/sqrt(head_dim). dk and dv are sums over the query heads of a group.
// scores:  qkv R, scores W.                          scale · q · kᵀ
// context: probabilities R, qkv R, out[T,H] W.       P · v
// dv:      probabilities R, dout[T,H] R, dv W.       Pᵀ · dout
// dp:      dout[T,H] R, qkv R, dprobabilities W.     dout · vᵀ
// dq:      dscores R, qkv R, dq[T,H] W.              scale · dS · k
// dk:      dscores R, qkv R, dk W.                   scale · dSᵀ · q
enum class AttentionFactor : std::uint8_t { scores, context, dv, dp, dq, dk };
const char* name_of(AttentionFactor product);  // "attention_scores", …
struct AttentionProduct {
  AttentionFactor product = AttentionFactor::scores;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  bool causal = true;  // half of the product counts as the model's (model_flops); all of it is multiplied

  std::int64_t score_rows() const { return batch * heads * seq; }
  static constexpr std::array kFields = {"product", "batch", "heads", "kv_heads", "seq", "head_dim", "causal"};
  bool operator==(const AttentionProduct&) const = default;
};

// Softmax of rows of scores. With `causal` the row of query q = row mod cols sees the keys 0 … q; others get 0. With
// by_document it sees those of its document only; each sequence then has `heads` squares of scores.
// forward: scores[rows,cols] R, probabilities W, (documents R with by_document).
// dgrad:   probabilities R, gradient A (in: of the probabilities; out: of the scores).
struct Softmax {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0;
  bool causal = true;
  bool by_document = false;
  std::int64_t heads = 1;  // of a sequence, with by_document

  std::int64_t seen(std::int64_t row) const { return causal ? row % cols + 1 : cols; }
  static constexpr const char* kKind = "softmax";
  static constexpr std::array kFields = {"pass", "rows", "cols", "causal", "by_document", "heads"};
  bool operator==(const Softmax&) const = default;
};

OperandList operands(const AttentionProduct& work);
OperandList operands(const Softmax& work);
std::string sizes_text(const AttentionProduct& work);
std::string sizes_text(const Softmax& work);
double counted_flops(const AttentionProduct& work);

}  // namespace stretto
