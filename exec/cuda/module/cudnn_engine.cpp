#include "exec/cuda/module/cudnn_engine.hpp"

#include <algorithm>
#include <utility>

namespace stretto::cuda {
namespace {

constexpr std::int64_t kMostKnobs = CUDNN_KNOB_TYPE_COUNTS;  // every type once

// Appends the configurations that a mode of the heuristics proposes.
void propose(const CudnnOperations& operations, cudnnBackendHeurMode_t mode, int most,
             std::vector<std::unique_ptr<CudnnDescriptor>>& to) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.handle());
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (operations.device() != nullptr)
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.device());
  heuristic.finalize();
  std::vector<std::unique_ptr<CudnnDescriptor>> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int i = 0; i < most; ++i) {
    found.push_back(std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    handles.push_back(found.back()->handle());
  }
  const std::int64_t count =
      heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.data(), most);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, most); ++i)
    to.push_back(std::move(found[static_cast<std::size_t>(i)]));
}

}  // namespace

CudnnOperations::CudnnOperations(std::span<const cudnnBackendDescriptor_t> operations, const CudnnTarget& target)
    : target_(target) {
  operations_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
                  static_cast<std::int64_t>(operations.size()));
  if (target_.handle != nullptr) operations_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target_.handle);
  operations_.finalize();
  if (target_.device_json.empty()) return;
  device_ = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, target_.device_json.c_str(),
               static_cast<std::int64_t>(target_.device_json.size()) + 1);
  device_->finalize();
}

PlanFile::Numbers numbers_of(const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.handle();
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &handle, 1);
  PlanFile::Numbers numbers = {engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64)};
  std::vector<std::unique_ptr<CudnnDescriptor>> knobs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < kMostKnobs; ++i) {
    knobs.push_back(std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    handles.push_back(knobs.back()->handle());
  }
  const std::int64_t count =
      configuration.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.data(), kMostKnobs);
  for (std::int64_t i = 0; i < std::min(count, kMostKnobs); ++i) {
    const CudnnDescriptor& knob = *knobs[static_cast<std::size_t>(i)];
    numbers.push_back(knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE));
    numbers.push_back(knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  return numbers;
}

std::vector<std::unique_ptr<CudnnDescriptor>> proposed_configurations(const CudnnOperations& operations, int most) {
  std::vector<std::unique_ptr<CudnnDescriptor>> all, different;
  CudnnError why{"no engine for this graph"};
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      propose(operations, mode, most, all);
    } catch (const CudnnError& error) {
      why = error;
    }
  }
  std::vector<PlanFile::Numbers> met;
  for (std::unique_ptr<CudnnDescriptor>& one : all) {
    PlanFile::Numbers numbers = numbers_of(*one);
    if (std::find(met.begin(), met.end(), numbers) != met.end()) continue;
    met.push_back(std::move(numbers));
    different.push_back(std::move(one));
    if (static_cast<int>(different.size()) == most) break;
  }
  if (different.empty()) throw why;
  return different;
}

std::unique_ptr<CudnnDescriptor> configuration_of(const CudnnOperations& operations, const PlanFile::Numbers& numbers) {
  if (numbers.size() % 2 == 0) throw CudnnError{"no configuration of an engine"};
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.handle());
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, numbers[0]);
  if (operations.device() != nullptr)
    engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.device());
  engine.finalize();
  std::vector<std::unique_ptr<CudnnDescriptor>> knobs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::size_t i = 1; i < numbers.size(); i += 2) {
    knobs.push_back(std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    knobs.back()->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                      static_cast<cudnnBackendKnobType_t>(numbers[i]));
    knobs.back()->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, numbers[i + 1]);
    knobs.back()->finalize();
    handles.push_back(knobs.back()->handle());
  }
  auto configuration = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration->set(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, engine.handle());
  if (!handles.empty())
    configuration->set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.data(),
                       static_cast<std::int64_t>(handles.size()));
  configuration->finalize();
  return configuration;
}

CudnnPlan plan_of(const CudnnOperations& operations, std::unique_ptr<CudnnDescriptor> configuration) {
  CudnnPlan made{std::move(configuration), std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
                 0};
  if (operations.target().handle != nullptr)
    made.plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, operations.target().handle);
  if (operations.device() != nullptr)
    made.plan->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.device());
  made.plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, made.configuration->handle());
  made.plan->finalize();
  made.workspace_bytes = made.plan->get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  return made;
}

}  // namespace stretto::cuda
