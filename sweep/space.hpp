#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/toml.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::sweep {

// The layouts and settings that a sweep searches: every combination of the values of its axes.

// One key with its values, as text that --set takes. `key` is a scenario's key in full ("parallel.…", "training.…"), or
// "gpus", the number of GPUs, or "platform" (sweep/names.hpp).
struct Axis {
  std::string key;
  std::vector<std::string> values;
  std::string place = {};  // where it was given, for messages: "--over tp", "scenario.toml:12: [sweep] tp"
};

struct Space {
  std::vector<Axis> axes;  // keys differ; each has one value or more
  std::int64_t points() const;
  // Returns the values of a point, one for each axis. Points are numbered from 0; the last axis varies fastest.
  std::vector<std::string> at(std::int64_t point) const;
};
constexpr std::int64_t kMostPoints = 100'000'000;

// Reads axes: the table [sweep] of a scenario, then `over`, "key=value,value" or "key=legal", which replaces the
// table's axis of that key. Keys may be short (sweep/names.hpp). "legal" stands for every value that may be legal
// (sweep/legal.hpp), on the largest number of GPUs. "layout=legal" stands for all keys of layouts that are not given,
// and is meant where nothing is given but gpus, platform and the batch; "overlap=legal" for all switches of modes that
// act in some of these layouts.
// Throws Error(input): an unknown key with its nearest spelling, a key twice, no value, "legal" for a key that has no
// list of values, a size that is no number, more than kMostPoints points.
Space read_space(TomlTable table, const std::vector<std::string>& over, const Scenario& scenario,
                 const sim::Platform& platform);

// The overrides of one point. `platform` is set where the platform is an axis.
struct PointSettings {
  std::vector<std::string> set;  // "section.key=value"
  std::string platform;
};

// Returns settings that give each axis of read_space() its first value, where that is a list, and one replica where the
// number of GPUs is an axis; only the platform where neither GPUs nor replicas are an axis and sizes of the layout are,
// from which the number of GPUs follows. A scenario whose own values cannot go together may be read with these. Throws
// as read_space() does.
PointSettings first_values(TomlTable table, const std::vector<std::string>& over);

// Returns one line that says what the sweep does not vary: axes by their short names, with the option that adds one,
// and the keys of [parallel] and [overlap] whose values are not the defaults.
std::string not_searched(const Space& space, const Scenario& scenario);

}  // namespace stretto::sweep
