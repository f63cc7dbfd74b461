#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

struct cudnnContext;

namespace stretto::cuda {

// A device that is described and not there, as cuDNN's CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it.
struct DescribedDevice {
  std::string json;
};

// Attention by cuDNN's fused kernels (bf16, heads of up to 256, causal or not, no dropout; grouped queries too), as graphs of its backend API:
// what has no plan is left to attention.cu. With grouped queries cuDNN rounds dk and dv of each head to bf16 before it
// adds up those of a group. Not thread-safe.
class AttentionRunner {
 public:
  // On the current device. Where cuDNN is missing, too old or does not start, nothing has a plan.
  AttentionRunner();
  // Plans for a device that is not there; run() must not be called.
  explicit AttentionRunner(const DescribedDevice& device);
  ~AttentionRunner();
  AttentionRunner(const AttentionRunner&) = delete;
  AttentionRunner& operator=(const AttentionRunner&) = delete;

  // Makes the plan of these operands, which takes a second or two the first time: cuDNN compiles it. False when it has
  // none; why_not() then says so in cuDNN's words.
  bool prepare(const Attention& work, std::span<const exec::Operand> operands);
  const std::string& why_not() const { return why_not_; }
  // Bytes of workspace that run() needs: cuDNN's own, and for a gradient the sums in f32. A multiple of
  // 256, so that workspaces can follow one another.
  std::int64_t workspace_bytes(const Attention& work, std::span<const exec::Operand> operands) const;
  // Starts it; prepare() must have returned true. `workspace`: as many bytes, on the device and aligned to
  // 256, used until it is done.
  void run(const Attention& work, std::span<const exec::Operand> operands, std::byte* workspace, const Stream& stream);

  struct Plan;

 private:
  using Key = std::array<std::int64_t, 10>;
  static Key key_of(const Attention& work, std::span<const exec::Operand> operands);

  cudnnContext* handle_ = nullptr;
  std::string device_json_;
  std::string missing_;  // why there is no cuDNN, "" where there is
  std::string why_not_;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: there is none
};

}  // namespace stretto::cuda
