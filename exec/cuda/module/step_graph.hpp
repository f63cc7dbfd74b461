#pragma once
#include <cuda_runtime.h>

#include <utility>

namespace stretto::cuda {

// A captured step, ready to be launched repeatedly. Owns both CUDA handles; nullptr: not captured yet. The graph refers
// to device memory, streams and events of the executor, which must outlive the last launch. For one thread.
struct StepGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  StepGraph() = default;
  ~StepGraph() { release(); }
  // Destroys the graph; a running one is freed when it has ended.
  void release() {
    if (runnable != nullptr) cudaGraphExecDestroy(std::exchange(runnable, nullptr));
    if (graph != nullptr) cudaGraphDestroy(std::exchange(graph, nullptr));
  }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
};

}  // namespace stretto::cuda
