#include "exec/cuda/kernels/launch_work.hpp"

#include <cassert>
#include <variant>

#include "base/overloaded.hpp"
#include "exec/cuda/kernels/families.hpp"

namespace stretto::cuda {

void launch_work(const Work& work, std::span<const exec::Operand> operands, const Stream& stream) {
  std::visit(
      Overloaded{
          [&](const Attention& attention) { run_attention(attention, operands, stream); },
          [&](const Rope& rope) { run_rope(rope, operands, stream); },
          [&](const LayerNorm& norm) { run_layernorm(norm, operands, stream); },
          [&](const RmsNorm& norm) { run_rmsnorm(norm, operands, stream); },
          [&](const Elementwise& elementwise) { run_elementwise(elementwise, operands, stream); },
          [&](const Dropout& dropout) { run_dropout(dropout, operands, stream); },
          [&](const Embedding& embedding) { run_embedding(embedding, operands, stream); },
          [&](const CrossEntropy& loss) { run_cross_entropy(loss, operands, stream); },
          [&](const VocabStats& stats) { run_vocab_stats(stats, operands, stream); },
          [&](const Fill& fill) { run_fill(fill, operands, stream); },
          [&](const Cast& cast) { run_cast(cast, operands, stream); },
          [&](const LocalReduce& reduce) { run_local_reduce(reduce, operands, stream); },
          [&](const SumSquares& squares) { run_sum_squares(squares, operands, stream); },
          [&](const AdamW& adamw) { run_adamw(adamw, operands, stream); },
          [](const auto&) { assert(false && "GEMMs are cuBLAS's, communication is launched by who knows the others"); },
      },
      work);
}

}  // namespace stretto::cuda
