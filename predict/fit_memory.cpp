#include "predict/fit_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "model/step_size.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/predict_step.hpp"
#include "predict/quick_step.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"

namespace stretto::predict {
namespace {

// A kind of change that saves memory.
enum class Change : std::uint8_t {
  sharded,
  selective,
  full,
  sequence,
  half_batch,
  one_sequence,
  tensor,
  pipeline,
  no_virtual
};
constexpr std::array kChanges = {Change::sharded,  Change::selective,  Change::full,
                                 Change::sequence, Change::half_batch, Change::one_sequence,
                                 Change::tensor,   Change::pipeline,   Change::no_virtual};
using Changes = std::vector<Change>;  // in the order of kChanges

constexpr std::size_t kMostChanges = 3;
constexpr std::size_t kEnough = 3;       // number of results after which no larger sets are tried
constexpr double kMostOperations = 6e6;  // operations that are built, over all steps

// The overrides of a set of changes.
struct Overrides {
  std::vector<std::string> changes, set;
  void add(const std::string& section, const std::string& key, const std::string& value) {
    changes.push_back(key + " " + value);
    set.push_back(section + "." + key + "=" + value);
  }
  void add(const std::string& section, const std::string& key, std::int64_t value) {
    add(section, key, std::to_string(value));
  }
};

// Returns nullopt where the scenario cannot have the change: it already has it, or a size cannot be halved.
std::optional<Overrides> overrides_of(const Scenario& scenario, const Changes& changes) {
  using Granularity = Recompute::Granularity;
  const Parallel& parallel = scenario.parallel;
  const Training& training = scenario.training;
  std::int64_t data_parallel = parallel.data_parallel_size;
  Overrides overrides;
  const auto has = [&](Change change) { return std::find(changes.begin(), changes.end(), change) != changes.end(); };
  if (has(Change::selective) && has(Change::full)) return std::nullopt;
  if (has(Change::half_batch) && has(Change::one_sequence)) return std::nullopt;
  for (const Change change : changes) {
    switch (change) {
      case Change::sharded:
        if (parallel.shards_optimizer() || parallel.replicas() == 1) return std::nullopt;
        overrides.add("parallel", "use_distributed_optimizer", "true");
        break;
      case Change::selective:
        if (training.recompute.granularity != Granularity::none) return std::nullopt;
        overrides.add("training", "recompute_granularity", "selective");
        break;
      case Change::full:
        if (training.recompute.granularity == Granularity::full || is_zero_bubble(parallel.pipeline_schedule))
          return std::nullopt;
        overrides.add("training", "recompute_granularity", "full");
        break;
      case Change::sequence:
        if (parallel.sequence_parallel || (parallel.tensor_model_parallel_size == 1 && !has(Change::tensor)))
          return std::nullopt;
        overrides.add("parallel", "sequence_parallel", "true");
        break;
      case Change::half_batch:
        if (training.micro_batch_size % 2 != 0) return std::nullopt;
        overrides.add("training", "micro_batch_size", training.micro_batch_size / 2);
        break;
      case Change::one_sequence:
        if (training.micro_batch_size <= 2) return std::nullopt;
        overrides.add("training", "micro_batch_size", 1);
        break;
      case Change::tensor:
      case Change::pipeline:
        if (data_parallel % 2 != 0) return std::nullopt;
        data_parallel /= 2;
        if (change == Change::tensor)
          overrides.add("parallel", "tensor_model_parallel_size", 2 * parallel.tensor_model_parallel_size);
        else
          overrides.add("parallel", "pipeline_model_parallel_size", 2 * parallel.pipeline_model_parallel_size);
        break;
      case Change::no_virtual:
        if (parallel.virtual_pipeline_model_parallel_size == 1 || is_zero_bubble(parallel.pipeline_schedule))
          return std::nullopt;
        overrides.add("parallel", "virtual_pipeline_model_parallel_size", 1);
        break;
    }
  }
  if (data_parallel != parallel.data_parallel_size) overrides.add("parallel", "data_parallel_size", data_parallel);
  // The batch's default follows from the changed keys, so the batch is set.
  overrides.set.push_back("training.global_batch_size=" + std::to_string(training.global_batch_size));
  return overrides;
}

// Numbers of micro-batches from which the values of the whole step follow. They are equal where the whole step is no
// longer than that.
struct Sample {
  std::int64_t fewer = 1, more = 1, all = 1;
  // Extrapolates a value that grows evenly from `fewer` on.
  double at_all(double at_fewer, double at_more) const {
    return fewer == more ? at_more : at_more + (at_more - at_fewer) / double(more - fewer) * double(all - more);
  }
};

// A pipeline is full after two rounds of its stages; the third and the fourth repeat each other. Micro-batches that do
// not fill a round are kept.
Sample sample_of(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  const std::int64_t round =
      std::max(parallel.microbatch_group_size_per_vp_stage, parallel.pipeline_model_parallel_size);
  const std::int64_t all = scenario.num_microbatches(), rest = all % round;
  const std::int64_t fewer = 3 * round + rest, more = 4 * round + rest;
  return more < all ? Sample{fewer, more, all} : Sample{all, all, all};
}

class Search {
 public:
  Search(const Scenario& scenario, const sim::Platform& platform, const ReadChanged& read,
         const sim::SimOptions& options)
      : scenario_(scenario), platform_(platform), read_(read), options_(options) {}

