#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/cuda/launch_plan.hpp"
#include "exec/cuda/module/communication.hpp"
#include "exec/cuda/module/handles.hpp"

namespace stretto::cuda {

// The host's copies of numbers of rows that the device makes (launch_plan.hpp): one for each place on the device, in
// pinned memory, which the device writes while the host goes on. Must outlive the work that copies.
class HostCounts {
 public:
  // Makes a place for everything that the plan copies.
  HostCounts(const std::vector<BoundProgram>& programs, const LaunchPlan& launches, const OperandsOf& operands);
  // Starts the copy of an action of that kind.
  void copy(const exec::Operand& made, const Stream& stream) const;
  // Returns the copy of an operand, which the host must have waited for.
  const std::int32_t* of(const exec::Operand& counts) const;

 private:
  std::map<const void*, std::unique_ptr<PinnedMemory>> places_;  // by address on the device
};

}  // namespace stretto::cuda
