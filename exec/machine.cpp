#include "exec/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/checksum.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/host/executor.hpp"
#include "exec/kernel_types.hpp"
#include "exec/launch/process_group.hpp"

namespace stretto::exec {
namespace {

// A process sends this to the others: the memory that its ranks are going to take.
struct Need {
  std::uint64_t machine = 0;  // checksum of the machine's name
  std::int64_t bytes = 0;
};

Need need_of(const VerifiedSchedule& verified, const launch::ProcessGroup* processes) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  Checksum name;
  name.add(host);
  Need need{name.value(), 0};
  const Schedule& schedule = verified.schedule;
  const std::int64_t first = processes ? processes->rank() : 0, last = processes ? first + 1 : schedule.mesh.ranks();
  for (std::int64_t rank = first; rank < last; ++rank)
    need.bytes += verified.plan.roles[schedule.role_of(schedule.mesh.coordinates_of(rank))].bytes;
  return need;
}

// Throws Error(input) where the plans of all ranks on this machine need more than it has free: Linux hands out memory
// that it does not have, and kills a process once it is used.
void require_room(const VerifiedSchedule& verified, launch::ProcessGroup* processes) {
  const std::int64_t free = free_memory_bytes();  // before any process of the group allocates
  const Need mine = need_of(verified, processes);
  const std::vector<Need> all = processes ? processes->all_gather_value(mine) : std::vector<Need>{mine};
  std::int64_t needed = 0, ranks = processes ? 0 : verified.schedule.mesh.ranks();
  for (const Need& need : all)
    if (need.machine == mine.machine) needed += need.bytes, ranks += processes ? 1 : 0;
  if (needed <= free) return;
  throw input_error(fmt::format(
      "out of memory: {} rank{} on this machine's CPU need {} for their buffers, and {} are free; `stretto simulate` "
      "predicts the step without running it, and smaller sizes (num_layers, seq_length, micro_batch_size) or fewer "
      "ranks "
      "make it run here",
      ranks, ranks == 1 ? "" : "s", bytes_text(double(needed)), bytes_text(double(free))));
}

}  // namespace

Machine host_machine(int cores, std::function<bool()> stop, launch::ProcessGroup* processes) {
  const auto make = [=](const VerifiedSchedule& verified, RunOptions run) {
    if (const std::string missing = missing_kernel(verified.schedule, KernelPlace::host); !missing.empty())
      throw input_error(missing);
    require_room(verified, processes);
    host::HostOptions options{run};
    options.processes = processes;
    options.cores_per_device = cores;
    options.stop = stop;
    return std::make_unique<host::HostExecutor>(verified, std::move(options));
  };
  return {make, 1, processes};
}

Machine gpu_machine(launch::ProcessGroup* processes) {
  const auto make = [=](const VerifiedSchedule& verified, RunOptions run) {
    cuda::CudaOptions options{run};
    options.processes = processes;
    return cuda::make_cuda_executor(verified, options);
  };
  return {make, 2, processes};
}

}  // namespace stretto::exec
