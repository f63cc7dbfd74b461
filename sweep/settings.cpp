#include "sweep/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "sweep/legal.hpp"
#include "sweep/names.hpp"

namespace stretto::sweep {
namespace {

bool splits_unevenly(const Parallel& parallel) {
  return parallel.num_layers_in_first_pipeline_stage > 0 || parallel.num_layers_in_last_pipeline_stage > 0 ||
         !parallel.pipeline_model_parallel_layout.empty();
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

// The values of one point, and what they stand for.
class Values {
 public:
  Values(const Space& space, const std::vector<std::string>& values, const Scenario& scenario)
      : space_(space), values_(values), parallel_(scenario.parallel) {
    sizes_ = {{{kTp, parallel_.tensor_model_parallel_size},
               {kPp, parallel_.pipeline_model_parallel_size},
               {kVp, parallel_.virtual_pipeline_model_parallel_size},
               {kCp, parallel_.context_parallel_size},
               {kEp, parallel_.expert_model_parallel_size},
               {kEtp, parallel_.expert_tensor_parallel_size},
               {kMicroBatch, scenario.training.micro_batch_size},
               {kBatch, scenario.training.global_batch_size},
               {kGpus, parallel_.ranks()},
               {kDp, 0}}};
    for (std::size_t i = 0; i < space.axes.size(); ++i)
      for (auto& [key, size] : sizes_)
        if (key == space.axes[i].key) size = number_of(values[i], space.axes[i].place);
  }

  // `key` is one of sizes_.
  std::int64_t operator[](std::string_view key) const {
    return std::find_if(sizes_.begin(), sizes_.end(), [&](const auto& size) { return size.first == key; })->second;
  }
  bool searches(const char* key) const { return value_of(key) != nullptr; }
  bool is(const char* key, const char* value) const {
    const std::string* own = value_of(key);
    return own != nullptr && *own == value;
  }
  // Returns the data-parallel size: what the GPUs leave, unless it is an axis; 0 where they do not divide, or where the
  // axis has another.
  std::int64_t data_parallel_size() const {
    const std::int64_t of_model = (*this)[kTp] * (*this)[kPp] * (*this)[kCp];
    if (const std::int64_t given = (*this)[kDp]; given > 0)
      return searches(kGpus) && given * of_model != (*this)[kGpus] ? 0 : given;
    return (*this)[kGpus] % of_model == 0 ? (*this)[kGpus] / of_model : 0;
  }
  // Returns the layout, without what no axis can change.
  Parallel parallel() const {
    Parallel of = parallel_;
    of.tensor_model_parallel_size = (*this)[kTp];
    of.pipeline_model_parallel_size = (*this)[kPp];
    of.virtual_pipeline_model_parallel_size = (*this)[kVp];
    of.context_parallel_size = (*this)[kCp];
    of.expert_model_parallel_size = (*this)[kEp];
    of.expert_tensor_parallel_size = (*this)[kEtp];
    of.data_parallel_size = data_parallel_size();
    if (const std::string* word = value_of(kSharding)) {
      Scenario with;
      if (set_identity(row_of(kSharding), with, *word))
        of.data_parallel_sharding_strategy = with.parallel.data_parallel_sharding_strategy;
    }
    return of;
  }
  // Returns whether a point with "false" in place of a switch, or with the first sharding strategy, is the same one.
  bool is_another() const {
    const Parallel of = parallel();
    for (std::size_t i = 0; i < space_.axes.size(); ++i) {
      const Axis& axis = space_.axes[i];
      const bool has_off = std::count(axis.values.begin(), axis.values.end(), "false") > 0;
      if (axis.key.starts_with("overlap.") && values_[i] == "true" && has_off && is_idle(axis.key, of)) return true;
      if (axis.key == kSharding && of.replicas() == 1 && values_[i] != axis.values.front()) return true;
    }
    return false;
  }

 private:
  const std::string* value_of(const char* key) const {
    for (std::size_t i = 0; i < space_.axes.size(); ++i)
      if (space_.axes[i].key == key) return &values_[i];
    return nullptr;
  }

  const Space& space_;
  const std::vector<std::string>& values_;
  const Parallel& parallel_;
  std::array<std::pair<std::string_view, std::int64_t>, 10> sizes_;
};

// Appends what the values need, unless it is an axis or the scenario has it.
void add_needed(std::vector<std::string>& set, const Values& values, const Scenario& scenario) {
  const Overlap& overlap = scenario.overlap;
  const auto add = [&](const char* key, bool has, bool needs) {
    if (has != needs && !values.searches(key)) set.push_back(fmt::format("{}={}", key, needs));
  };
  // Sequence parallelism needs tensor parallelism.
  if (values[kTp] == 1) add("parallel.sequence_parallel", scenario.parallel.sequence_parallel, false);
  // Pairs of passes need messages that overlap.
  if (values[kPp] > 1 && values.is("overlap.overlap_moe_expert_parallel_comm", "true"))
    add("overlap.overlap_p2p_comm", overlap.overlap_p2p_comm, true);
  if (!values.searches(kSharding)) return;
  const Parallel parallel = values.parallel();
  add("parallel.use_distributed_optimizer", scenario.parallel.shards_optimizer(), parallel.shards_optimizer());
  // No framework gathers what it shards without overlap, and PyTorch's cannot.
  if (parallel.shards_gradients()) add("overlap.fsdp_comm_overlap", overlap.fsdp_comm_overlap, true);
  // Whole parameters are not gathered.
  if (!parallel.shards_optimizer()) add("overlap.overlap_param_gather", overlap.overlap_param_gather, false);
}

}  // namespace

std::int64_t number_of(const std::string& text, const std::string& place) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || number < 1)
    throw input_error(
        fmt::format("{}: expected a whole number from 1 on, got {}{}", place, in_quotes(text),
                    text == "legal" || nearest_spelling(text, {"legal"}).empty() ? "" : "; did you mean \"legal\"?"));
  return number;
}

