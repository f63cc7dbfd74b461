#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/quantity.hpp"
#include "model/framework_memory.hpp"

namespace stretto {

// How one generation of a training framework runs a step on GPUs, besides what its schedule says: which kernels it has
// and what the host needs to issue them. Read from a profile (docs/profiles.md), whose other keys are defaults of the
// scenario: fusions, overlap, optimizer. A profile is never a factor on a total.
struct Framework {
  std::string name;                // "": none, the platform's own constants
  std::string attention_kernel;    // of the platform; "" its default
  std::int64_t softmax_heads = 1;  // of unfused attention: its kernel takes a multiple of so many; 1: any
  // Memory traffic of one element, in bytes, by kind of work ("adamw", "cross_entropy"), where the framework's kernels
  // read and write more often than the operands of the operation say.
  std::map<std::string, Quantity> element_bytes;
  // In place of the platform's, where the framework's software decides and not the device.
  std::optional<Quantity> gemm_sustained, hbm_share, kernel_us, bmm_share, collective_in_step_us;
  // Host time to issue an operation, and a communication besides; before each micro-batch's part on a stage, and after
  // a step, when the host has waited for the device.
  Quantity issue_us, collective_issue_us, micro_batch_us, step_us;
  bool host_waits_for_messages = false;  // of the pipeline, before it issues anything else
  FrameworkMemory memory = {};
};

}  // namespace stretto
