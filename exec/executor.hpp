#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "exec/host/memory.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::exec {

// What runs schedules, on whatever device. Owns the memory of all ranks. Use from one thread.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `steps` steps back to back and returns the timeline of the last. Its step_begin is the end of the step before,
  // or the start of the call. Throws Error(runtime) when an operation fails, a rank dies or nothing moves for too long;
  // the executor is then good for nothing but destruction.
  virtual Timeline run(int steps) = 0;

  // The same for who wants only how long a step takes (the last, or the mean of all): without rows, where taking their
  // times costs some.
  virtual Timeline run_without_rows(int steps) { return run(steps); }

  // All ranks of the schedule, or, where each is a process of its own, the one that is here. Rows of timelines are
  // numbered by their place in programs().
  virtual bool is_here(std::int64_t rank) const {
    return rank >= 0 && rank < static_cast<std::int64_t>(programs().size());
  }
  virtual const std::vector<BoundProgram>& programs() const = 0;  // of the ranks that are here, in order

  // The device that all ranks share; nullopt where that is this machine's processor.
  struct Device {
    std::string name;
    int sms = 0;
    std::int64_t memory_bytes = 0;
    double memory_GBps = 0;  // at most: clock times width; 0: not known
  };
  virtual std::optional<Device> device() const { return {}; }

  // What a user should know of how it runs this schedule, a line each.
  virtual std::vector<std::string> notes() const { return {}; }

  // What the host sees of a rank's memory while nothing runs: parameters, optimizer state, inputs, scalars and
  // gradients. Where the ranks' memory is elsewhere this is a copy, which upload() and download() keep the same.
  // The rank must be here.
  virtual host::RankMemory& memory(std::int64_t rank) = 0;
  enum class Contents : std::uint8_t {
    state,    // what lives across steps
    inputs,   // what is written before every step
    results,  // scalars
    all,      // all that the host sees
  };
  virtual void upload(Contents) {}
  virtual void download(Contents) {}
};

}  // namespace stretto::exec
