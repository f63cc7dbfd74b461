#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto {

// Dropout (Srivastava et al., JMLR 2014) of probability p multiplies each element by 0 or by 1 / (1 − p). The choice is
// a pure function of (key, site, sample, row, column), all of them places in the whole model: neither the layout nor
// the order of execution changes it, and the gradient draws the choice again and does not keep it. Philox4x32-10
// (base/rng.hpp) of counter {column / 4, row, sample, site} gives 32 bits for each of four columns; an element is kept
// when its bits are at least p·2³². key[1,3] i32: the 64-bit key of a step and layer, low half first, and the first
// sample of the micro-batch in the step's global batch.
enum class DropoutSite : std::uint32_t { attention, embedding, residual_1, residual_2 };
const char* name_of(DropoutSite site);  // "attention", …
constexpr std::int64_t kDropoutKeyWords = 3;
constexpr const char* kDropoutKey = "dropout.key";  // name of the input tensor, [layer][micro-batch]

// forward: (a[rows,cols] R when `residual`), b R, (bias[1,cols] R when `bias`), key R, c W, (mask W when `keeps_mask`).
//          c = a + dropout(b + bias)
// dgrad:   dc R, key R (mask R when `keeps_mask`), db W.   db = dropout(dc)
// Dropout's row is the token's position in its sequence of `seq` tokens; `parts` of it are held. The rank has tokens
// [first_row, first_row + rows) of the micro-batch (all, or its own with sequence parallelism). A sample may also be
// another matrix of `seq` rows here, and `rows_before` of them lie before this rank's: the queries of the rank's heads.
// mask[rows, ⌈cols/4⌉] i32: one byte for each element, 1 where it is kept, the first element in the lowest bits.
struct Dropout {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, seq = 0;
  double probability = 0;
  DropoutSite site = DropoutSite::embedding;
  bool bias = false, residual = false;
  Expr first_row = 0;
  Expr rows_before = 0;
  bool keeps_mask = false;
  SequenceParts parts = {};

  std::int64_t mask_cols() const { return (cols + 3) / 4; }
  static constexpr const char* kKind = "dropout";
  static constexpr std::array kFields = {"pass", "rows",     "cols",      "seq",         "probability", "site",
                                         "bias", "residual", "first_row", "rows_before", "keeps_mask",  "parts"};
  bool operator==(const Dropout&) const = default;
};

OperandList operands(const Dropout& work);
std::string sizes_text(const Dropout& work);

}  // namespace stretto
