#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto {

// forward: tokens[rows,1] i32 R, wte[vocab,cols] R, wpe[max_seq,cols] R, x[rows,cols] W.
// wgrad:   tokens R, dx R, dwte A, dwpe A.
// The position of a row is its position in a sequence of `seq` tokens (`parts` of it are held), or with by_document
// its position in its document; the last operand is then documents. Without `positions`
// wpe and dwpe are no operands, and x has only the rows of wte. With shards > 1, shard number t holds rows
// [t·vocab/shards, …) of wte and columns [t·cols/shards, …) of wpe: x is then the shard's term of the sum over all
// shards, 0 for other shards' tokens (vocab-parallel, Megatron-LM).
struct Embedding {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, vocab = 0, seq = 0;
  bool positions = true;
  std::int64_t shards = 1;
  Expr shard = 0;
  SequenceParts parts = {};
  bool by_document = false;

  static constexpr const char* kKind = "embedding";
  static constexpr std::array kFields = {"pass",      "rows",   "cols",  "vocab", "seq",
                                         "positions", "shards", "shard", "parts", "by_document"};
  bool operator==(const Embedding&) const = default;
};

// Softmax cross-entropy and its gradient, in place. logits[rows,cols] A (on return: scale · (softmax − onehot)),
// targets[rows,1] i32 R, loss[1,1] f64 A (+= scale / shards · Σ nll). `scale` is 1 / tokens of the global batch, so
// that gradients and losses of all ranks and micro-batches simply add up. Columns from `classes` on are padding: the
// softmax leaves them out and their gradient is 0. With shards > 1 each rank has a slice of the vocabulary
// (Megatron-LM's vocab-parallel cross-entropy), classes [first_class, first_class + cols), and stats[shards, 3·rows] R,
// VocabStats of all shards, precedes loss. With `masked` a row whose target is kNoTarget counts for nothing and gets
// the gradient 0, and weight[1,1] f64 R, before loss, multiplies `scale`: tokens of the global batch over those that
// count.
constexpr std::int32_t kNoTarget = -1;
constexpr const char* kLossWeight = "loss.weight";  // name of the input tensor
struct CrossEntropy {
  std::int64_t rows = 0, cols = 0, classes = 0;
  double scale = 1;
  std::int64_t shards = 1;
  Expr first_class = 0;
  bool masked = false;

  static constexpr const char* kKind = "cross_entropy";
  static constexpr std::array kFields = {"rows", "cols", "classes", "scale", "shards", "first_class", "masked"};
  bool operator==(const CrossEntropy&) const = default;
};

// The statistics of one slice of the vocabulary, from first_class on, for the softmax of each row. logits[rows,cols] R,
// targets[rows,1] i32 R, stats[3,rows] W contiguous: max, Σ exp(logit − max), logit of the target or 0 when the target
// lies in another slice. `masked` as in CrossEntropy.
struct VocabStats {
  std::int64_t rows = 0, cols = 0, classes = 0;
  Expr first_class = 0;
  bool masked = false;

  static constexpr const char* kKind = "vocab_stats";
  static constexpr std::array kFields = {"rows", "cols", "classes", "first_class", "masked"};
  bool operator==(const VocabStats&) const = default;
};

OperandList operands(const Embedding& work);
OperandList operands(const CrossEntropy& work);
OperandList operands(const VocabStats& work);
std::string sizes_text(const Embedding& work);
std::string sizes_text(const CrossEntropy& work);
std::string sizes_text(const VocabStats& work);

}  // namespace stretto
