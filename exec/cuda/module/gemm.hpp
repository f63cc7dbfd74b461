#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/cuda/module/plan_file.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

struct cublasLtContext;

namespace stretto::cuda {

// GEMMs by cuBLASLt: bf16 or f32 in, f32 sums, f32 or bf16 out. Row-major C = op(A) · op(B) is computed as the
// column-major Cᵀ = op(B)ᵀ · op(A)ᵀ. The algorithm of every shape is the fastest of what cuBLAS proposes, measured
// once and kept on disk for this version of cuBLAS, driver and device. Not thread-safe.
class GemmRunner {
 public:
  // `sms` that kernels should count on: fewer than the device has where others hold some for long; 0: all. On the
  // current device. `epilogues`: whether an epilogue is cuBLAS's where that is faster than a kernel of our own behind,
  // or wherever cuBLAS has it, which is for tests and keeps nothing on disk.
  enum class Epilogues : std::uint8_t { where_faster, always };
  explicit GemmRunner(int sms = 0, Epilogues epilogues = Epilogues::where_faster);
  ~GemmRunner();
  GemmRunner(const GemmRunner&) = delete;
  GemmRunner& operator=(const GemmRunner&) = delete;

  // Chooses the algorithm for these operands, if that has not been done for others like them. Runs the GEMM several
  // times, so that C holds nothing of worth before or after. Uses the stream's scratch as workspace. False when cuBLAS
  // does not have the epilogue, or is slower with it than without and a kernel of our own behind, which then follows.
  bool tune(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // Keeps what tune() has found for other processes.
  void save() { file_.save(); }
  std::vector<std::string> notes() const;
  // Starts it; tune() must have been called for operands like these.
  void run(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);

  struct Plan;  // of one shape

 private:
  // Everything that a plan depends on: the work, types, leading dimensions, whether C is added to, alignments.
  using Key = std::array<std::int64_t, 18>;
  static Key key_of(const Gemm& work, std::span<const exec::Operand> operands);
  void run(Plan& plan, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // nullptr when cuBLAS has nothing that runs.
  std::unique_ptr<Plan> fastest(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream,
                                Dtype sums);
  // Measured anew.
  std::unique_ptr<Plan> measured(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // As the file has it; nullptr when it has none, or cuBLAS does not take it.
  std::unique_ptr<Plan> kept(const PlanFile::Numbers& key, const Gemm& work, std::span<const exec::Operand> operands,
                             const Stream& stream) const;

  cublasLtContext* handle_ = nullptr;
  int sms_ = 0;
  Epilogues epilogues_ = Epilogues::where_faster;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  PlanFile file_;
  int from_file_ = 0;  // plans that were not measured
};

}  // namespace stretto::cuda
