#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/launch/process_group.hpp"

namespace stretto::launch {

// Gives each of the processes that a job has on one machine cores of its own, so that they neither share one while
// another is idle nor move away from their memory: Linux puts a page on the NUMA node whose core touches it first.

// A core, with the processors that share it (SMT).
struct Core {
  std::int64_t node = 0;  // NUMA
  std::vector<int> processors;
  bool operator==(const Core&) const = default;
};

// Files of the system are read under `root`, which is "" except in tests. Where they cannot be read, the machine counts
// as one node with one processor a core.

// Returns the cores that have `allowed` processors, with only these processors; sorted by node, then by number.
std::vector<Core> read_cores(const std::string& root, std::span<const int> allowed);
// Returns the node of the GPU that CUDA gives this number on a machine, modulo their count; -1: not known. It uses the
// driver's list in the order of the bus, which is CUDA's order where all GPUs are of one model, and
// CUDA_VISIBLE_DEVICES, if it has numbers.
std::int64_t node_of_gpu(const std::string& root, std::int64_t number, const std::string& visible_devices);

// Returns [process of a machine]: processors of its own, whole cores, at least `least`. `nodes`: the node that each
// process prefers, -1: any. A process without a preference is on one node where that costs no process a core. Empty:
// there are too few cores.
std::vector<std::vector<int>> divide(std::span<const Core> cores, std::span<const std::int64_t> nodes,
                                     std::int64_t least);

// Returns "0-3,8", in the system's format.
std::string list_of_processors(std::span<const int> processors);

struct Affinity {
  std::vector<std::string> processors;  // [rank of all]: list_of_processors(), "" for a rank that was not bound
  std::int64_t mine = 0;                // number of processors that this process was bound to; 0: it was not bound
};
// Binds the calling process, with all its threads and those that they start later, where its machine has several
// processes of the job and nobody has bound them: where all of them may run on the same processors, which are then
// divided among them. Collective. `least` is the number of processors that this process needs. `is_gpu`: it should be
// near its GPU. Where the system refuses, the process stays as it was.
Affinity bind_to_cores(ProcessGroup& processes, std::int64_t least, bool is_gpu);

}  // namespace stretto::launch
