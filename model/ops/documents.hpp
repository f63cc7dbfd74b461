#pragma once
#include <cstdint>

#include "model/ops/operand_list.hpp"

namespace stretto {

// Documents are runs of tokens of a sequence that end with a token of their own. A work with `by_document` reads, as
// its last operand unless it says otherwise, documents[batch, seq] i32 R: for each position of each whole sequence of
// the micro-batch, whatever part of it the rank has, the position of the first token of its document.
constexpr const char* kDocuments = "documents";  // name of the input tensor, by micro-batch

namespace operand_specs {

// First positions of documents, of sequences of that many rows.
inline OperandSpec documents_of(std::int64_t batch, std::int64_t seq) {
  return {kDocuments, "R", batch, seq, Shape::matrix, Type::i32};
}

}  // namespace operand_specs
}  // namespace stretto