void require_sizes(const Space& space, const Scenario& scenario) {
  std::vector<std::string> values;
  for (const Axis& axis : space.axes) values.push_back(axis.values.front());
  for (std::size_t i = 0; i < space.axes.size(); ++i)
    for (const std::string& value : space.axes[i].values) {
      const std::string first = std::exchange(values[i], value);
      Values(space, values, scenario);
      values[i] = first;
    }
}

std::optional<PointSettings> settings_of(const Space& space, const std::vector<std::string>& values,
                                         const Scenario& scenario) {
  const Values of(space, values, scenario);
  const std::int64_t data_parallel_size = of.data_parallel_size();
  if (data_parallel_size == 0 || of[kBatch] % (of[kMicroBatch] * data_parallel_size) != 0) return std::nullopt;
  if (of[kVp] > 1 && of[kPp] == 1) return std::nullopt;
  const std::int64_t of_experts = of[kEp] * (of[kEtp] > 0 ? of[kEtp] : of[kTp]);
  if (scenario.model.experts.any() && of[kTp] * of[kCp] * data_parallel_size % of_experts != 0) return std::nullopt;
  std::optional<std::string> layout;
  if (!splits_unevenly(scenario.parallel) && split_layers(scenario) % (of[kPp] * of[kVp]) != 0) {
    const bool counts_more = split_layers(scenario) != scenario.model.num_layers;
    if (!counts_more) layout = uneven_layout(scenario.model.num_layers, of[kPp] * of[kVp]);
    if (!layout) return std::nullopt;
  }
  if (of.is_another()) return std::nullopt;
  // Most combinations do not come so far.
  PointSettings settings;
  for (std::size_t i = 0; i < space.axes.size(); ++i) {
    const std::string& key = space.axes[i].key;
    if (key == kPlatform)
      settings.platform = values[i];
    else if (key != kGpus)
      settings.set.push_back(key + "=" + values[i]);
  }
  if (!of.searches(kDp)) settings.set.push_back(fmt::format("{}={}", kDp, data_parallel_size));
  if (layout) settings.set.push_back("parallel.pipeline_model_parallel_layout=" + *layout);
  if (!of.searches(kBatch)) settings.set.push_back(fmt::format("{}={}", kBatch, of[kBatch]));
  add_needed(settings.set, of, scenario);
  return settings;
}

}  // namespace stretto::sweep
