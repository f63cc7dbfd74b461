#include "validate/pairs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/statistics.hpp"

namespace stretto::validate {
namespace {

bool same_model(const Transformer& a, const Transformer& b) {
  const auto sizes = [](const Transformer& m) {
    return std::tuple(m.num_layers, m.hidden_size, m.num_attention_heads, m.kv_heads(), m.head_dim(), m.qk_layernorm,
                      m.ffn_hidden_size, m.seq_length);
  };
  return sizes(a) == sizes(b);
}

// Returns the settings in which two steps of one model differ.
std::vector<std::string> differences(const ValidatedStep& x, const ValidatedStep& y) {
  const Parallel &a = x.scenario.parallel, &b = y.scenario.parallel;
  std::vector<std::string> differ;
  const auto compare = [&](const char* name, const auto& one, const auto& other) {
    if (one != other) differ.push_back(name);
  };
  compare("tp", a.tensor_model_parallel_size, b.tensor_model_parallel_size);
  compare("pp", a.pipeline_model_parallel_size, b.pipeline_model_parallel_size);
  compare("cp", a.context_parallel_size, b.context_parallel_size);
  compare("dp", a.data_parallel_size, b.data_parallel_size);
  const auto dispatcher_of = [](const ValidatedStep& step) {
    const Parallel& p = step.scenario.parallel;
    const bool has_backend = p.moe_token_dispatcher_type == TokenDispatcher::flex;
    return std::pair(p.moe_token_dispatcher_type, has_backend ? p.moe_flex_dispatcher_backend : FlexBackend{});
  };
  if (x.scenario.model.experts.any()) compare("dispatcher", dispatcher_of(x), dispatcher_of(y));
  compare("schedule", a.pipeline_schedule, b.pipeline_schedule);
  compare("chunks", a.virtual_pipeline_model_parallel_size, b.virtual_pipeline_model_parallel_size);
  compare("micro-batch", x.scenario.training.micro_batch_size, y.scenario.training.micro_batch_size);
  compare("batch", x.scenario.training.global_batch_size, y.scenario.training.global_batch_size);
  // In published steps sequence parallelism changes together with recomputation.
  compare("recompute", x.published.recompute, y.published.recompute);
  // Ranks that share experts mostly change with another axis, which names the pair.
  if (differ.empty()) compare("ep", a.expert_model_parallel_size, b.expert_model_parallel_size);
  return differ;
}

// Returns whether steps of two containers of one project have equal settings.
bool differ_in_container(const ValidatedStep& x, const ValidatedStep& y) {
  const auto project = [](const ValidatedStep& step) {
    return step.published.source.substr(0, step.published.source.find(':'));
  };
  const Training &a = x.scenario.training, &b = y.scenario.training;
  return is_of_container(x.published) && is_of_container(y.published) && project(x) == project(y) &&
         x.published.gpus == y.published.gpus && differences(x, y).empty() &&
         x.scenario.overlap == y.scenario.overlap && a.low_precision == b.low_precision &&
         a.cuda_graph_modules == b.cuda_graph_modules && a.fp8_dot_product_attention == b.fp8_dot_product_attention;
}

// Returns "" for steps that differ in nothing or in too much.
std::string kind_of_pair(const ValidatedStep& x, const ValidatedStep& y) {
  if (!same_model(x.scenario.model, y.scenario.model)) return "";
  if (x.published.source != y.published.source)  // another release of the software, perhaps
    return differ_in_container(x, y) ? "container" : "";
  const std::vector<std::string> differ = differences(x, y);
  if (differ.size() == 1) return differ[0];
  if (differ.size() != 2) return "";
  const auto is_axis = [](const std::string& name) {
    return name == "tp" || name == "pp" || name == "cp" || name == "dp";
  };
  if (is_axis(differ[0]) && is_axis(differ[1]) && x.published.gpus == y.published.gpus)
    return differ[0] + " ↔ " + differ[1];
  if (differ[0] == "dp" && differ[1] == "batch") return "dp and batch";
  return "";
}

bool are_twins(const ValidatedStep& x, const ValidatedStep& y) {
  return same_model(x.scenario.model, y.scenario.model) && x.published.source == y.published.source &&
         x.published.gpus == y.published.gpus &&
         x.scenario.training.global_batch_size == y.scenario.training.global_batch_size;
}

double regret(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& layouts, std::size_t picked) {
  double best = steps[picked].published.step_s;
  for (const std::size_t s : layouts) best = std::min(best, steps[s].published.step_s);
  return steps[picked].published.step_s / best - 1;
}

}  // namespace

std::vector<PairKind> pairs_of(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group,
                               const std::vector<std::size_t>& wider) {
  struct Pairs {
    PairKind kind;
    std::vector<double> errors;
  };
  std::map<std::string, Pairs> by_kind;
  const auto add = [&](const ValidatedStep& x, const ValidatedStep& y, const std::string& kind) {
    if (kind.empty()) return;
    const double measured = std::log(x.published.step_s / y.published.step_s);
    const double predicted = std::log(x.predicted(Fitted::shipped) / y.predicted(Fitted::shipped));
    Pairs& pairs = by_kind[kind];
    ++pairs.kind.pairs;
    pairs.errors.push_back(std::abs(std::expm1(predicted - measured)));
    if (std::abs(measured) <= std::log1p(kApart)) return;
    ++pairs.kind.apart;
    pairs.kind.right_sign += measured * predicted > 0;
  };
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = i + 1; j < group.size(); ++j)
      add(steps[group[i]], steps[group[j]], kind_of_pair(steps[group[i]], steps[group[j]]));
    for (const std::size_t other : wider)
      add(steps[group[i]], steps[other], are_twins(steps[group[i]], steps[other]) ? "precision" : "");
  }
  std::vector<PairKind> kinds;
  for (auto& [what, pairs] : by_kind) {
    pairs.kind.what = what;
    pairs.kind.median_error = median(pairs.errors);
    pairs.kind.within =
        double(std::count_if(pairs.errors.begin(), pairs.errors.end(), [](double error) { return error <= kWithin; })) /
        double(pairs.errors.size());
    kinds.push_back(pairs.kind);
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const PairKind& a, const PairKind& b) { return a.pairs > b.pairs; });
  return kinds;
}

