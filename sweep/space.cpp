#include "sweep/space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/scenario/keys.hpp"
#include "sweep/legal.hpp"
#include "sweep/names.hpp"
#include "sweep/settings.hpp"

namespace stretto::sweep {
namespace {

const std::vector<std::string> kLegal = {"legal"};

// An axis as it was given, and its place for messages.
struct Given {
  std::string key, place;
  std::vector<std::string> values;
  bool is_implied = false;  // by "layout" or "overlap"
};

Given given_by(const std::string& over) {
  const std::size_t equals = over.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == over.size())
    throw input_error(fmt::format("--over: expected KEY=VALUE,… or KEY=legal, got {}", in_quotes(over)));
  Given given{full_key(over.substr(0, equals), "--over"), "--over " + over.substr(0, equals), {}};
  for (std::size_t begin = equals + 1; begin <= over.size();) {
    const std::size_t end = std::min(over.find(',', begin), over.size());
    given.values.push_back(over.substr(begin, end - begin));
    begin = end + 1;
  }
  return given;
}

std::vector<std::string> values_in(TomlTable& table, const std::string& key) {
  if (!table.has_array(key)) {
    try {
      if (const auto text = table.find<std::string>(key)) return {*text};
    } catch (const Error&) {
    }
    throw table.error(key, "a list of values, or \"legal\"");
  }
  // A list has values of one type; the type of the key decides when a point is read.
  try {
    const auto numbers = table.find<std::vector<std::int64_t>>(key);
    std::vector<std::string> texts;
    for (const std::int64_t number : numbers.value()) texts.push_back(std::to_string(number));
    return texts;
  } catch (const Error&) {
  }
  try {
    return *table.find<std::vector<std::string>>(key);
  } catch (const Error&) {
  }
  throw table.error(key, "a list of whole numbers or of strings (\"true\" and \"false\" for a switch)");
}

// Returns the axes as the table and --over give them, in this order; --over replaces the table's.
std::vector<Given> given_axes(TomlTable& table, const std::vector<std::string>& over) {
  std::vector<Given> given;
  const auto add = [&](Given one, bool replaces) {
    const auto same = std::find_if(given.begin(), given.end(), [&](const Given& g) { return g.key == one.key; });
    if (same == given.end()) return given.push_back(std::move(one));
    if (!replaces) throw input_error(one.place + ": expected every key once, got " + one.key + " twice");
    *same = std::move(one);
  };
  for (const std::string& key : table.keys()) {
    std::vector<std::string> values = values_in(table, key);
    const std::string place = table.place(key);
    add({full_key(key, place), place, std::move(values)}, false);
  }
  table.finish();
  const std::size_t in_table = given.size();
  for (const std::string& text : over) {
    Given one = given_by(text);
    const bool is_again = std::any_of(given.begin() + std::ptrdiff_t(in_table), given.end(),
                                      [&](const Given& g) { return g.key == one.key; });
    add(std::move(one), !is_again);
  }
  return given;
}

// Removes "layout" or "overlap" and returns whether it was there.
bool take_several(std::vector<Given>& given, const char* name) {
  const auto found = std::find_if(given.begin(), given.end(), [&](const Given& one) { return one.key == name; });
  if (found == given.end()) return false;
  if (found->values != kLegal)
    throw input_error(fmt::format("{}: expected \"legal\", because {} stands for several keys, got {}", found->place,
                                  name, in_quotes(fmt::format("{}", fmt::join(found->values, ",")))));
  given.erase(found);
  return true;
}

void add_legal(std::vector<Given>& given, const std::vector<std::string>& keys, const Scenario& scenario) {
  for (const std::string& key : keys) {
    if ((key == kEp || key == kEtp) && !scenario.model.experts.any()) continue;
    if (std::none_of(given.begin(), given.end(), [&](const Given& one) { return one.key == key; }))
      given.push_back({key, short_name(key), kLegal, true});
  }
}

}  // namespace

std::int64_t Space::points() const {
  double product = 1;
  for (const Axis& axis : axes) product *= double(axis.values.size());
  return product > double(kMostPoints) ? kMostPoints + 1 : static_cast<std::int64_t>(product);
}

std::vector<std::string> Space::at(std::int64_t point) const {
  std::vector<std::string> values(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    const auto count = std::ssize(axes[i].values);
    values[i] = axes[i].values[static_cast<std::size_t>(point % count)];
    point /= count;
  }
  return values;
}

