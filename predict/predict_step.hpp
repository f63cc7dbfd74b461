#pragma once
#include <span>
#include <string>

#include "model/scenario.hpp"
#include "model/verify/verify.hpp"
#include "predict/quick_step.hpp"
#include "report/prediction.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// One simulated step of a scenario, with the objects from which its numbers were taken.
struct PredictedStep {
  Schedule schedule;
  MemoryPlan plan;
  sim::SimResult result;
  Prediction prediction;
};

// The options with which a scenario is simulated on an engine, "fluid" or "simgrid", and the platform without the links
// that the engine's fabric carries. `backbone_GBps`: one link that all traffic between ranks crosses, or on published
// GPUs all traffic between nodes; 0: none. Throws Error(input) when the engine has no such link, or the link is too
// slow for any step.
struct Engine {
  sim::SimOptions options;
  sim::Platform platform;
};
Engine engine_of(const std::string& name, double backbone_GBps, const sim::Platform& platform,
                 const Scenario& scenario);

// Builds, verifies and simulates the scenario's schedule. Throws Error(input) as build_schedule(), plan_and_verify()
// and sim::cost_schedule() do.
PredictedStep predict_step(const Scenario& scenario, const sim::Platform& platform,
                           const sim::SimOptions& options = {});

// Predicts the same step for callers that need no timeline; on a published GPU from as few micro-batches as suffice
// (predict/quick_step.hpp). Times are those of predict_step(), memory is that of few micro-batches. Throws as
// predict_step() does.
Prediction predict_times(const QuickStep& step, const sim::Platform& platform, const sim::SimOptions& options = {});

// Returns the peak (docs/mfu.md): the data sheet's figure for a GPU; a large GEMM, where there is none or the device is
// a host. It is for the type in which the schedule multiplies, or absent.
PeakRate peak_of(const sim::Platform& platform, const Cluster& cluster, const Schedule& schedule, std::int64_t devices);

// Returns the use of a device's memory: by the tensors of its ranks, and outside of them for the role that has most
// there. The tensors are the framework's (predict/framework_memory.hpp); of Stretto's own profile they are its plan,
// and a host has nothing else. `programs`: bound programs of the schedule, as far as they are known; others are bound.
DeviceMemory memory_of(const Schedule& schedule, const MemoryPlan& plan, const sim::Platform& platform,
                       const Training& training, const Framework& framework,
                       std::span<const BoundProgram> programs = {});

}  // namespace stretto::predict