Ranking ranking_of(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group) {
  // Sets of steps with one model, batch and number of GPUs.
  std::vector<std::vector<std::size_t>> choices;
  for (const std::size_t s : group) {
    const auto same = std::find_if(choices.begin(), choices.end(), [&](const std::vector<std::size_t>& layouts) {
      const ValidatedStep& first = steps[layouts.front()];
      return same_model(first.scenario.model, steps[s].scenario.model) &&
             first.published.gpus == steps[s].published.gpus &&
             first.scenario.training.global_batch_size == steps[s].scenario.training.global_batch_size;
    });
    (same == choices.end() ? choices.emplace_back() : *same).push_back(s);
  }
  std::erase_if(choices, [](const auto& layouts) { return layouts.size() < kLayouts; });
  Ranking ranking;
  ranking.choices = choices.size();
  for (const std::vector<std::size_t>& layouts : choices) {
    const std::size_t picked = *std::min_element(layouts.begin(), layouts.end(), [&](std::size_t a, std::size_t b) {
      return steps[a].predicted(Fitted::shipped) < steps[b].predicted(Fitted::shipped);
    });
    const double of_pick = regret(steps, layouts, picked);
    ranking.good += of_pick <= kApart;
    ranking.best += of_pick == 0;
    ranking.mean += of_pick / double(choices.size());
    ranking.worst = std::max(ranking.worst, of_pick);
    double of_random = 0;
    for (const std::size_t s : layouts) of_random += regret(steps, layouts, s) / double(layouts.size());
    ranking.random_mean += of_random / double(choices.size());
    ranking.random_worst = std::max(ranking.random_worst, of_random);
  }
  return ranking;
}

}  // namespace stretto::validate
