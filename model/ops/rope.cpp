#include "model/ops/rope.hpp"

#include "model/ops/documents.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

OperandList operands(const Rope& r) {
  using namespace operand_specs;
  if (r.rows < 1 || r.heads < 1 || r.kv_heads < 1 || r.seq < 1 || r.head_dim < 1)
    return bad("dimensions must be positive");
  if (r.head_dim % 2 != 0) return bad("head_dim must be even");
  if (!(r.base > 0)) return bad("base must be positive");
  const RopeScaling& scaling = r.scaling;
  if (!(scaling.interpolation_factor > 0 && scaling.factor > 0 && scaling.low_freq_factor > 0 &&
        scaling.high_freq_factor > scaling.low_freq_factor && scaling.original_max_position_embeddings > 0))
    return bad("scaling must be by positive factors, the high frequency's above the low one's");
  if (const std::string problem = problem_of(r.parts, r.seq); !problem.empty()) return bad(problem);
  if (has_wgrad(r.pass)) return bad("rope has no weights");
  OperandList list{{{r.pass == Pass::forward ? "qkv" : "dqkv", "A", r.rows, (r.heads + 2 * r.kv_heads) * r.head_dim}},
                   ""};
  if (!r.by_document) return list;
  const std::int64_t held = r.parts.tokens(r.seq);
  if (r.rows % held != 0) return bad("documents are of whole sequences");
  list.operands.push_back(documents_of(r.rows / held, r.seq));
  return list;
}

OperandList operands(const LatentHeads& h) {
  using namespace operand_specs;
  if (h.rows < 1 || h.heads < 1 || h.seq < 1 || h.nope < 1 || h.rope < 1 || h.value < 1)
    return bad("dimensions must be positive");
  if (h.rope % 2 != 0) return bad("rope must be even");
  if (!(h.base > 0 && h.yarn.factor > 0)) return bad("base and factor must be positive");
  if (has_wgrad(h.pass)) return bad("rope has no weights");
  const bool is_forward = h.pass == Pass::forward;
  const auto matrix = [&](const char* name, const char* modes, std::int64_t cols) {
    return OperandSpec{name, modes, h.rows, cols};
  };
  OperandList list;
  if (is_forward)
    list.operands = {matrix("up", "R", h.up_cols()), matrix("key", "R", h.rope), matrix("q", "A", h.q_cols()),
                     matrix("kv", "W", h.kv_cols())};
  else
    list.operands = {matrix("dkv", "R", h.kv_cols()), matrix("dq", "A", h.q_cols()), matrix("dup", "W", h.up_cols()),
                     matrix("dkey", "W", h.rope)};
  if (h.by_document && h.rows % h.seq != 0) return bad("documents are of whole sequences");
  if (h.by_document) list.operands.push_back(documents_of(h.rows / h.seq, h.seq));
  return list;
}

std::string sizes_text(const Rope& r) {
  return std::string(name_of(r.pass)) + " rows " + std::to_string(r.rows) + heads_text(r.heads, r.kv_heads) + " seq " +
         std::to_string(r.seq) + " dim " + std::to_string(r.head_dim);
}

std::string sizes_text(const LatentHeads& h) {
  return std::string(name_of(h.pass)) + " rows " + std::to_string(h.rows) + heads_text(h.heads, h.heads) + " dim " +
         std::to_string(h.nope) + "+" + std::to_string(h.rope) + " values " + std::to_string(h.value);
}

}  // namespace stretto
