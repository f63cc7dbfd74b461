#include "sweep/space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "model/scenario/keys.hpp"

namespace stretto::sweep {
namespace {

constexpr const char *kTp = "parallel.tensor_model_parallel_size", *kPp = "parallel.pipeline_model_parallel_size",
                     *kVp = "parallel.virtual_pipeline_model_parallel_size", *kCp = "parallel.context_parallel_size",
                     *kEp = "parallel.expert_model_parallel_size", *kDp = "parallel.data_parallel_size",
                     *kMicroBatch = "training.micro_batch_size", *kBatch = "training.global_batch_size",
                     *kRecompute = "training.recompute_granularity", *kGpus = "gpus", *kPlatform = "platform";

std::vector<std::string> texts(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> result;
  for (const std::int64_t number : numbers) result.push_back(std::to_string(number));
  return result;
}

// Returns the divisors of any of `wholes` up to `most`, in order.
std::vector<std::int64_t> divisors(const std::vector<std::int64_t>& wholes, std::int64_t most) {
  std::vector<std::int64_t> result;
  for (std::int64_t d = 1; d <= most; ++d)
    if (std::any_of(wholes.begin(), wholes.end(), [&](std::int64_t whole) { return whole % d == 0; }))
      result.push_back(d);
  return result;
}

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> result;
  for (std::int64_t p = 1; p <= most; p *= 2) result.push_back(p);
  return result;
}

// Returns the layers that pipeline stages share; the embedding and the head may count as one each.
std::int64_t split_layers(const Scenario& scenario) {
  return scenario.model.num_layers + scenario.parallel.account_for_embedding_in_pipeline_split +
         scenario.parallel.account_for_loss_in_pipeline_split;
}
bool splits_unevenly(const Parallel& parallel) {
  return parallel.num_layers_in_first_pipeline_stage > 0 || parallel.num_layers_in_last_pipeline_stage > 0 ||
         !parallel.pipeline_model_parallel_layout.empty();
}

std::vector<std::int64_t> merged(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
}

// The most by which the longest chunk of an uneven split exceeds the mean: beyond that other layouts are faster.
constexpr double kMostUneven = 1.25;

// Returns a layout ("Ett|ttt|ttL") of layers that the chunks of a pipeline do not divide: the first and the last chunk,
// which have the embedding and the head too, are short ones. nullopt where it would be too uneven.
std::optional<std::string> uneven_layout(std::int64_t layers, std::int64_t chunks) {
  const std::int64_t least = layers / chunks, rest = layers % chunks;
  if (least == 0 || double(least + 1) * double(chunks) > kMostUneven * double(layers)) return std::nullopt;
  std::string layout = "E";
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    // Long chunks come from the second on.
    const bool is_long = chunk > 0 && chunk <= rest;
    layout += std::string(static_cast<std::size_t>(least + (is_long ? 1 : 0)), 't');
    layout += chunk + 1 < chunks ? "|" : "L";
  }
  return layout;
}

const ScenarioKey& row_of(const std::string& key) {
  const std::size_t dot = key.find('.');
  return scenario_key(key.substr(0, dot), key.substr(dot + 1));
}

std::vector<std::string> words_of(const std::string& key, const Scenario& scenario) {
  const ScenarioKey& row = row_of(key);
  std::vector<std::string> words(row.choices.begin(), row.choices.end());
  if (row.field == nullptr) return words;
  Scenario copy = scenario;
  const Field field = row.field(copy);
  if (std::holds_alternative<bool*>(field)) return {"false", "true"};
  if (const auto* word = std::get_if<WordField>(&field))
    for (std::uint8_t value = 0; word->name(value) != std::string_view("?"); ++value)
      words.emplace_back(word->name(value));
  return words;
}

