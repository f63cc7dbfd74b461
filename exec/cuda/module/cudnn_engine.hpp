#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/module/cudnn_graph.hpp"
#include "exec/cuda/module/plan_file.hpp"

namespace stretto::cuda {

// The device for graphs: that of a started cuDNN, or a described one (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION) that
// is absent.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::string device_json;  // "" with a handle
};

// A finished graph of operations, for which engines can be requested. Throws CudnnError.
class CudnnOperations {
 public:
  CudnnOperations(std::span<const cudnnBackendDescriptor_t> operations, const CudnnTarget& target);
  const CudnnTarget& target() const { return target_; }
  cudnnBackendDescriptor_t handle() const { return operations_.handle(); }
  cudnnBackendDescriptor_t device() const { return device_ ? device_->handle() : nullptr; }  // null with a handle

 private:
  CudnnTarget target_;
  CudnnDescriptor operations_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  std::unique_ptr<CudnnDescriptor> device_;
};

// An engine with its knobs set, compiled: it runs the graph.
struct CudnnPlan {
  std::unique_ptr<CudnnDescriptor> configuration, plan;
  std::int64_t workspace_bytes = 0;
};

// Returns the engine and its knobs: its global index, then type and value of every knob. A file of plans keeps these
// numbers, for one graph, version of cuDNN and device.
PlanFile::Numbers numbers_of(const CudnnDescriptor& configuration);

// Returns the configurations that cuDNN's heuristics propose, the most promising first: those of mode A, then those of
// its fallback; all different, at most `most`. Throws CudnnError when there are none.
std::vector<std::unique_ptr<CudnnDescriptor>> proposed_configurations(const CudnnOperations& operations, int most);
// Returns the configuration that numbers_of() described. Throws CudnnError when cuDNN does not have it.
std::unique_ptr<CudnnDescriptor> configuration_of(const CudnnOperations& operations, const PlanFile::Numbers& numbers);

// Compiles a configuration. Throws CudnnError when it does not run this graph.
CudnnPlan plan_of(const CudnnOperations& operations, std::unique_ptr<CudnnDescriptor> configuration);

}  // namespace stretto::cuda
