#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/launch/process_group.hpp"

namespace stretto::launch {

// Cores of its own for each of the processes that a job has on one machine, so that they neither share one while
// another is idle nor move away from their memory: Linux gives a page of the NUMA node whose core touches it first.

// A core, with the processors that share it (SMT).
struct Core {
  std::int64_t node = 0;  // NUMA
  std::vector<int> processors;
  bool operator==(const Core&) const = default;
};

// Files of the system are looked for under `root`, which is "" but in tests. What cannot be read there is taken to be
// one node, and one processor a core.

// The cores that `allowed` processors are of, and of their processors those; by node, then by number.
std::vector<Core> read_cores(const std::string& root, std::span<const int> allowed);
// The node of the GPU that CUDA gives this number on a machine, modulo their count; -1: not known. By the driver's list
// in the order of the bus, which is CUDA's where all are alike, and CUDA_VISIBLE_DEVICES, if it is numbers.
std::int64_t node_of_gpu(const std::string& root, std::int64_t number, const std::string& visible_devices);

// [process of a machine]: processors of its own, whole cores, at least `least`. `nodes`: where each wants to be, -1:
// anywhere. Who wants to be anywhere is on one node where that costs nobody a core. Empty: there are too few.
std::vector<std::vector<int>> divide(std::span<const Core> cores, std::span<const std::int64_t> nodes,
                                     std::int64_t least);

// "0-3,8", as the system writes it.
std::string list_of_processors(std::span<const int> processors);

struct Affinity {
  std::vector<std::string> processors;  // [rank of all]: list_of_processors(), "" where it is as it was started
  std::int64_t mine = 0;                // how many this process was bound to; 0: it was not
};
// Binds the calling process, all its threads and those that they start from now on, where its machine has more of the
// job and nobody has bound them: where all of them may run on the same processors, among which they are then divided.
// Collective. `least`: processors that this process needs. `is_gpu`: it is to be near its GPU. What the system refuses
// leaves it as it was.
Affinity bind_to_cores(ProcessGroup& processes, std::int64_t least, bool is_gpu);

}  // namespace stretto::launch
