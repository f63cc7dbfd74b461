#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "report/table.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// A scenario that was changed so that it fits into the memory of its devices, with the whole interval of the
// prediction.
struct FittingScenario {
  std::vector<std::string> changes;  // a line each: "recompute_granularity selective", "tensor_model_parallel_size 4"
  std::vector<std::string> set;      // the changes as --set takes them: "training.recompute_granularity=selective"
  double step_ms = 0;
  std::int64_t predicted_bytes = 0;  // predicted peak of a device (DeviceMemory::predicted_bytes())
  std::int64_t free_bytes = 0;       // what that leaves of the device
};

struct FitSearch {
  std::vector<FittingScenario> fitting;  // fewest changes first, then by step time
  std::int64_t tried = 0;                // sets of changes whose memory was planned
  bool complete = true;                  // false: the search ended at its bound before it had tried all sets
};

// Reads the scenario with these overrides in addition to its own. Throws as read_scenario() does.
using ReadChanged = std::function<Scenario(const std::vector<std::string>& set)>;

// Finds changes with which the scenario fits, on the same number of ranks with the same global batch: the distributed
// optimizer, recomputation, smaller micro-batches, sequence parallelism, twice the tensor or pipeline parallelism in
// place of data parallelism, no virtual stages. Tries each alone, then pairs and triples none of whose subsets
// suffices, until there are a few results. `read` decides which changes are legal. Each set is built and its memory
// planned; those that fit are verified and simulated.
//
// A pipeline repeats itself once it is full, so memory and time of a step grow by a constant amount with every further
// group of micro-batches. The steps that are built have a few groups; the rest is added. The search is bounded by the
// operations that it builds, not by a clock: equal inputs give equal results.
FitSearch find_fitting(const Scenario& scenario, const sim::Platform& platform, const ReadChanged& read,
                       const sim::SimOptions& options = {});

Sheet fitting_sheet(const FitSearch& search);  // `fits_with` of docs/json.md

}  // namespace stretto::predict