Space read_space(TomlTable table, const std::vector<std::string>& over, const Scenario& scenario,
                 const sim::Platform& platform) {
  std::vector<Given> given = given_axes(table, over);
  // Machines and batches alone ask for the best layout on each.
  const bool asks_for_layouts = std::all_of(given.begin(), given.end(), [](const Given& one) {
    return one.key == kGpus || one.key == kPlatform || one.key == kBatch;
  });
  const bool has_switches = take_several(given, kOverlap);
  if (take_several(given, kLayout) || asks_for_layouts) add_legal(given, layout_keys(), scenario);
  std::int64_t gpus = scenario.parallel.ranks();
  for (const Given& one : given)
    if (one.key == kGpus)
      for (const std::string& value : one.values) gpus = std::max(gpus, number_of(value, one.place));

  Space space;
  const auto take_all = [&] {
    for (Given& one : given) {
      if (one.values == kLegal) {
        one.values = legal_values(one.key, scenario, platform, gpus);
        if (one.values.empty() && one.is_implied) continue;
        if (one.values.empty())
          throw input_error(one.place + ": expected a list of values, got \"legal\": " + one.key +
                            " has no list of its own");
      }
      if (one.values.empty()) throw input_error(one.place + ": expected one value or more, got none");
      for (std::size_t i = 0; i < one.values.size(); ++i)
        if (std::count(one.values.begin(), one.values.end(), one.values[i]) > 1)
          throw input_error(fmt::format("{}: expected different values, got {} twice", one.place, one.values[i]));
      space.axes.push_back({one.key, one.values, one.place});
    }
  };
  take_all();
  if (has_switches) {
    const std::vector<Axis> known = std::exchange(space.axes, {});
    add_legal(given, legal_switches(known, scenario), scenario);
    take_all();
  }
  require_sizes(space, scenario);
  if (space.points() > kMostPoints)
    throw input_error(
        fmt::format("[sweep]: expected at most {} combinations, got more; list fewer values", kMostPoints));
  return space;
}

PointSettings first_values(TomlTable table, const std::vector<std::string>& over) {
  PointSettings first;
  bool has_gpus = false, has_replicas = false, changes_size = false;
  for (const Given& one : given_axes(table, over)) {
    has_gpus = has_gpus || one.key == kGpus;
    has_replicas = has_replicas || one.key == kDp;
    changes_size = changes_size || one.key == kTp || one.key == kPp || one.key == kCp;
    if (one.values == kLegal || one.values.empty()) continue;
    if (one.key == kPlatform) first.platform = one.values.front();
    if (one.key.find('.') != std::string::npos) first.set.push_back(one.key + "=" + one.values.front());
  }
  if (changes_size && !has_gpus && !has_replicas) first.set.clear();  // the number of GPUs is the scenario's
  if (has_gpus && !has_replicas) first.set.push_back(std::string(kDp) + "=1");
  return first;
}

std::string not_searched(const Space& space, const Scenario& scenario) {
  const auto axis_of = [&](const std::string& key) {
    return std::find_if(space.axes.begin(), space.axes.end(), [&](const Axis& axis) { return axis.key == key; });
  };
  const auto varies = [&](const std::string& key) {
    const auto axis = axis_of(key);
    return axis != space.axes.end() && axis->values.size() > 1;
  };
  std::vector<std::string> left_out, kept;
  std::vector<std::string> keys = layout_keys();
  keys.insert(keys.end(), {kSharding, kSchedule});
  for (const std::string& key : keys) {
    if ((key == kEp || key == kEtp) && !scenario.model.experts.any()) continue;
    if (!varies(key)) left_out.push_back(short_name(key));
  }
  const std::vector<std::string> switches = legal_switches(space.axes, scenario);
  if (!std::all_of(switches.begin(), switches.end(), varies)) left_out.emplace_back(kOverlap);
  for (const char* section : {"parallel", "overlap"})
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      if (key.field == nullptr || key.full_name() == kDp || axis_of(key.full_name()) != space.axes.end()) continue;
      const KeyValue value = value_of(key, scenario), by_default = value_of(key, Scenario{});
      if (value != by_default && !value.is_null()) kept.push_back(fmt::format("{} {}", key.name, value.dump()));
    }
  std::string text = left_out.empty() ? ""
                                      : fmt::format("not searched: {} (--over {}=legal searches it too); ",
                                                    fmt::join(left_out, ", "), left_out.back());
  text += kept.empty() ? "" : fmt::format("as in the scenario: {}; ", fmt::join(kept, ", "));
  return text + "all other keys have their defaults";
}

}  // namespace stretto::sweep
