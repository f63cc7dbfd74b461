#pragma once
#include <array>
#include <cstdint>
#include <functional>
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

struct cudnnContext;

namespace stretto::cuda {

// A device that is described and not there, as cuDNN's CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it.
struct DescribedDevice {
  std::string json;
  std::string plan_folder = "";  // where plans are kept; "": nowhere
  // Stands for a run of cuDNN's i-th engine that has been compiled: ms, or nothing when it does not run. Without it
  // the first is taken.
  std::function<std::optional<float>(std::size_t i)> time_ms = nullptr;
};

// Attention by cuDNN's fused kernels (bf16, heads of up to 256, causal or not; grouped queries too), as graphs of its
// backend API: what has no plan is left to attention.cu. The engine of every shape is the fastest of what cuDNN's
// heuristics propose, measured once and kept on disk for this version of cuDNN, driver and device. With grouped queries
// cuDNN rounds dk and dv of each head to bf16 before it adds up those of a group. Not thread-safe.
//
// Dropout: cuDNN draws the masks (Philox), other ones than model/schedule/work.hpp says. Forward pass and gradient draw
// the same (attention_seed.hpp), so that whoever has the forward pass run here must have its gradient run here.
class AttentionRunner {
 public:
  // On the current device. Where cuDNN is missing, too old or does not start, nothing has a plan.
  AttentionRunner();
  // Plans for a device that is not there; run() must not be called.
  explicit AttentionRunner(const DescribedDevice& device);
  ~AttentionRunner();
  AttentionRunner(const AttentionRunner&) = delete;
  AttentionRunner& operator=(const AttentionRunner&) = delete;

  // Makes the plan of these operands, which takes some seconds the first time: cuDNN compiles engines, and each is run
  // several times on the operands, so that those that are written hold nothing of worth before or after. Without a
  // stream nothing runs, and the first engine that can be compiled is taken. False when there is no plan; why_not()
  // then says so in cuDNN's words.
  bool prepare(const Attention& work, std::span<const exec::Operand> operands, const Stream* stream = nullptr);
  // Whether prepare() has found one for operands like these.
  bool has_plan(const Attention& work, std::span<const exec::Operand> operands) const;
  // Which engine runs it, and its knobs (numbers_of() in cudnn_engine.hpp); {} without a plan.
  PlanFile::Numbers engine_of(const Attention& work, std::span<const exec::Operand> operands) const;
  const std::string& why_not() const { return why_not_; }
  // Keeps what prepare() has measured for other processes.
  void save() { file_.save(); }
  std::vector<std::string> notes() const;
  // Bytes of workspace that run() needs: cuDNN's own, seeds, and for a gradient the sums in f32. A multiple of
  // 256, so that workspaces can follow one another.
  std::int64_t workspace_bytes(const Attention& work, std::span<const exec::Operand> operands) const;
  // Starts it; has_plan() must be true. `workspace`: as many bytes, on the device and aligned to 256, used until it is
  // done.
  void run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace, const Stream& stream);

  struct Plan;

 private:
  // Everything that a plan depends on.
  using Key = std::array<std::int64_t, 11>;
  static Key key_of(const Attention& work, std::span<const exec::Operand> operands);
  std::string refusal_of(const Attention& work, std::span<const exec::Operand> operands) const;  // "": none
  std::unique_ptr<Plan> plan_of(const Attention& work, std::span<const exec::Operand> operands, const Stream* stream);
  // As the file has it. False when it has none, or cuDNN does not take it.
  bool take_kept(Plan& plan, const PlanFile::Numbers& key);
  // The fastest of the engines that can be compiled. Throws CudnnError when there is none.
  void take_fastest(Plan& plan, const Attention& work, std::span<const exec::Operand> operands, const Stream* stream);
  void start(const Plan& plan, const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace,
             const Stream& stream);

  cudnnContext* handle_ = nullptr;
  DescribedDevice described_;
  std::string missing_;  // why there is no cuDNN, "" where there is
  std::string why_not_;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: there is none
  PlanFile file_;
  int from_file_ = 0;  // plans that were not measured
};

// Why this version of cuDNN (91500 is 9.15.0) must not be asked for this attention although it makes plans; "" where
// nothing is known against it. As cudnn-frontend refuses, or masks, these (its sdpa nodes).
std::string fault_of_cudnn(std::size_t version, const Attention& work);

}  // namespace stretto::cuda
