#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/schedule/beside_plan.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"
#include "report/table.hpp"

namespace stretto {

// The contents of a rank's arena, in bytes. The sum is its peak, which the simulator predicts and the executor
// allocates. Parameters, optimizer state, inputs and scalars share with nobody. The plan lets gradients, activations
// and workspaces share bytes: a byte that several of them have counts for the first in this order.
struct MemoryUse {
  std::string role;  // role of the ranks: "rank", "stage 0"
  std::int64_t parameters = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t inputs_and_scalars = 0;
  std::int64_t gradients = 0;
  std::int64_t activations = 0;
  std::int64_t workspace = 0;  // includes the gaps of alignment
  // Differences where the scenario's framework takes other memory (table [memory] of its profile): by cause, below 0
  // where it takes less, and the bytes that its allocator holds above the allocated ones.
  std::vector<BesidePlan> by_framework = {};
  std::int64_t held = 0;
  // Bytes whose contents stay for the step: parameters, gradients, optimizer state, inputs and scalars, as the
  // framework holds them.
  std::int64_t state = 0;

  std::int64_t peak() const {
    return parameters + optimizer_state + inputs_and_scalars + gradients + activations + workspace;
  }
  // Returns the bytes that the framework allocates; without a table, the plan's.
  std::int64_t allocated() const { return peak() + sum_of(by_framework); }
  std::int64_t taken() const { return allocated() + held; }
};

// Returns one entry for each role. `plan` must be the schedule's.
std::vector<MemoryUse> memory_use(const Schedule& schedule, const MemoryPlan& plan);

// All ranks of a device and their use of its memory.
struct DeviceMemory {
  std::vector<MemoryUse> roles;  // [program]
  std::int64_t ranks_per_device = 1;
  std::int64_t device_bytes = 0;   // bytes of the device
  std::vector<BesidePlan> beside;  // memory outside its ranks' plans: context, libraries, fragmentation

  std::int64_t reserved_bytes() const { return sum_of(beside); }
  std::size_t fullest() const;      // index of the role that takes most; there must be one
  std::int64_t peak_bytes() const;  // peak of the plan that needs most
  // Peaks of a rank of the fullest role: of tensors, and of the bytes that its allocator holds; peak of a device, with
  // all memory outside of plans.
  std::int64_t allocated_bytes() const { return roles.empty() ? 0 : roles[fullest()].allocated(); }
  std::int64_t taken_bytes() const { return roles.empty() ? 0 : roles[fullest()].taken(); }
  std::int64_t predicted_bytes() const { return taken_bytes() * ranks_per_device + reserved_bytes(); }
  // Returns the bytes left free when all ranks of a device are of that role; below 0 the role does not fit.
  std::int64_t free_bytes_of(const MemoryUse& use) const;
  std::int64_t free_bytes() const { return free_bytes_of(roles.empty() ? MemoryUse{} : roles[fullest()]); }
  bool fits() const { return free_bytes() >= 0; }
};

// Returns "59.85 GiB a rank and 2.98 GiB reserved of 80.00 GiB; fits, 17.17 GiB are free on stage 0, the fullest".
std::string memory_text(const DeviceMemory& memory);
// Returns a table with a row for each role, then one for each part of a device's memory outside the plans.
Table memory_table(const DeviceMemory& memory);

}  // namespace stretto
