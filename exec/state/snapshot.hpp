#pragma once
#include <cstddef>
#include <vector>

#include "exec/executor.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// A copy of the state of all ranks in this process: persistent storages, bit for bit, whatever the layout. Take and
// restore only while no step runs.
class Snapshot {
 public:
  void take(const Schedule& schedule, Executor& executor);
  // Writes the copy back, so that the next step begins as if no step had run since take().
  void restore(const Schedule& schedule, Executor& executor) const;

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace stretto::exec
