#include "predict/remedies.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/shell.hpp"
#include "model/overlap/overlap.hpp"
#include "model/step_size.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/quick_step.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"

namespace stretto::predict {
namespace {

constexpr double kMostBuilt = 2e6;  // operations that are built, over all steps

// A scenario with one change, whose plain schedule and losing modes are simulated.
struct ChangedScenario {
  OverlapChange change;
  std::optional<Scenario> scenario;  // nullopt: refused, or beyond the budget
  double plain_ms = 0;               // 0: it cannot be simulated
  std::vector<double> mode_ms;       // [losing mode]; the same
};

// Returns the step of a mode; 0 where it is refused or does not fit.
double step_ms_of(const Scenario& scenario, const std::string& mode, const sim::Platform& platform) {
  try {
    const QuickStep step(with_mode(scenario, mode, scenario.parallel.ranks()));
    if (step.memory(platform).fit() == Fit::does_not_fit) return 0;
    return 1e3 * step.step_s(platform, step.scenario().framework);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return 0;
  }
}

Gain gain_of(const Scenario& scenario, const std::string& mode, const sim::Platform& platform) {
  const Doubts doubts(scenario, platform);
  const auto logs = [&](const char* of) {
    const QuickStep step(with_mode(scenario, of, scenario.parallel.ranks()));
    return doubts.logs(step, step.step_s(platform, step.scenario().framework));
  };
  return doubts.gain(logs("plain"), logs(mode.c_str()));
}

std::string flags_of(const Remedy& remedy) {
  std::string flags;
  for (const std::string& set : remedy.change.set) flags += " --set " + in_shell(set);
  return flags;
}

}  // namespace

std::vector<OverlapChange> changes_for_overlap(const Scenario& scenario) {
  const Parallel& p = scenario.parallel;
  const Training& t = scenario.training;
  const bool has_experts = scenario.model.experts.any();
  std::vector<OverlapChange> changes;
  const auto set = [](const char* key, const auto& value) { return fmt::format("{}={}", key, value); };
  std::vector<OverlapChange> graphs, larger;
  if (t.cuda_graph_modules.empty()) {
    // Pairs of passes refuse graphs of a whole MLP, and rows of experts are counted between their graphs.
    graphs.push_back({has_experts ? "CUDA graphs of attention and router" : "CUDA graphs of attention and MLP",
                      {set("training.cuda_graph_modules",
                           has_experts ? R"(["attn","moe_router","moe_preprocess"])" : R"(["attn","mlp"])")}});
    changes.push_back(graphs.back());
    changes.push_back({"a CUDA graph of the step", {set("training.cuda_graph_modules", R"(["full_iteration"])")}});
  }
  for (const std::int64_t times : {2, 4})
    larger.push_back({fmt::format("micro_batch_size {}", times * t.micro_batch_size),
                      {set("training.micro_batch_size", times * t.micro_batch_size)}});
  changes.insert(changes.end(), larger.begin(), larger.end());
  if (t.micro_batch_size % 2 == 0)
    changes.push_back({fmt::format("micro_batch_size {}, for more micro-batches", t.micro_batch_size / 2),
                       {set("training.micro_batch_size", t.micro_batch_size / 2)}});
  if (p.pipeline_model_parallel_size > 1) {
    const std::int64_t chunks = 2 * p.virtual_pipeline_model_parallel_size;
    changes.push_back(
        {fmt::format("{} virtual stages", chunks), {set("parallel.virtual_pipeline_model_parallel_size", chunks)}});
  }
  if (has_experts) {
    const bool is_flex = p.moe_token_dispatcher_type == TokenDispatcher::flex;
    if (is_flex || p.moe_token_dispatcher_type == TokenDispatcher::allgather)
      changes.push_back({"NCCL's all-to-all", {set("parallel.moe_token_dispatcher_type", "alltoall")}});
    for (const FlexBackend backend : {FlexBackend::deepep, FlexBackend::hybridep})
      if (!is_flex || p.moe_flex_dispatcher_backend != backend)
        changes.push_back({name_of(backend),
                           {set("parallel.moe_token_dispatcher_type", "flex"),
                            set("parallel.moe_flex_dispatcher_backend", name_of(backend))}});
  }
  for (const auto& [group, size] :
       {std::pair{"dp", p.data_parallel_size}, {"tp", p.tensor_model_parallel_size}, {"cp", p.context_parallel_size}})
    if (size > 1)
      changes.push_back(
          {fmt::format("copy engines for {}", group),
           {"cluster.nccl_ub=true", fmt::format(R"(cluster.nccl_communicator_config.{}.cta_policy="zero")", group)}});
  // Megatron-LM's default is 40 million elements.
  for (const std::int64_t million : {10, 160})
    changes.push_back(
        {fmt::format("buckets of {} million elements", million), {set("overlap.bucket_size", million * 1'000'000)}});
  if (scenario.cluster.cuda_device_max_connections == 1)
    changes.push_back({"8 hardware queues", {set("cluster.cuda_device_max_connections", 8)}});
  for (const OverlapChange& graph : graphs)
    for (const OverlapChange& batch : larger)
      changes.push_back({graph.what + ", " + batch.what, {graph.set.front(), batch.set.front()}});
  return changes;
}

std::vector<Remedy> remedies_of(const Scenario& scenario, const sim::Platform& platform,
                                const std::vector<PredictedMode>& modes,
                                const std::function<Scenario(const std::vector<std::string>& set)>& read) {
  std::vector<Remedy> remedies;
  std::vector<double> own_ms;  // [remedy] the mode's step without a change
  if (!platform.accelerator) return remedies;
  for (const PredictedMode& mode : modes)
    if (mode.mode != kAsGiven && mode.advice.off_because.empty() && mode.advice.saved_pct() < -Advice::kSmall_pct) {
      remedies.push_back({.mode = mode.mode, .change = {}, .gain = {}, .tried = {}});
      own_ms.push_back(mode.step_ms);
    }
  if (remedies.empty()) return remedies;
  std::vector<ChangedScenario> tried;
  double operations = 0;
  for (OverlapChange& change : changes_for_overlap(scenario)) {
    ChangedScenario& changed = tried.emplace_back();
    changed.change = std::move(change);
    try {
      changed.scenario = read(changed.change.set);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      continue;
    }
    const std::int64_t few = micro_batches_to_simulate(*changed.scenario).front();
    operations += step_size_of(with_micro_batches(*changed.scenario, few)).operations * double(1 + remedies.size());
    if (operations > kMostBuilt) changed.scenario.reset();
  }
  const std::int64_t each = std::ssize(remedies) + 1;
  for (ChangedScenario& changed : tried) changed.mode_ms.resize(remedies.size());
  parallel_each(std::ssize(tried) * each, [&](std::int64_t at) {
    ChangedScenario& changed = tried[static_cast<std::size_t>(at / each)];
    if (!changed.scenario) return;
    if (at % each == 0) {
      changed.plain_ms = step_ms_of(*changed.scenario, "plain", platform);
    } else {
      const auto m = static_cast<std::size_t>(at % each - 1);
      changed.mode_ms[m] = step_ms_of(*changed.scenario, remedies[m].mode, platform);
    }
  });
  const double plain_ms = modes.front().step_ms;
  parallel_each(std::ssize(remedies), [&](std::int64_t at) {
    const auto m = static_cast<std::size_t>(at);
    Remedy& remedy = remedies[m];
    const ChangedScenario* best = nullptr;
    for (const ChangedScenario& changed : tried) {
      if (changed.plain_ms == 0 || changed.mode_ms[m] == 0) continue;
      if (changed.plain_ms == plain_ms && changed.mode_ms[m] == own_ms[m]) continue;  // it has no effect here
      remedy.tried.push_back(changed.change.what);
      const bool wins = changed.mode_ms[m] < (1 - Advice::kSmall_pct / 100) * std::min(plain_ms, changed.plain_ms);
      if (wins && (best == nullptr || changed.mode_ms[m] < best->mode_ms[m])) best = &changed;
    }
    if (best == nullptr) return;
    remedy.change = best->change;
    remedy.step_ms = best->mode_ms[m];
    remedy.plain_ms = std::min(plain_ms, best->plain_ms);
    remedy.gain = gain_of(*best->scenario, remedy.mode, platform);
  });
  return remedies;
}

std::string remedies_text(const std::vector<Remedy>& remedies) {
  std::string text;
  for (const Remedy& r : remedies) {
    if (r.tried.empty()) continue;
    if (!text.empty()) text += "\n";
    if (r.change.what.empty())
      text += fmt::format("{}: nothing tried makes it win: tried {}", r.mode, fmt::join(r.tried, ", "));
    else
      text +=
          fmt::format("{} wins with {}: {}, the plain schedule {}; it saves {:.0f} to {:.0f} %; {}:{}", r.mode,
                      r.change.what, time_text(r.step_ms), time_text(r.plain_ms), 100 * r.gain.low, 100 * r.gain.high,
                      name_of(verdict_of(r.gain.saved, r.gain.low, r.gain.high, kBetweenStacks)), flags_of(r));
  }
  return text;
}

Sheet remedies_sheet(const std::vector<Remedy>& remedies) {
  using Json = nlohmann::json;
  using Columns = std::vector<Column<Remedy>>;
  const auto known = [](const Remedy& r, const Json& value) { return r.change.what.empty() ? Json(nullptr) : value; };
  const auto verdict = [](const Remedy& r) {
    return name_of(verdict_of(r.gain.saved, r.gain.low, r.gain.high, kBetweenStacks));
  };
  const auto number = [known](const char* key, const char* heading, const auto& value) {
    return Column<Remedy>{key, heading, [=](const Remedy& r) { return known(r, value(r)); },
                          [=](const Remedy& r) { return r.change.what.empty() ? "" : time_text(value(r)); }};
  };
  return {remedies, Columns{{"mode", "mode", [](const Remedy& r) { return r.mode; }},
                            {"change", "wins with", [=](const Remedy& r) { return known(r, r.change.what); },
                             [](const Remedy& r) { return r.change.what.empty() ? "nothing tried" : r.change.what; }},
                            {"set", "", [](const Remedy& r) { return r.change.set; }},
                            number("step_ms", "step", [](const Remedy& r) { return r.step_ms; }),
                            number("plain_step_ms", "plain", [](const Remedy& r) { return r.plain_ms; }),
                            {"saved_low_pct", "", [=](const Remedy& r) { return known(r, 100 * r.gain.low); }},
                            {"saved_high_pct", "", [=](const Remedy& r) { return known(r, 100 * r.gain.high); }},
                            {"verdict", "advice", [=](const Remedy& r) { return known(r, verdict(r)); },
                             [=](const Remedy& r) { return r.change.what.empty() ? "" : verdict(r); }},
                            {"tried", "", [](const Remedy& r) { return r.tried; }}}};
}

}  // namespace stretto::predict
