#pragma once
#include <cstdint>
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

struct cublasContext;

namespace stretto::cuda {

// Products of experts by cuBLAS, by its own choice of algorithms: bf16 or f32 in, f32 sums, f32 or bf16 out. Experts of
// equally many rows are one call; otherwise a call for each expert that has rows, as TransformerEngine makes them. Not
// thread-safe.
class GroupedGemmRunner {
 public:
  // Uses the current device. `sms` as GemmRunner has it.
  explicit GroupedGemmRunner(int sms = 0);
  ~GroupedGemmRunner();
  GroupedGemmRunner(const GroupedGemmRunner&) = delete;
  GroupedGemmRunner& operator=(const GroupedGemmRunner&) = delete;

  // Starts it. `offsets`: the host's copy of the operand, null when all groups are equal. Uses the stream's scratch as
  // workspace. Throws Error(runtime), before anything starts, for offsets that descend or leave the rows.
  void run(const GroupedGemm& work, std::span<const exec::Operand> operands, const std::int32_t* offsets,
           const Stream& stream);
  // Runs the product with several numbers of rows, so that CUDA loads kernels of most sizes. The operands must hold
  // nothing of value, but numbers.
  void load(const GroupedGemm& work, std::span<const exec::Operand> operands, const Stream& stream);

 private:
  // Starts `count` products of groups of `rows` rows that follow one another, from group `group` and row `first` on.
  void start(const GroupedGemm& work, std::span<const exec::Operand> operands, std::int64_t group, std::int64_t first,
             std::int64_t rows, std::int64_t count);
  void bind(const Stream& stream);

  cublasContext* handle_ = nullptr;
};

}  // namespace stretto::cuda
