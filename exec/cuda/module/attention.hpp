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

struct AttentionPlaces;
struct AttentionShape;

// A device that is described but absent, in the format of cuDNN's CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
struct DescribedDevice {
  std::string json;
  std::string plan_folder = "";  // folder in which plans are kept; "": none
  // Replaces a run of cuDNN's i-th compiled engine: returns ms, or nothing when the engine does not run. Without it the
  // first engine is taken.
  std::function<std::optional<float>(std::size_t i)> time_ms = nullptr;
};

// Attention by cuDNN's fused kernels (bf16, heads of up to 256, causal or not; grouped queries too), as graphs of its
// backend API: one for each region of the queries (exec/cuda/attention_region.hpp), so that parts of sequences have
// plans too. Attention without a plan is left to attention.cu. The engine for every shape is the fastest of those that
// cuDNN's heuristics propose, measured once and kept on disk for this version of cuDNN, driver and device. With grouped
// queries cuDNN rounds dk and dv of each head to bf16 before it adds up those of a group, and dk and dv of each region
// are rounded before they are added up. Not thread-safe.
//
// Dropout: cuDNN draws masks (Philox) other than those of model/ops/dropout.hpp. Forward pass and gradient draw equal
// ones (attention_seed.hpp), so a forward pass that runs here needs its gradient here too. A mask follows from the
// place in a graph: passes over parts of the keys would have equal ones, so with dropout only whole sequences have
// plans.
class AttentionRunner {
 public:
  // Uses the current device. Where cuDNN is missing, too old or does not start, no attention has a plan.
  AttentionRunner();
  // Makes plans for an absent device; run() must not be called.
  explicit AttentionRunner(const DescribedDevice& device);
  ~AttentionRunner();
  AttentionRunner(const AttentionRunner&) = delete;
  AttentionRunner& operator=(const AttentionRunner&) = delete;

  // Makes the plans for these operands. The first time takes some seconds: cuDNN compiles engines, and each is run
  // several times on the operands, so the written ones must hold nothing of value. Without a stream nothing runs, and
  // the first engine that can be compiled is taken. Returns false when there is no plan; why_not() then says so in
  // cuDNN's words.
  bool prepare(const Attention& work, std::span<const exec::Operand> operands, const Stream* stream = nullptr);
  // Returns whether prepare() has found plans for operands like these.
  bool has_plan(const Attention& work, std::span<const exec::Operand> operands) const;
  // Returns the engine that runs its first region, with its knobs (numbers_of() in cudnn_engine.hpp); {} without a
  // plan.
  PlanFile::Numbers engine_of(const Attention& work, std::span<const exec::Operand> operands) const;
  const std::string& why_not() const { return why_not_; }
  // Keeps the measurements of prepare() for other processes.
  void save() { file_.save(); }
  std::vector<std::string> notes() const;
  // Returns the bytes of workspace that run() needs: cuDNN's own, seeds, for a gradient the sums in f32, and copies of
  // operands whose tokens do not lie in order (attention_operands.hpp). A multiple of 256, so that workspaces can
  // follow one another.
  std::int64_t workspace_bytes(const Attention& work, std::span<const exec::Operand> operands) const;
  // Starts it; has_plan() must be true. `workspace` has workspace_bytes() bytes on the device, aligned to 256, and is
  // in use until the work is done.
  void run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace, const Stream& stream);

  struct Plan;

 private:
  // Everything that the plan of a graph depends on.
  using Key = std::array<std::int64_t, 19>;
  static Key key_of(const AttentionShape& shape, bool is_forward);
  // A region of attention with its operands, for take_fastest() to run.
  struct Trial {
    const Attention& work;
    std::span<const exec::Operand> operands;
    std::size_t region;
    const Stream* stream;  // null: nothing runs
  };
  std::string refusal_of(const Attention& work, std::span<const exec::Operand> operands) const;  // "": none
  const Plan* plan_at(const Key& key) const;                                                     // null: there is none
  std::unique_ptr<Plan> plan_of(const AttentionShape& shape, const Trial& trial);
  // Takes the plan from the file. Returns false when the file has none, or cuDNN does not accept it.
  bool take_kept(Plan& plan, const PlanFile::Numbers& key);
  // Takes the fastest engine that can be compiled. Throws CudnnError when there is none.
  void take_fastest(Plan& plan, const Trial& trial);
  void start(const Plan& plan, const Attention& work, std::span<const exec::Operand> operands,
             const AttentionPlaces& places, std::byte* workspace, const Stream& stream);

  cudnnContext* handle_ = nullptr;
  DescribedDevice described_;
  std::string missing_;  // why there is no cuDNN, "" where there is
  std::string why_not_;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: there is no plan
  PlanFile file_;
  int from_file_ = 0;  // number of plans that came from the file
};

}  // namespace stretto::cuda
