#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "exec/host/memory.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/outside_plan.hpp"

namespace stretto::exec {

// Runs one schedule on a device. Owns the memory of its ranks. Call it from one thread only.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `steps` steps back to back and returns the timeline of the last one. Its step_begin is the end of the previous
  // step, or the start of the call. Throws Error(runtime) when an operation fails, a rank dies or a rank makes no
  // progress until the timeout; after that the executor may only be destroyed.
  virtual Timeline run(int steps) = 0;

  // Runs steps when only the time of a step is needed (of the last one, or the mean of all). Leaves out the rows on
  // devices where timestamps cost time.
  virtual Timeline run_without_rows(int steps) { return run(steps); }

  // Returns whether the rank runs in this process. All ranks do, or each is a process of its own. Ranks in timelines
  // are indices into programs().
  virtual bool is_here(std::int64_t rank) const {
    return rank >= 0 && rank < static_cast<std::int64_t>(programs().size());
  }
  virtual const std::vector<BoundProgram>& programs() const = 0;  // programs of the ranks in this process, in order

  // The GPU that the ranks of this process share; nullopt on the host.
  struct Device {
    std::string name;
    int sms = 0;
    std::int64_t memory_bytes = 0;  // all of it: of a GPU what nvidia-smi shows as its total
    double memory_GBps = 0;         // upper bound: clock times width; 0: not known
    // Bytes of the device's memory that were used before this executor was made, and bytes outside the ranks' plans.
    std::vector<OutsidePlan> outside_plan = {};
    double compute_capability = 0;  // 9.0 for H100; 0: not known
  };
  virtual std::optional<Device> device() const { return {}; }

  // Returns facts about this schedule's execution that users should know, one line each.
  virtual std::vector<std::string> notes() const { return {}; }

  // Returns a rank's memory as the host sees it between runs: parameters, optimizer state, inputs, scalars and
  // gradients. When the ranks' memory is on a GPU, this is a copy: upload() copies it to the device, download() back.
  // The rank must run in this process. Owned by the executor.
  virtual host::RankMemory& memory(std::int64_t rank) = 0;
  enum class Contents : std::uint8_t {
    state,    // persistent storages
    inputs,   // storages that are written before every step
    results,  // scalars
    all,      // everything that the host sees
  };
  virtual void upload(Contents) {}
  virtual void download(Contents) {}
};

}  // namespace stretto::exec
