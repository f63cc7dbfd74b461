#include "model/ops/unfused_attention.hpp"

#include "base/values_of.hpp"
#include "model/ops/documents.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

const char* name_of(AttentionFactor product) {
  return name_in(
      {"attention_scores", "attention_context", "attention_dv", "attention_dp", "attention_dq", "attention_dk"},
      product);
}

OperandList operands(const AttentionProduct& a) {
  using namespace operand_specs;
  if (a.batch < 1 || a.heads < 1 || a.kv_heads < 1 || a.seq < 1 || a.head_dim < 1)
    return bad("dimensions must be positive");
  if (a.heads % a.kv_heads != 0) return bad("kv_heads must divide heads");
  const std::int64_t tokens = a.batch * a.seq, hidden = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
  const auto of_scores = [&](const char* name, const char* modes) {
    return OperandSpec{name, modes, a.score_rows(), a.seq};
  };
  const auto of_tokens = [&](const char* name, const char* modes, std::int64_t cols) {
    return OperandSpec{name, modes, tokens, cols};
  };
  const OperandSpec qkv = of_tokens("qkv", "R", hidden + 2 * keys);
  switch (a.product) {
    case AttentionFactor::scores:
      return {{qkv, of_scores("scores", "W")}, ""};
    case AttentionFactor::context:
      return {{of_scores("probabilities", "R"), qkv, of_tokens("out", "W", hidden)}, ""};
    case AttentionFactor::dv:
      return {{of_scores("probabilities", "R"), of_tokens("dout", "R", hidden), of_tokens("dv", "W", keys)}, ""};
    case AttentionFactor::dp:
      return {{of_tokens("dout", "R", hidden), qkv, of_scores("dprobabilities", "W")}, ""};
    case AttentionFactor::dq:
      return {{of_scores("dscores", "R"), qkv, of_tokens("dq", "W", hidden)}, ""};
    case AttentionFactor::dk:
      return {{of_scores("dscores", "R"), qkv, of_tokens("dk", "W", keys)}, ""};
  }
  return bad("unknown product");
}

OperandList operands(const Softmax& s) {
  using namespace operand_specs;
  if (s.rows < 1 || s.cols < 1) return bad("dimensions must be positive");
  if (s.causal && s.rows % s.cols != 0) return bad("causal rows must be whole squares");
  if (has_wgrad(s.pass)) return bad("softmax has no weights");
  const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, s.rows, s.cols}; };
  if (s.pass != Pass::forward) return {{full("probabilities", "R"), full("gradient", "A")}, ""};
  OperandList list{{full("scores", "R"), full("probabilities", "W")}, ""};
  if (!s.by_document) return list;
  if (!s.causal || s.heads < 1 || s.rows % (s.heads * s.cols) != 0)
    return bad("documents are of causal squares, so many of a sequence");
  list.operands.push_back(documents_of(s.rows / (s.heads * s.cols), s.cols));
  return list;
}

std::string sizes_text(const AttentionProduct& a) {
  return "batch " + std::to_string(a.batch) + heads_text(a.heads, a.kv_heads) + " seq " + std::to_string(a.seq) +
         " dim " + std::to_string(a.head_dim);
}

std::string sizes_text(const Softmax& s) {
  return std::string(name_of(s.pass)) + " " + dims(s.rows, s.cols) + (s.causal ? " causal" : "");
}

double counted_flops(const AttentionProduct& a) {
  return 2.0 * double(a.score_rows()) * double(a.seq) * double(a.head_dim) / (a.causal ? 2 : 1);
}

}  // namespace stretto
