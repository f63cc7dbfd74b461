#pragma once
#include <cuda_runtime.h>

#include <utility>

namespace stretto::cuda {

// A step that has been captured, ready to be launched again and again.
struct StepGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  StepGraph() = default;
  ~StepGraph() { release(); }
  // One that runs is freed when it has ended.
  void release() {
    if (runnable != nullptr) cudaGraphExecDestroy(std::exchange(runnable, nullptr));
    if (graph != nullptr) cudaGraphDestroy(std::exchange(graph, nullptr));
  }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
};

}  // namespace stretto::cuda
