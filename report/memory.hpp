#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/quantity.hpp"
#include "model/schedule/outside_plan.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"
#include "report/table.hpp"
#include "report/units.hpp"

namespace stretto {

// The bytes that a rank holds at the peak of a step. The parts add up to taken(). They are Stretto's own memory plan,
// which `train` allocates byte for byte, or the memory of the scenario's framework (predict/framework_memory.hpp);
// never both. In a plan, parameters, optimizer state, inputs and scalars share with nobody, while gradients,
// activations and workspaces share bytes: a byte that several of them have counts for the first in this order.
struct MemoryUse {
  std::string role;  // role of the ranks: "rank", "stage 0"
  std::int64_t parameters = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t inputs_and_scalars = 0;
  std::int64_t gradients = 0;
  std::int64_t activations = 0;
  std::int64_t workspace = 0;  // includes the gaps of alignment
  // Further tensors that the framework's kernels keep, by cause.
  std::vector<OutsidePlan> further = {};
  std::int64_t held = 0;  // bytes that PyTorch's allocator holds above the allocated ones
  // Bytes whose contents stay for the step: parameters, gradients, optimizer state, inputs and scalars, as the
  // framework holds them.
  std::int64_t state = 0;
  // Sources of parts whose bytes an element the framework's profile states, by name of part: "gradients".
  std::map<std::string, Source> sources = {};

  std::int64_t allocated() const {
    return parameters + optimizer_state + inputs_and_scalars + gradients + activations + workspace + sum_of(further);
  }
  std::int64_t taken() const { return allocated() + held; }
};

// Returns the part of the use that storages of a kind belong to.
std::int64_t& part_of(MemoryUse& use, BufferKind kind);

// Returns one entry for each role. `plan` must be the schedule's.
std::vector<MemoryUse> memory_use(const Schedule& schedule, const MemoryPlan& plan);

// Whether a prediction of memory fits into a device: `tight` where the device's memory lies in its interval.
enum class Fit : std::uint8_t { fits, tight, does_not_fit };
const char* name_of(Fit fit);  // "fits", "tight", "does not fit"
// `unsure`: the half width of the prediction's interval as a share of it. A device of 0 bytes is not known.
Fit fit_of(double bytes, double device_bytes, double unsure);

// All memory of a device that is in use at the peak of a step: on a GPU, what nvidia-smi shows as used.
struct DeviceMemory {
  std::vector<MemoryUse> roles;  // [program]
  std::int64_t ranks_per_device = 1;
  std::int64_t device_bytes = 0;          // bytes of the device: on a GPU, what nvidia-smi shows as its total
  std::vector<OutsidePlan> outside_plan;  // memory outside of its ranks' tensors: context, libraries, NCCL
  double unsure = 0;                      // half width of the interval, as a share; 0: exact

  std::int64_t reserved_bytes() const { return sum_of(outside_plan); }
  std::size_t fullest() const;  // index of the role that takes most; there must be one
  // Peaks of a rank of the fullest role: of tensors, and of the bytes that its allocator holds.
  std::int64_t allocated_bytes() const { return roles.empty() ? 0 : roles[fullest()].allocated(); }
  std::int64_t taken_bytes() const { return roles.empty() ? 0 : roles[fullest()].taken(); }
  // The one number of memory: the peak of a device whose ranks are all of the fullest role.
  std::int64_t predicted_bytes() const { return roles.empty() ? 0 : bytes_of(roles[fullest()]); }
  std::int64_t bytes_of(const MemoryUse& use) const { return use.taken() * ranks_per_device + reserved_bytes(); }
  // Returns the bytes left free on a device of that role; below 0 there are too few.
  std::int64_t free_bytes_of(const MemoryUse& use) const { return device_bytes - bytes_of(use); }
  std::int64_t free_bytes() const { return device_bytes - predicted_bytes(); }
  Fit fit() const { return fit_of(double(predicted_bytes()), double(device_bytes), unsure); }
  bool fits() const { return free_bytes() >= 0; }
  // Returns the parts of predicted_bytes(), which add up to it, without those of 0 bytes.
  std::vector<OutsidePlan> parts() const;
};

// Returns "58.99 GiB of 79.65 GiB a GPU; fits, 20.66 GiB are free on stage 0, the fullest". `device`: "GPU".
std::string memory_text(const DeviceMemory& memory, const std::string& device = "device");
// Returns a table of parts(), with their sum. The printed numbers add up to the printed sum.
Table memory_table(const DeviceMemory& memory);
// Returns a table with a row for each role: parts, sum and free bytes of a device of that role. The sum of the fullest
// is predicted_bytes(); the printed numbers of a row add up to its printed sum.
Table stages_table(const DeviceMemory& memory);
// Returns both tables as text: the second only where there are several roles.
std::string memory_tables_text(const DeviceMemory& memory);

// Returns the values in a unit, rounded to its decimals so that the printed numbers add up to the printed sum. No value
// may be below 0.
std::vector<std::string> numbers_that_add_up(const std::vector<std::int64_t>& values, const Unit& unit);

}  // namespace stretto
