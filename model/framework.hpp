#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.hpp"
#include "model/framework_host.hpp"
#include "model/framework_memory.hpp"

namespace stretto {

// How one generation of a training framework runs a step on GPUs: which kernels it has and how long the host takes to
// issue them. A profile (docs/profiles.md) gives these; the profile's other keys are defaults of the scenario (fusions,
// overlap, optimizer). A profile is never a factor on a total.
struct Framework {
  std::string name;                // "": no framework; the platform's own constants
  std::string attention_kernel;    // a kernel of the platform; "": the platform's default
  std::int64_t softmax_heads = 1;  // the kernel of unfused attention takes a multiple of this many heads; 1: any number
  // Its norm kernels also write codes by a known scale (delayed scaling), or take the largest magnitude, of their
  // output.
  bool norm_quantises = false;
  // Memory traffic of one element in bytes, by kind of work ("adamw", "cross_entropy"), where the framework's kernels
  // read and write more often than the operation's operands say.
  std::map<std::string, Quantity> element_bytes;
  // Constants that replace the platform's, where the framework's software decides them and not the device.
  std::optional<Quantity> gemm_sustained, hbm_share, kernel_us, bmm_share, collective_in_step_us;
  FrameworkHost host = {};
  FrameworkMemory memory = {};
  std::vector<std::string> files;  // from which the profile was read: its own and its base's
};

}  // namespace stretto
