#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "predict/gain.hpp"
#include "predict/predict_modes.hpp"
#include "report/table.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// A change of the scenario, other than an overlap mode, with which a mode may win: "graphs of attention and router".
struct OverlapChange {
  std::string what;
  std::vector<std::string> set;  // as --set takes them
};
// Returns the changes that act on the price of overlap and leave what is trained alone: CUDA graphs of layers and of
// the step, which take the host's time away; larger and smaller micro-batches; more virtual stages; other dispatchers
// of experts; copy engines, which take no SM; buckets of other sizes; more hardware queues. Only those that the
// scenario does not have; then graphs of layers with larger micro-batches.
std::vector<OverlapChange> changes_for_overlap(const Scenario& scenario);

// The change that makes a mode win that costs time without it.
struct Remedy {
  std::string mode;
  OverlapChange change;            // `what` is empty where none was found
  double step_ms = 0;              // of the mode with the change
  double plain_ms = 0;             // of the plain schedule with the change, or without it where that is faster
  Gain gain;                       // of the mode over the plain schedule, both with the change
  std::vector<std::string> tried;  // changes that could be simulated and have an effect
};
// Returns a remedy for each mode of `modes` that costs more than Advice::kSmall_pct. A mode wins where its step, on a
// device that it fits, is shorter by as much than the plain schedule's with the change and without it; the shortest
// such step is taken. `read` returns the scenario with further overrides, and throws Error(input) where they are
// refused. The search ends after it has built two million operations, independent of the clock. Published GPUs only;
// others give none.
std::vector<Remedy> remedies_of(const Scenario& scenario, const sim::Platform& platform,
                                const std::vector<PredictedMode>& modes,
                                const std::function<Scenario(const std::vector<std::string>& set)>& read);

// Return a line for each remedy, without a line break at the end, and `remedies` of `simulate` in docs/json.md.
std::string remedies_text(const std::vector<Remedy>& remedies);
Sheet remedies_sheet(const std::vector<Remedy>& remedies);

}  // namespace stretto::predict
