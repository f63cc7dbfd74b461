#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::sweep {

// The layouts and settings that a sweep searches: every combination of the values of its axes.

// One key with its values, as text that --set takes. `key` is a scenario's key in full ("parallel.…", "training.…"), or
// "gpus", the number of GPUs, or "platform".
struct Axis {
  std::string key;
  std::vector<std::string> values;
};

struct Space {
  std::vector<Axis> axes;  // keys differ; each has one value or more
  std::int64_t points() const;
  // Returns the values of a point, one for each axis. Points are numbered from 0; the last axis varies fastest.
  std::vector<std::string> at(std::int64_t point) const;
};
constexpr std::int64_t kMostPoints = 100'000'000;

// Reads axes: the table [sweep] of a scenario, then `over`, "key=value,value" or "key=legal", which replaces the
// table's axis of that key. A key of one section may be written without it. "legal" stands for every value that may be
// legal for the scenario's model on `most_gpus` GPUs of the platform; which combinations are is decided by the
// scenario's reader. Without axes other than gpus, platform and the batch these are legal: tensor, pipeline,
// virtual-pipeline, context and, with experts, expert parallelism, the micro-batch size and recompute_granularity.
// Throws Error(input): an unknown key with its nearest spelling, a key twice, no value, "legal" for a key that has no
// list of values, more than kMostPoints points.
Space read_space(TomlTable table, const std::vector<std::string>& over, const Scenario& scenario,
                 const sim::Platform& platform);

// Returns one line that says which keys of [parallel] and [overlap] the sweep does not vary.
std::string not_searched(const Space& space, const Scenario& scenario);

// Returns the overrides of one point, complete: with the data-parallel size and the global batch, which is the
// scenario's unless it is an axis. nullopt where sizes do not divide: GPUs by the layout, the batch by ranks and
// micro-batches, layers by stages (where a split is
// nearly even, a point has a pipeline_model_parallel_layout). `platform` is set where the platform is an axis.
struct PointSettings {
  std::vector<std::string> set;
  std::string platform;
};
std::optional<PointSettings> settings_of(const Space& space, const std::vector<std::string>& values,
                                         const Scenario& scenario);

}  // namespace stretto::sweep