// Returns the values that may be legal; empty where only the user can list them.
std::vector<std::string> legal_values(const std::string& key, const Scenario& scenario, const sim::Platform& platform,
                                      std::int64_t gpus) {
  const Transformer& model = scenario.model;
  const std::int64_t domain = platform.accelerator ? std::max<std::int64_t>(platform.accelerator->domain, 1) : gpus;
  if (key == kTp) return texts(divisors({model.num_attention_heads}, std::min({domain, gpus, std::int64_t{64}})));
  const std::int64_t layers = split_layers(scenario);
  // Powers of two may split the layers unevenly (uneven_layout()).
  if (key == kPp)
    return texts(merged(divisors({layers}, std::min(layers, gpus)), powers_of_two(std::min(layers, gpus))));
  if (key == kVp) return texts(merged(divisors({layers}, layers / 2), powers_of_two(layers / 2)));
  if (key == kCp) return texts(powers_of_two(std::min(gpus, model.seq_length / 2)));
  if (key == kEp)
    return texts(model.experts.any() ? divisors({model.experts.num_moe_experts}, gpus) : std::vector<std::int64_t>{1});
  if (key == kMicroBatch) return texts(powers_of_two(std::min<std::int64_t>(scenario.training.global_batch_size, 16)));
  if (key == kGpus || key == kPlatform) return {};
  return words_of(key, scenario);
}

// Returns the key in full. Throws Error(input) with the nearest spelling.
std::string full_key(const std::string& given, const std::string& place) {
  if (given == kGpus || given == kPlatform) return given;
  std::vector<std::string> found, all = {kGpus, kPlatform};
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      all.push_back(key.full_name());
      all.emplace_back(key.name);
      if (given == key.full_name() || given == key.name) found.push_back(key.full_name());
    }
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    throw input_error(fmt::format("{}: expected one of {}, got \"{}\"", place, fmt::join(found, ", "), given));
  const std::string nearest = nearest_spelling(given, all);
  throw input_error(
      fmt::format("{}: expected a key of [model], [parallel], [overlap] or [training], gpus or platform, "
                  "got {}{}",
                  place, in_quotes(given), nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

// An axis as it was given, and its place for messages.
struct Given {
  std::string key, place;
  std::vector<std::string> values;
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
  for (const auto read :
       {+[](TomlTable&t, const std::string&k) { return texts(*t.find<std::vector<std::int64_t>>(k)); },
        +[](TomlTable&t, const std::string&k) { return *t.find<std::vector<std::string>>(k); }})
    try {
      return read(table, key);
    } catch (const Error&) {
    }
  throw table.error(key, "a list of whole numbers or of strings (\"true\" and \"false\" for a switch)");
}

std::int64_t number_of(const std::string& text, const std::string& place) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || number < 1)
    throw input_error(fmt::format("{}: expected a whole number from 1 on, got {}", place, in_quotes(text)));
  return number;
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
  std::vector<Given> given;
  const auto add = [&](Given one, bool replaces) {
    const auto same = std::find_if(given.begin(), given.end(), [&](const Given& g) { return g.key == one.key; });
    if (same == given.end()) return given.push_back(std::move(one));
    if (!replaces) throw input_error(one.place + ": expected every key once, got " + one.key + " twice");
    *same = std::move(one);
  };
  for (const std::string& key : table.keys()) {
    std::vector<std::string> values = values_in(table, key);
    const std::string place = "[sweep] " + key;
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
  // Machines and batches alone ask for the best layout on each.
  const bool asks_for_layouts = std::all_of(given.begin(), given.end(), [](const Given& one) {
    return one.key == kGpus || one.key == kPlatform || one.key == kBatch;
  });
  if (asks_for_layouts)
    for (const char* key : {kTp, kPp, kVp, kCp, kEp, kMicroBatch, kRecompute}) {
      if (key == kEp && !scenario.model.experts.any()) continue;
      if (std::none_of(given.begin(), given.end(), [&](const Given& one) { return one.key == key; }))
        given.push_back({key, key, {"legal"}});
    }
  std::int64_t gpus = scenario.parallel.ranks();
  for (const Given& one : given)
    if (one.key == kGpus)
      for (const std::string& value : one.values) gpus = std::max(gpus, number_of(value, one.place));

  Space space;
  for (Given& one : given) {
    if (one.values == std::vector<std::string>{"legal"}) {
      one.values = legal_values(one.key, scenario, platform, gpus);
      if (one.values.empty())
        throw input_error(one.place + ": expected a list of values, got \"legal\": " + one.key +
                          " has no list of its own");
    }
    if (one.values.empty()) throw input_error(one.place + ": expected one value or more, got none");
    for (std::size_t i = 0; i < one.values.size(); ++i)
      if (std::count(one.values.begin(), one.values.end(), one.values[i]) > 1)
        throw input_error(fmt::format("{}: expected different values, got {} twice", one.place, one.values[i]));
    space.axes.push_back({std::move(one.key), std::move(one.values)});
  }
  if (space.points() > kMostPoints)
    throw input_error(
        fmt::format("[sweep]: expected at most {} combinations, got more; list fewer values", kMostPoints));
  return space;
}

std::string not_searched(const Space& space, const Scenario& scenario) {
  std::vector<std::string> kept;
  for (const char* section : {"parallel", "overlap"})
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      if (key.field == nullptr || key.full_name() == kDp) continue;
      if (std::any_of(space.axes.begin(), space.axes.end(), [&](const Axis& a) { return a.key == key.full_name(); }))
        continue;
      const KeyValue value = value_of(key, scenario), by_default = value_of(key, Scenario{});
      if (value != by_default && !value.is_null()) kept.push_back(fmt::format("{} {}", key.name, value.dump()));
    }
  return kept.empty() ? "all other keys have their defaults"
                      : fmt::format("not searched, as in the scenario: {}; all others have their defaults",
                                    fmt::join(kept, ", "));
}

