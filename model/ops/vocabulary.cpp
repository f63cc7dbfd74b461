#include "model/ops/vocabulary.hpp"

#include "model/ops/documents.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

OperandList operands(const Embedding& e) {
  using namespace operand_specs;
  if (e.rows < 1 || e.cols < 1 || e.vocab < 1 || e.seq < 1 || e.shards < 1) return bad("dimensions must be positive");
  if (e.vocab % e.shards != 0 || e.cols % e.shards != 0) return bad("shards must divide vocab and cols");
  const bool is_forward = e.pass == Pass::forward;
  if (has_dgrad(e.pass)) return bad("tokens have no gradient");
  if (const std::string problem = problem_of(e.parts, e.seq); !problem.empty()) return bad(problem);
  OperandList list;
  list.operands.push_back(vector_of("tokens", "R", e.rows, Type::i32));
  if (!is_forward) list.operands.push_back({"dx", "R", e.rows, e.cols});
  list.operands.push_back(table_of(is_forward ? "wte" : "dwte", is_forward ? "R" : "A", e.vocab / e.shards, e.cols));
  if (e.positions)
    list.operands.push_back(table_of(is_forward ? "wpe" : "dwpe", is_forward ? "R" : "A", e.seq, e.cols / e.shards));
  if (is_forward) list.operands.push_back({"x", "W", e.rows, e.cols});
  if (!e.by_document) return list;
  const std::int64_t held = e.parts.tokens(e.seq);
  if (e.rows % held != 0) return bad("documents are of whole sequences");
  list.operands.push_back(documents_of(e.rows / held, e.seq));
  return list;
}

OperandList operands(const CrossEntropy& c) {
  using namespace operand_specs;
  if (c.rows < 1 || c.cols < 1 || c.shards < 1) return bad("dimensions must be positive");
  if (c.classes < 1 || c.classes > c.cols * c.shards) return bad("classes must be among the columns");
  OperandList list;
  list.operands.push_back({"logits", "A", c.rows, c.cols});
  list.operands.push_back(vector_of("targets", "R", c.rows, Type::i32));
  if (c.shards > 1) list.operands.push_back(vector_of("stats", "R", 3 * c.shards * c.rows));
  if (c.masked) list.operands.push_back(scalar_of("weight", "R"));
  list.operands.push_back(scalar_of("loss", "A"));
  return list;
}

OperandList operands(const VocabStats& v) {
  using namespace operand_specs;
  if (v.rows < 1 || v.cols < 1 || v.classes < 1) return bad("dimensions must be positive");
  return {{{"logits", "R", v.rows, v.cols},
           vector_of("targets", "R", v.rows, Type::i32),
           vector_of("stats", "W", 3 * v.rows)},
          ""};
}

std::string sizes_text(const Embedding& e) {
  return std::string(name_of(e.pass)) + " " + dims(e.rows, e.cols) + " vocab " + std::to_string(e.vocab) +
         (e.positions ? "" : " without positions");
}

std::string sizes_text(const CrossEntropy& c) {
  return dims(c.rows, c.cols) + (c.shards > 1 ? " of " + std::to_string(c.shards) + " shards" : "");
}

std::string sizes_text(const VocabStats& v) { return dims(v.rows, v.cols); }

}  // namespace stretto
