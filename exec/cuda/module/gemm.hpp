#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/cuda/module/plan_file.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

struct cublasLtContext;

namespace stretto::cuda {

// GEMMs by cuBLASLt: bf16, f32 or codes in, f32 sums, f32 or bf16 out. Row-major C = op(A) · op(B) is computed as the
// column-major Cᵀ = op(B)ᵀ · op(A)ᵀ. Codes with scales of blocks are taken apart first (codes_apart.hpp). The algorithm
// for every shape is the fastest of those that cuBLAS proposes, measured once and kept on disk for this version of
// cuBLAS, driver and device. Not thread-safe.
class GemmRunner {
 public:
  // Uses the current device. `sms` is the number of SMs that kernels should count on: fewer than the device has where
  // other kernels hold some for long; 0: all. `epilogues`: cuBLAS runs an epilogue where that is faster than a kernel
  // of our own afterwards, or wherever cuBLAS has it, which is for tests and keeps nothing on disk.
  enum class Epilogues : std::uint8_t { where_faster, always };
  explicit GemmRunner(int sms = 0, Epilogues epilogues = Epilogues::where_faster);
  ~GemmRunner();
  GemmRunner(const GemmRunner&) = delete;
  GemmRunner& operator=(const GemmRunner&) = delete;

  // Chooses the algorithm for these operands, if that has not been done for others like them. Runs the GEMM several
  // times, so C must hold nothing of value. Uses the stream's scratch as workspace. Returns false when cuBLAS does not
  // have the epilogue, or is slower with it than without and a kernel of our own afterwards, which then runs.
  bool tune(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // Keeps the results of tune() for other processes.
  void save() { file_.save(); }
  std::vector<std::string> notes() const;
  // Starts it; tune() must have been called for operands like these.
  void run(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);

  // Starts it by the algorithm that cuBLAS proposes for its number of rows rounded up to three significant bits: for
  // products whose numbers of rows depend on data and differ in every step. A proposal takes cuBLAS tens of
  // microseconds (measured on an H200), in which a GPU ends the product of an expert several times.
  void run_untuned(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);

  struct Plan;  // plan of one shape

 private:
  // Everything that a plan depends on: the work, types (of codes with the epilogue), leading dimensions, whether C is
  // added to, alignments.
  using Key = std::array<std::int64_t, 18>;
  static Key key_of(const Gemm& work, std::span<const exec::Operand> operands);
  bool tune(const Key& key, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  void run(Plan& plan, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // Takes the algorithm that cuBLAS proposes first.
  void propose(Plan& plan, const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // Returns nullptr when cuBLAS has no algorithm that runs.
  std::unique_ptr<Plan> fastest(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream,
                                Dtype sums);
  // Measures algorithms and returns the best plan.
  std::unique_ptr<Plan> measured(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream);
  // Returns the plan of the file; nullptr when the file has none, or cuBLAS does not accept it.
  std::unique_ptr<Plan> kept(const PlanFile::Numbers& key, const Gemm& work, std::span<const exec::Operand> operands,
                             const Stream& stream) const;

  cublasLtContext* handle_ = nullptr;
  int sms_ = 0;
  Epilogues epilogues_ = Epilogues::where_faster;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  using Algorithm = std::array<std::uint64_t, 8>;             // of cublasLtMatmulAlgo_t
  std::map<std::pair<Key, std::size_t>, Algorithm> untuned_;  // by a rounded size, and bytes of workspace
  PlanFile file_;
  int from_file_ = 0;  // number of plans that came from the file
};

}  // namespace stretto::cuda
