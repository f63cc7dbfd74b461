#include "predict/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "predict/inputs.hpp"
#include "report/data_sheet.hpp"
#include "report/units.hpp"

namespace stretto::predict {
namespace {

constexpr double kHour_s = 3600, kBillion = 1e9;

// A key of [run] with one number.
struct NumberKey {
  const char* name;
  std::optional<double> RunKeys::*value;
  Limits<double> limits;
  const char* range;
  const char* meaning;
};
constexpr Limits<double> kAboveZero = {.min = 0, .max = 1e18, .above_min = true}, kFromZero = {.min = 0, .max = 1e18};
const NumberKey kNumbers[] = {
    {"jitter_pct",
     &RunKeys::jitter_pct,
     {.min = 0, .max = 100},
     "0 to 100",
     "standard deviation of a GPU's time for the computation of a step, from GPU to GPU and from step to step, in "
     "percent of "
     "its mean: a step waits for the slowest of all"},
    {"tokens", &RunKeys::tokens, kAboveZero, "above 0", "tokens of the whole run"},
    {"gpu_mtbf_hours", &RunKeys::gpu_mtbf_hours, kAboveZero, "above 0",
     "mean time between failures that end the run, of one GPU"},
    {"node_mtbf_hours", &RunKeys::node_mtbf_hours, kAboveZero, "above 0",
     "and of one node of the platform's NVLink domain besides; rates of failures add up"},
    {"restart_s", &RunKeys::restart_s, kFromZero, "from 0; needed where something fails",
     "time from a failure until steps are made again: detection, other nodes, reading the checkpoint"},
    {"storage_GBps", &RunKeys::storage_GBps, kAboveZero, "above 0",
     "rate at which all ranks together write a checkpoint"},
    {"checkpoint_stall_s", &RunKeys::checkpoint_stall_s, kFromZero, "from 0; needed with checkpoint_async",
     "time for which a checkpoint stops the steps; otherwise as long as it is written"},
    {"checkpoint_interval_s", &RunKeys::checkpoint_interval_s, kAboveZero, "above 0",
     "work between two checkpoints; otherwise the best interval where something fails"},
    {"watts_per_gpu", &RunKeys::watts_per_gpu, kAboveZero, "above 0",
     "mean power of a GPU; otherwise the limit of its data sheet, which is an upper bound"},
    {"price_per_gpu_hour", &RunKeys::price_per_gpu_hour, kAboveZero, "above 0", "price, in any currency"}};

void add_places(TomlTable& table, const char* key, std::int64_t places, const char* what, std::int64_t each,
                std::vector<std::int64_t>& ranks) {
  for (const std::int64_t place :
       table.find<std::vector<std::int64_t>>(key, {.min = 0}).value_or(std::vector<std::int64_t>{})) {
    if (place >= places)
      throw table.failure(key, fmt::format("expected {} from 0 to {}, got {}", what, places - 1, place));
    for (std::int64_t rank = place * each; rank < (place + 1) * each; ++rank)
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  }
}

Stragglers read_stragglers(TomlTable& table, std::int64_t ranks, std::int64_t ranks_per_node) {
  Stragglers found;
  add_places(table, "slow_ranks", ranks, "ranks", 1, found.ranks);
  if (table.has("slow_nodes") && ranks_per_node == 0)
    throw table.failure("slow_nodes", "expected a published GPU, whose NVLink domain is a node; name slow_ranks");
  if (ranks_per_node > 0)
    add_places(table, "slow_nodes", std::max<std::int64_t>(1, ranks / ranks_per_node), "nodes",
               std::min(ranks, ranks_per_node), found.ranks);
  add_places(table, "slow_links", ranks, "ranks", 1, found.links);
  const char* slow = table.has("slow_ranks") ? "slow_ranks" : "slow_nodes";
  for (const auto& [key, factor, named, place, places] :
       {std::tuple("slow_compute", &found.compute, !found.ranks.empty(), slow, "slow_ranks or slow_nodes"),
        std::tuple("slow_link", &found.link, !found.links.empty(), "slow_links", "slow_links")}) {
    const std::optional<double> given = table.find<double>(key, {.min = 1, .max = 1e6});
    if (given && !named) throw table.failure(key, fmt::format("expected {} as well, got none", places));
    if (!given && named)
      throw table.failure(place, fmt::format("expected {} as well, how many times as long it takes, got none", key));
    if (given) *factor = *given;
  }
  return found;
}

std::string value_text(double value, const char* unit) { return fmt::format("{:.4g} {}", value, unit); }

// Returns "2.5 days", "3.2 hours", "40 s".
std::string duration_text(double s) {
  if (s >= 48 * kHour_s) return fmt::format("{:.4g} days", s / 24 / kHour_s);
  if (s >= kHour_s) return fmt::format("{:.3g} hours", s / kHour_s);
  return s >= 120 ? fmt::format("{:.3g} minutes", s / 60) : time_text(1e3 * s);
}

nlohmann::json json_of(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

double straggling_step_ms(const Stragglers& stragglers, const QuickStep& step, const sim::Platform& platform,
                          const sim::SimOptions& options) {
  if (options.network == sim::NetworkKind::simgrid && stragglers.link != 1 && !stragglers.links.empty())
    throw input_error("[run] slow_links: expected --engine fluid, got simgrid, whose links are those of its fabric");
  return to_ms(step.extrapolate(platform, step.scenario().framework, options, nullptr, stragglers).step());
}

void add_checkpoints(const RunKeys& keys, Run& run) {
  const double bytes = run.checkpoint_bytes;
  if (keys.storage_GBps) run.checkpoint_write_s = bytes / (*keys.storage_GBps * kBillion);
  const double write_s = run.checkpoint_write_s.value_or(0);
  const double stall_s = keys.checkpoint_stall_s.value_or(write_s);
  if (!keys.checkpoint_async && stall_s < write_s)
    throw input_error(
        fmt::format("[run] checkpoint_stall_s: expected checkpoint_async = true, or at least the {} that "
                    "writing a checkpoint takes, got {}",
                    duration_text(write_s), duration_text(stall_s)));
  if (keys.checkpoint_interval_s && *keys.checkpoint_interval_s + stall_s < write_s)
    throw input_error(
        fmt::format("[run] checkpoint_interval_s: expected at least {}, after which the checkpoint before "
                    "is written, got {}",
                    duration_text(write_s - stall_s), duration_text(*keys.checkpoint_interval_s)));
  // The work that an asynchronous checkpoint saves counts from the moment at which it is written: with the interval τ,
  // a failure costs τ / 2 and that time on average.
  const double restart_s = keys.restart_s.value_or(0) + (keys.checkpoint_async ? write_s : 0);
  run.checkpoint_interval_s = keys.checkpoint_interval_s;
  if (!run.checkpoint_interval_s && run.mtbf_s) {
    run.interval_is_best = true;
    // A checkpoint begins when the one before it is written.
    run.checkpoint_interval_s =
        std::max(best_checkpoint_interval_s(stall_s, *run.mtbf_s), keys.checkpoint_async ? write_s - stall_s : 0);
  }
  if (!run.checkpoint_interval_s) return;
  const double interval_s = *run.checkpoint_interval_s;
  run.productive_share = run.mtbf_s ? 1 / elapsed_for_work(interval_s, stall_s, restart_s, *run.mtbf_s)
                                    : interval_s / (interval_s + stall_s);
  if (keys.storage_GBps) run.checkpoint_GBps = bytes / kBillion / (interval_s + stall_s);
}

}  // namespace

std::optional<RunKeys> read_run(TomlTable table, std::int64_t ranks, std::int64_t ranks_per_node) {
  if (!table.present()) return std::nullopt;
  RunKeys keys;
  keys.stragglers = read_stragglers(table, ranks, ranks_per_node);
  for (const NumberKey& key : kNumbers) keys.*key.value = table.find<double>(key.name, key.limits);
  keys.checkpoint_async = value_or<bool>(table, "checkpoint_async", false);
  table.finish();
  const bool fails = keys.gpu_mtbf_hours || keys.node_mtbf_hours;
  if (keys.node_mtbf_hours && ranks_per_node == 0)
    throw table.failure("node_mtbf_hours",
                        "expected a published GPU, whose NVLink domain is a node; give gpu_mtbf_hours");
  if (fails && !keys.restart_s)
    throw table.failure(keys.gpu_mtbf_hours ? "gpu_mtbf_hours" : "node_mtbf_hours",
                        "expected restart_s as well, got none");
  if (fails && !keys.storage_GBps && !keys.checkpoint_stall_s && !keys.checkpoint_interval_s)
    throw table.failure("restart_s",
                        "expected what a checkpoint takes as well: storage_GBps, checkpoint_stall_s or "
                        "checkpoint_interval_s, got none");
  // A key that nothing follows from is a mistake.
  const bool takes_time = keys.storage_GBps || keys.checkpoint_stall_s;
  const auto require = [&](const char* key, bool acts, const char* others) {
    if (table.has(key) && !acts) throw table.failure(key, fmt::format("expected {} as well, got none", others));
  };
  require("restart_s", fails, "gpu_mtbf_hours or node_mtbf_hours");
  require("checkpoint_interval_s", fails || takes_time, "storage_GBps or checkpoint_stall_s");
  require("checkpoint_stall_s", fails || keys.checkpoint_interval_s, "checkpoint_interval_s or gpu_mtbf_hours");
  require("price_per_gpu_hour", keys.tokens.has_value(), "tokens");
  if (keys.checkpoint_async && !keys.checkpoint_stall_s)
    throw table.failure("checkpoint_async",
                        "expected checkpoint_stall_s as well, got none: copies out of GPU memory stop "
                        "the steps");
  return keys;
}

std::optional<RunKeys> read_run_input(const std::string& input, const std::vector<std::string>& set,
                                      const Scenario& scenario, const sim::Platform& platform) {
  return read_run(read_toml(scenario_path(input), set).section("run"), scenario.parallel.ranks(),
                  platform.accelerator ? platform.accelerator->domain : 0);
}

void require_run_keys(const std::string& input, const std::vector<std::string>& set, const sim::Platform& platform) {
  constexpr std::int64_t kAnyRanks = std::int64_t{1} << 24;
  read_run(read_toml(scenario_path(input), set).section("run"), kAnyRanks,
           platform.accelerator ? platform.accelerator->domain : 0);
}

double expected_largest(std::int64_t n) {
  if (n <= 1) return 0;
  // ∫ x d F = ∫ from 0 on (1 − F) − ∫ up to 0 F, by Simpson's rule; beyond ±12 nothing is left of either for n up to
  // 2^24.
  constexpr int kIntervals = 4096;
  constexpr double kEnd = 12, kStep = kEnd / kIntervals;
  const auto largest_is_below = [&](double x) {
    return std::exp(double(n) * std::log1p(-0.5 * std::erfc(x / std::sqrt(2.))));
  };
  double sum = 0;
  for (int i = 0; i <= kIntervals; ++i) {
    const double weight = i == 0 || i == kIntervals ? 1 : i % 2 == 1 ? 4 : 2, x = i * kStep;
    const double below_minus = 0.5 * std::erfc(x / std::sqrt(2.));  // Φ(−x)
    sum += weight * (1 - largest_is_below(x) - std::exp(double(n) * std::log(below_minus)));
  }
  return sum * kStep / 3;
}

double best_checkpoint_interval_s(double stall_s, double mtbf_s) {
  if (stall_s >= 2 * mtbf_s) return mtbf_s;
  const double ratio = stall_s / (2 * mtbf_s);
  return std::sqrt(2 * stall_s * mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - stall_s;
}

double elapsed_for_work(double interval_s, double stall_s, double restart_s, double mtbf_s) {
  // Without a stall the best interval is 0, and the limit of the formula e^(R/M).
  if (interval_s <= 0) return std::exp(restart_s / mtbf_s);
  return mtbf_s * std::exp(restart_s / mtbf_s) * std::expm1((interval_s + stall_s) / mtbf_s) / interval_s;
}

double checkpoint_bytes(const Scenario& scenario) {
  if (scenario.training.frozen_base) return 0;
  double elements = 0;
  for (const Parameter& parameter : parameters(scenario.model)) elements += double(parameter.elements());
  const double each = double(bytes_of(scenario.training.compute_dtype()));
  // Moments are as wide as sums, and 16-bit weights have a master.
  return elements * (each < 4 ? each + 4 + 2 * 4 : each + 2 * each);
}

Run predict_run(const RunKeys& keys, const QuickStep& step, const Prediction& p, const sim::Platform& platform,
                const sim::SimOptions& options) {
  const Scenario& scenario = step.scenario();
  Run run;
  run.gpus = p.devices;
  run.has_stragglers = keys.stragglers.any();
  run.has_jitter = keys.jitter_pct.has_value();
  if (run.has_stragglers) run.straggler_ms = straggling_step_ms(keys.stragglers, step, platform, options) - p.step_ms;
  if (keys.jitter_pct) run.jitter_ms = *keys.jitter_pct / 100 * expected_largest(p.devices) * p.breakdown.compute;
  run.step_ms = p.step_ms + run.straggler_ms + run.jitter_ms;
  run.checkpoint_bytes = checkpoint_bytes(scenario);
  double failures_per_hour = 0;
  if (keys.gpu_mtbf_hours) failures_per_hour += double(p.devices) / *keys.gpu_mtbf_hours;
  if (keys.node_mtbf_hours)
    failures_per_hour += std::ceil(double(p.devices) / double(platform.accelerator->domain)) / *keys.node_mtbf_hours;
  if (failures_per_hour > 0) run.mtbf_s = kHour_s / failures_per_hour;
  add_checkpoints(keys, run);
  constexpr double kLeastShare = 1e-6;  // below it a year's work takes a million years
  if (run.productive_share < kLeastShare)
    throw input_error(
        run.mtbf_s
            ? fmt::format(
                  "[run]: expected failures that leave time to work: with one every {} and {} of work between two "
                  "checkpoints the run makes no progress",
                  duration_text(*run.mtbf_s), duration_text(run.checkpoint_interval_s.value_or(0)))
            : fmt::format(
                  "[run] checkpoint_interval_s: expected more work between two checkpoints; each checkpoint stops "
                  "the steps for {}, got {}",
                  duration_text(keys.checkpoint_stall_s.value_or(run.checkpoint_write_s.value_or(0))),
                  duration_text(run.checkpoint_interval_s.value_or(0))));

  const double tokens_of_step = double(scenario.training.global_batch_size * scenario.model.seq_length);
  run.watts_per_gpu = keys.watts_per_gpu;
  run.watts_are_given = keys.watts_per_gpu.has_value();
  if (!run.watts_per_gpu) run.watts_per_gpu = data_sheet_watts(platform.device);
  const double gpu_s_of_token = double(run.gpus) * run.step_ms * 1e-3 / tokens_of_step / run.productive_share;
  if (run.watts_per_gpu) run.joules_per_token = *run.watts_per_gpu * gpu_s_of_token;
  if (!keys.tokens) return run;
  run.steps = static_cast<std::int64_t>(std::ceil(*keys.tokens / tokens_of_step));
  run.elapsed_s = double(*run.steps) * run.step_ms * 1e-3 / run.productive_share;
  if (run.mtbf_s) run.failures = *run.elapsed_s / *run.mtbf_s;
  run.gpu_hours = double(run.gpus) * *run.elapsed_s / kHour_s;
  if (keys.price_per_gpu_hour) run.cost = *run.gpu_hours * *keys.price_per_gpu_hour;
  if (run.watts_per_gpu) run.energy_MWh = *run.gpu_hours * *run.watts_per_gpu * 1e-6;
  return run;
}

std::string run_reference() {
  std::string text = "| key | type, unit | default | range | meaning |\n|---|---|---|---|---|\n";
  const auto add = [&](const char* name, const char* type, const char* by_default, const char* range,
                       const char* meaning) {
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", name, type, by_default, range, meaning);
  };
  add("slow_ranks", "integers", "none", "ranks", "ranks whose computation takes `slow_compute` times as long");
  add("slow_nodes", "integers", "none", "nodes", "nodes (NVLink domains) of such ranks");
  add("slow_compute", "number", "", "from 1", "how many times as long");
  add("slow_links", "integers", "none", "ranks",
      "ranks whose messages and collectives take `slow_link` times as long, latency apart");
  add("slow_link", "number", "", "from 1", "how many times as long");
  for (const NumberKey& key : kNumbers) add(key.name, "number", "", key.range, key.meaning);
  add("checkpoint_async", "boolean", "false", "", "steps go on while a checkpoint is written");
  return text;
}

Table run_table(const Run& run) {
  Table table({"of a run", "value"});
  const double alone_ms = run.step_ms - run.straggler_ms - run.jitter_ms;
  const auto add_part = [&](const char* what, double ms) {
    if (ms != 0)
      table.add_row({what, fmt::format("{} ({:+.1f} % of a step without it)", time_text(ms), 100 * ms / alone_ms)});
  };
  table.add_row({"step", time_text(run.step_ms)});
  add_part("of it, waiting for stragglers", run.straggler_ms);
  add_part("of it, waiting for the slowest of all GPUs", run.jitter_ms);
  if (run.mtbf_s) table.add_row({"a failure every", duration_text(*run.mtbf_s)});
  if (run.checkpoint_bytes > 0) table.add_row({"a checkpoint", size_text(run.checkpoint_bytes)});
  if (run.checkpoint_write_s) table.add_row({"is written in", duration_text(*run.checkpoint_write_s)});
  if (run.checkpoint_interval_s)
    table.add_row({"work between checkpoints",
                   duration_text(*run.checkpoint_interval_s) + (run.interval_is_best ? ", the best (Daly 2006)" : "")});
  if (run.checkpoint_GBps) table.add_row({"mean traffic of checkpoints", value_text(*run.checkpoint_GBps, "GB/s")});
  if (run.checkpoint_interval_s || run.mtbf_s)
    table.add_row({"time that makes progress", percent_text(run.productive_share)});
  if (run.steps) table.add_row({"steps", std::to_string(*run.steps)});
  if (run.elapsed_s) table.add_row({"elapsed", duration_text(*run.elapsed_s)});
  if (run.failures) table.add_row({"failures", fmt::format("{:.0f}", *run.failures)});
  if (run.gpu_hours) table.add_row({"GPU-hours", fmt::format("{:.4g}", *run.gpu_hours)});
  const char* power = run.watts_are_given ? "" : "at most ";
  if (run.energy_MWh) table.add_row({"energy of the GPUs", power + value_text(*run.energy_MWh, "MWh")});
  if (run.joules_per_token) table.add_row({"energy a token", power + value_text(*run.joules_per_token, "J")});
  if (run.cost) table.add_row({"cost", fmt::format("{:.4g}", *run.cost)});
  return table;
}

nlohmann::json run_json(const Run& run) {
  return {{"step_ms", run.step_ms},
          {"straggler_ms", run.has_stragglers ? nlohmann::json(run.straggler_ms) : nlohmann::json(nullptr)},
          {"jitter_ms", run.has_jitter ? nlohmann::json(run.jitter_ms) : nlohmann::json(nullptr)},
          {"mtbf_s", json_of(run.mtbf_s)},
          {"checkpoint_bytes", run.checkpoint_bytes},
          {"checkpoint_write_s", json_of(run.checkpoint_write_s)},
          {"checkpoint_interval_s", json_of(run.checkpoint_interval_s)},
          {"checkpoint_GBps", json_of(run.checkpoint_GBps)},
          {"productive_share",
           run.checkpoint_interval_s || run.mtbf_s ? nlohmann::json(run.productive_share) : nlohmann::json(nullptr)},
          {"steps", run.steps ? nlohmann::json(*run.steps) : nlohmann::json(nullptr)},
          {"elapsed_s", json_of(run.elapsed_s)},
          {"failures", json_of(run.failures)},
          {"gpu_hours", json_of(run.gpu_hours)},
          {"watts_per_gpu", json_of(run.watts_per_gpu)},
          {"energy_MWh", json_of(run.energy_MWh)},
          {"joules_per_token", json_of(run.joules_per_token)},
          {"cost", json_of(run.cost)}};
}

}  // namespace stretto::predict
