#include "sweep/legal.hpp"

#include <algorithm>
#include <numeric>

#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"
#include "sweep/names.hpp"

namespace stretto::sweep {
namespace {

std::vector<std::string> texts_of(const std::vector<std::int64_t>& numbers) {
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

std::vector<std::int64_t> merged(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
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

// Returns scenarios with the smallest and the largest size of each axis, in every combination, without recomputation
// where that is an axis: for each mode one of these layouts has what the mode needs.
std::vector<Scenario> corners_of(const std::vector<Axis>& axes, const Scenario& scenario) {
  std::vector<Scenario> corners = {scenario};
  const auto each = [&](const std::vector<std::string>& values, const auto& set) {
    std::vector<Scenario> more;
    for (const Scenario& corner : corners)
      for (const std::string& value : values) set(more.emplace_back(corner), value);
    corners = std::move(more);
  };
  for (const Axis& axis : axes) {
    if (axis.key == kRecompute) {
      for (Scenario& corner : corners) corner.training.recompute = {};
    } else if (axis.key == kSharding) {
      each(axis.values,
           [](Scenario& corner, const std::string& word) { set_identity(row_of(kSharding), corner, word); });
    } else if (std::vector<std::string> sizes = {axis.values.front(), axis.values.back()};
               axis.key == kTp || axis.key == kPp || axis.key == kVp || axis.key == kCp || axis.key == kEp) {
      if (sizes.front() == sizes.back()) sizes.pop_back();
      each(sizes, [&](Scenario& corner, const std::string& size) { set_identity(row_of(axis.key), corner, size); });
    }
  }
  return corners;
}

}  // namespace

std::int64_t split_layers(const Scenario& scenario) {
  return scenario.model.num_layers + scenario.parallel.account_for_embedding_in_pipeline_split +
         scenario.parallel.account_for_loss_in_pipeline_split;
}

std::vector<std::string> legal_values(const std::string& key, const Scenario& scenario, const sim::Platform& platform,
                                      std::int64_t gpus) {
  const Transformer& model = scenario.model;
  const std::int64_t domain = platform.accelerator ? std::max<std::int64_t>(platform.accelerator->domain, 1) : gpus;
  const std::int64_t most_tp = std::min({domain, gpus, std::int64_t{64}});
  if (key == kTp) {
    std::int64_t heads = std::gcd(model.num_attention_heads, model.kv_heads());
    if (model.gated_delta.any()) heads = std::gcd(heads, model.gated_delta.linear_num_key_heads);
    if (model.mamba.any()) heads = std::gcd(heads, model.mamba.mamba_num_groups);
    return texts_of(divisors({heads}, most_tp));
  }
  const std::int64_t layers = split_layers(scenario);
  // Powers of two may split the layers unevenly (settings.cpp).
  if (key == kPp)
    return texts_of(merged(divisors({layers}, std::min(layers, gpus)), powers_of_two(std::min(layers, gpus))));
  if (key == kVp) {
    const std::int64_t most = std::max<std::int64_t>(1, layers / 2);
    return texts_of(merged(divisors({layers}, most), powers_of_two(most)));
  }
  if (key == kCp && (model.gated_delta.any() || model.mamba.any())) return {"1"};
  if (key == kCp) return texts_of(powers_of_two(std::max<std::int64_t>(1, std::min(gpus, model.seq_length / 2))));
  if (!model.experts.any() && (key == kEp || key == kEtp)) return {"1"};
  if (key == kEp) return texts_of(divisors({model.experts.num_moe_experts}, gpus));
  if (key == kEtp) return texts_of(divisors({model.expert_size()}, most_tp));
  if (key == kMicroBatch)
    return texts_of(powers_of_two(std::min<std::int64_t>(scenario.training.global_batch_size, 16)));
  if (key == kGpus || key == kPlatform) return {};
  return words_of(key, scenario);
}

std::vector<std::string> legal_switches(const std::vector<Axis>& axes, const Scenario& scenario) {
  const std::vector<Scenario> corners = corners_of(axes, scenario);
  const auto acts = [](const OverlapMode& mode, Scenario corner) {
    if (!mode.applies(corner.parallel)) return false;
    corner.overlap = {};
    corner.overlap.*mode.on = true;
    if (mode.configure) mode.configure(corner.overlap);
    return gates_of(corner).acts(mode.knob);
  };
  std::vector<std::string> switches;
  for (const OverlapMode& mode : overlap_modes())
    if (const std::string key = "overlap." + mode.knob;
        mode.on && std::count(switches.begin(), switches.end(), key) == 0 &&
        std::any_of(corners.begin(), corners.end(), [&](const Scenario& corner) { return acts(mode, corner); }))
      switches.push_back(key);
  return switches;
}

bool is_idle(const std::string& key, const Parallel& parallel) {
  bool is_knob = false;
  for (const OverlapMode& mode : overlap_modes())
    if (mode.on && key == "overlap." + mode.knob) {
      if (mode.applies(parallel)) return false;
      is_knob = true;
    }
  return is_knob;
}

}  // namespace stretto::sweep
