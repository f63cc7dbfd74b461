#include <cblas.h>

#include <cassert>
#include <variant>

#include "base/overloaded.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/kernels.hpp"

namespace stretto::host {

void run_work(const Work& work, const Coordinates& rank, std::span<const Operand> operands) {
  const bool converts = std::holds_alternative<Cast>(work) || std::holds_alternative<Fill>(work);
  if (!converts && computes_in_bf16(operands)) return run_in_f32(work, rank, operands);
  std::visit(Overloaded{
                 [&](const Gemm& gemm) { run_gemm(gemm, operands); },
                 [&](const Attention& attention) { run_attention(attention, rank[Coord::tp], operands); },
                 [&](const Rope& rope) { run_rope(rope, operands); },
                 [&](const LayerNorm& norm) { run_layernorm(norm, operands); },
                 [&](const RmsNorm& norm) { run_rmsnorm(norm, operands); },
                 [&](const Elementwise& elementwise) { run_elementwise(elementwise, operands); },
                 [&](const Dropout& dropout) { run_dropout(dropout, rank[Coord::tp], operands); },
                 [&](const Embedding& embedding) { run_embedding(embedding, rank[Coord::tp], operands); },
                 [&](const CrossEntropy& loss) { run_cross_entropy(loss, rank[Coord::tp], operands); },
                 [&](const VocabStats& stats) { run_vocab_stats(stats, rank[Coord::tp], operands); },
                 [&](const Fill& fill) { run_fill(fill, operands); },
                 [&](const Cast& cast) { run_cast(cast, operands); },
                 [&](const LocalReduce& reduce) { run_local_reduce(reduce, operands); },
                 [&](const SumSquares& squares) { run_sum_squares(squares, operands); },
                 [&](const AdamW& adamw) { run_adamw(adamw, rank[Coord::dp], operands); },
                 [](const Collective&) { assert(false && "a collective is not compute"); },
                 [](const PointToPoint&) { assert(false && "a message is not compute"); },
             },
             work);
}

void use_one_blas_thread() { openblas_set_num_threads(1); }

}  // namespace stretto::host