  FitSearch run() {
    std::vector<Changes> sets;
    for (const Change change : kChanges) sets.push_back({change});
    for (std::size_t size = 1; size <= kMostChanges && result_.fitting.size() < kEnough && result_.complete; ++size) {
      const std::size_t first = result_.fitting.size();
      for (const Changes& set : sets)
        if (!add(set)) break;
      std::stable_sort(result_.fitting.begin() + static_cast<std::ptrdiff_t>(first), result_.fitting.end(),
                       [](const FittingScenario& a, const FittingScenario& b) { return a.step_ms < b.step_ms; });
      sets = one_more(sets);
    }
    return std::move(result_);
  }

 private:
  // Returns sets with one change more, none of whose subsets suffices.
  std::vector<Changes> one_more(const std::vector<Changes>& sets) const {
    std::vector<Changes> larger;
    for (const Changes& set : sets)
      for (const Change change : kChanges) {
        if (change <= set.back()) continue;
        Changes more = set;
        more.push_back(change);
        const bool suffices = std::any_of(sufficient_.begin(), sufficient_.end(), [&](const Changes& part) {
          return std::includes(more.begin(), more.end(), part.begin(), part.end());
        });
        if (!suffices) larger.push_back(std::move(more));
      }
    return larger;
  }

  // Returns false at the bound of the search.
  bool add(const Changes& changes) {
    const std::optional<Overrides> overrides = overrides_of(scenario_, changes);
    if (!overrides) return true;
    try {
      const Scenario changed = read_(overrides->set);
      const Sample sample = sample_of(changed);
      const Scenario fewer = with_micro_batches(changed, sample.fewer), more = with_micro_batches(changed, sample.more);
      if (!can_build(fewer)) return result_.complete = false;
      ++result_.tried;
      // On published GPUs a few micro-batches give the memory, as they do for `simulate` and `sweep`: one number.
      const std::optional<DeviceMemory> extrapolated =
          platform_.accelerator ? std::optional(QuickStep(changed).memory(platform_)) : std::nullopt;
      if ((extrapolated ? *extrapolated : memory(fewer)).fit() != Fit::fits) return true;
      if (!can_build(fewer) || !can_build(more)) return result_.complete = false;
      const Prediction at_more = predict_step(more, platform_, options_).prediction,
                       at_fewer =
                           sample.fewer == sample.more ? at_more : predict_step(fewer, platform_, options_).prediction;
      const DeviceMemory whole = extrapolated ? *extrapolated : at_all(sample, at_fewer.memory, at_more.memory);
      if (whole.fit() != Fit::fits) return true;
      sufficient_.push_back(changes);
      result_.fitting.push_back({overrides->changes, overrides->set, sample.at_all(at_fewer.step_ms, at_more.step_ms),
                                 whole.predicted_bytes(), whole.free_bytes()});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;  // the combination is not legal
    }
    return true;
  }

  // Returns the memory of the whole step from that of two shorter ones.
  static DeviceMemory at_all(const Sample& sample, const DeviceMemory& fewer, const DeviceMemory& more) {
    const auto of_all = [&](std::int64_t of_fewer, std::int64_t of_more) {
      return static_cast<std::int64_t>(std::llround(sample.at_all(double(of_fewer), double(of_more))));
    };
    DeviceMemory whole = more;
    const std::int64_t allocated = of_all(fewer.allocated_bytes(), more.allocated_bytes());
    const std::int64_t held = more.taken_bytes() - more.allocated_bytes();
    // Outside of tensors a graph grows with micro-batches. Both steps have the same entries.
    for (std::size_t part = 0; part < whole.outside_plan.size(); ++part)
      whole.outside_plan[part].bytes = of_all(fewer.outside_plan.at(part).bytes, whole.outside_plan[part].bytes);
    whole.roles = {MemoryUse{"", allocated}};
    // When the device is full the allocator returns the memory that it holds.
    const std::int64_t room = (whole.device_bytes - whole.reserved_bytes()) / whole.ranks_per_device;
    whole.roles.front().held = std::min(held, std::max<std::int64_t>(0, room - allocated));
    return whole;
  }

  DeviceMemory memory(const Scenario& scenario) const {
    const Schedule schedule = build_schedule(scenario, free_memory_bytes());
    return memory_of(schedule, plan_memory(schedule), platform_, scenario.training, scenario.framework);
  }

  bool can_build(const Scenario& scenario) {
    operations_ += step_size_of(scenario).operations;
    return operations_ <= kMostOperations;
  }

  const Scenario& scenario_;
  const sim::Platform& platform_;
  const ReadChanged& read_;
  const sim::SimOptions options_;
  double operations_ = 0;            // operations that were built
  std::vector<Changes> sufficient_;  // [FitSearch::fitting], in the order in which they were found
  FitSearch result_;
};

}  // namespace

FitSearch find_fitting(const Scenario& scenario, const sim::Platform& platform, const ReadChanged& read,
                       const sim::SimOptions& options) {
  return Search(scenario, platform, read, options).run();
}

Sheet fitting_sheet(const FitSearch& search) {
  using Fitting = FittingScenario;
  const auto bytes = [](const Fitting& f) { return f.predicted_bytes; };
  return {search.fitting,
          std::vector<Column<Fitting>>{{"set", "fits with", [](const Fitting& f) { return f.set; },
                                        [](const Fitting& f) { return fmt::format("{}", fmt::join(f.changes, ", ")); }},
                                       {"step_ms", "step", [](const Fitting& f) { return f.step_ms; },
                                        [](const Fitting& f) { return time_text(f.step_ms); }},
                                       {"predicted_peak_bytes", "memory", bytes,
                                        [](const Fitting& f) { return size_text(double(f.predicted_bytes)); }},
                                       {"peak_bytes", "", bytes},
                                       {"free_bytes", "free", [](const Fitting& f) { return f.free_bytes; },
                                        [](const Fitting& f) { return size_text(double(f.free_bytes)); }}}};
}

}  // namespace stretto::predict