std::optional<PointSettings> settings_of(const Space& space, const std::vector<std::string>& values,
                                         const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  // Most combinations do not divide, so that sizes come first.
  std::int64_t tp = parallel.tensor_model_parallel_size, pp = parallel.pipeline_model_parallel_size,
               vp = parallel.virtual_pipeline_model_parallel_size, cp = parallel.context_parallel_size,
               micro_batch = scenario.training.micro_batch_size, batch = scenario.training.global_batch_size,
               gpus = parallel.ranks(), dp = 0;
  const std::pair<const char*, std::int64_t*> sizes[] = {
      {kTp, &tp},       {kPp, &pp},     {kVp, &vp}, {kCp, &cp}, {kMicroBatch, &micro_batch},
      {kBatch, &batch}, {kGpus, &gpus}, {kDp, &dp}};
  bool has_batch = false;
  for (std::size_t i = 0; i < space.axes.size(); ++i) {
    const std::string& key = space.axes[i].key;
    for (const auto& [name, size] : sizes)
      if (key == name) *size = number_of(values[i], key);
    has_batch = has_batch || key == kBatch;
  }
  const std::int64_t of_model = tp * pp * cp;
  const bool follows_dp = dp == 0;
  if (follows_dp && gpus % of_model != 0) return std::nullopt;
  if (follows_dp) dp = gpus / of_model;
  if (batch % (micro_batch * dp) != 0) return std::nullopt;
  if (vp > 1 && pp == 1) return std::nullopt;
  std::optional<std::string> layout;
  if (!splits_unevenly(parallel) && split_layers(scenario) % (pp * vp) != 0) {
    const bool counts_more = split_layers(scenario) != scenario.model.num_layers;
    if (!counts_more) layout = uneven_layout(scenario.model.num_layers, pp * vp);
    if (!layout) return std::nullopt;
  }

  PointSettings settings;
  for (std::size_t i = 0; i < space.axes.size(); ++i) {
    const std::string& key = space.axes[i].key;
    if (key == kPlatform)
      settings.platform = values[i];
    else if (key != kGpus)
      settings.set.push_back(key + "=" + values[i]);
  }
  if (follows_dp) settings.set.push_back(fmt::format("{}={}", kDp, dp));
  if (layout) settings.set.push_back("parallel.pipeline_model_parallel_layout=" + *layout);
  if (!has_batch) settings.set.push_back(fmt::format("{}={}", kBatch, batch));
  const auto searches = [&](const char* key) {
    return std::any_of(space.axes.begin(), space.axes.end(), [&](const Axis& axis) { return axis.key == key; });
  };
  // Sequence parallelism needs tensor parallelism.
  if (tp == 1 && parallel.sequence_parallel && !searches("parallel.sequence_parallel"))
    settings.set.emplace_back("parallel.sequence_parallel=false");
  // Pairs of passes need messages that overlap.
  const std::string pairs = "overlap.overlap_moe_expert_parallel_comm=true";
  if (pp > 1 && std::count(settings.set.begin(), settings.set.end(), pairs) > 0 && !scenario.overlap.overlap_p2p_comm &&
      !searches("overlap.overlap_p2p_comm"))
    settings.set.emplace_back("overlap.overlap_p2p_comm=true");
  return settings;
}

}  // namespace stretto::sweep
