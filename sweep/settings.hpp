#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "sweep/space.hpp"

namespace stretto::sweep {

// Returns the settings of a point with these values, complete: with the data-parallel size and the global batch, which
// is the scenario's unless it is an axis. nullopt where it is none: where sizes do not divide (GPUs by the
// layout, the batch by ranks and micro-batches, layers by stages, the ranks of a stage by those that share experts),
// and where it would be another point once more: with a switch of [overlap] that no such layout can use, or a sharding
// strategy of a single replica. A point also has what its values need, unless that is an axis: a
// pipeline_model_parallel_layout where a split is nearly even, messages that overlap for pairs of passes, communication
// that overlaps for sharded gradients. Throws Error(input): a size that is no number.
std::optional<PointSettings> settings_of(const Space& space, const std::vector<std::string>& values,
                                         const Scenario& scenario);

// Throws Error(input), which names the place, where an axis of sizes has a value that is no size.
void require_sizes(const Space& space, const Scenario& scenario);

// Returns a size as a number. Throws Error(input), which names `place`.
std::int64_t number_of(const std::string& text, const std::string& place);

}  // namespace stretto::sweep
