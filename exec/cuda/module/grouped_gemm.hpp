#pragma once
#include <cstdint>
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

struct cublasContext;

namespace stretto::cuda {

// Returns whether cuBLAS has the products of all experts as one call: they have equally many rows, and no codes.
inline bool runs_at_once(const GroupedGemm& work) { return work.equal && !work.has_codes(); }
// Such products by cuBLAS, by its own choice of an algorithm: bf16 or f32 in, f32 sums, f32 or bf16 out. Others are in
// product_groups.hpp. Not thread-safe.
class GroupedGemmRunner {
 public:
  // Uses the current device. `sms` as GemmRunner has it.
  explicit GroupedGemmRunner(int sms = 0);
  ~GroupedGemmRunner();
  GroupedGemmRunner(const GroupedGemmRunner&) = delete;
  GroupedGemmRunner& operator=(const GroupedGemmRunner&) = delete;

  // Starts it; runs_at_once() must be true. Uses the stream's scratch as workspace.
  void run(const GroupedGemm& work, std::span<const exec::Operand> operands, const Stream& stream);

 private:
  cublasContext* handle_ = nullptr;
};

}  // namespace stretto::cuda
