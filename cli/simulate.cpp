#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "compare/predict.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "report/exposure.hpp"
#include "report/html.hpp"
#include "report/table.hpp"
#include "report/trace.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"
#include "sim/fabric.hpp"
#include "sim/network/rings.hpp"

namespace stretto::cli {
namespace {

struct SimulateOptions : CommonOptions {
  std::string engine = "fluid";
  double backbone_GBps = 0;
  bool modes = false;
};

// Whether the scenario says of its cluster what a platform of published GPUs says itself.
bool states_links(const Cluster& cluster) {
  const Cluster none;
  return cluster.link_GBps != none.link_GBps || cluster.link_latency_us != none.link_latency_us ||
         cluster.channel_GBps > 0 || !cluster.max_ctas.empty() || cluster.cores_per_device > 0;
}

// The parts of the step's time as shares, the largest first.
std::vector<std::pair<std::string, double>> limits_of(const Schedule& schedule, const Breakdown& b, double step_ms) {
  std::vector<std::pair<std::string, double>> limits = {{"compute", to_ms(b.compute) / step_ms},
                                                        {"waiting for a core", to_ms(b.core_wait) / step_ms},
                                                        {"waiting for peers", to_ms(b.bubble) / step_ms}};
  if (b.queue_wait > 0) limits.push_back({"waiting behind a hardware queue", to_ms(b.queue_wait) / step_ms});
  for (std::size_t c = 0; c < b.exposed.size(); ++c)
    limits.push_back({"exposed " + schedule.communicators[c].name + " communication", to_ms(b.exposed[c]) / step_ms});
  std::stable_sort(limits.begin(), limits.end(), [](const auto& x, const auto& y) { return x.second > y.second; });
  return limits;
}

// Sum over the communicators whose first axis it is: the metrics of all ranks count as data-parallel.
double exposed_ms(const Schedule& schedule, const Breakdown& b, Coord axis) {
  Picoseconds sum = 0;
  for (std::size_t c = 0; c < b.exposed.size(); ++c)
    if (schedule.communicators[c].axes.front() == axis) sum += b.exposed[c];
  return to_ms(sum);
}

// The step that was predicted, as a page shows it.
HtmlStep html_step(const Schedule& schedule, const MemoryPlan& plan, const sim::SimResult& result, const Breakdown& b) {
  HtmlStep step;
  step.row.mode = schedule.name;
  step.row.ranks = schedule.mesh.ranks();
  step.row.predicted_ms = to_ms(result.step);
  step.row.predicted = to_ms(b);
  step.row.operations = operation_times(schedule, result.programs, {&result.timeline, 1}, {}, {});
  for (const Communicator& communicator : schedule.communicators) step.communicators.push_back(communicator.name);
  step.predicted = excerpt(schedule, result.programs, result.timeline);
  step.memory = memory_use(schedule, plan);
  return step;
}

Table table_of(const std::vector<compare::PredictedMode>& modes) {
  Table table({"mode", "step ms", "of plain", "compute ms", "exposed ms", "bubble ms"});
  for (const compare::PredictedMode& m : modes)
    table.add_row({m.mode, fmt::format("{:.3f}", m.step_ms), fmt::format("{:.3f}", m.step_ms / modes.front().step_ms),
                   fmt::format("{:.3f}", m.breakdown.compute), fmt::format("{:.3f}", m.exposed_ms),
                   fmt::format("{:.3f}", m.breakdown.bubble)});
  return table;
}

nlohmann::json json_of(const std::vector<compare::PredictedMode>& modes) {
  nlohmann::json rows = nlohmann::json::array();
  for (const compare::PredictedMode& m : modes)
    rows.push_back({{"mode", m.mode},
                    {"step_ms", m.step_ms},
                    {"compute_ms", m.breakdown.compute},
                    {"exposed_ms", m.exposed_ms},
                    {"bubble_ms", m.breakdown.bubble}});
  return rows;
}

void simulate_command(const SimulateOptions& options) {
  const Scenario scenario = scenario_of(options);
  options.files.claim_outputs(scenario);
  sim::Platform platform = load_platform(options, scenario);
  const auto begin = std::chrono::steady_clock::now();
  keep_within_free_memory();
  const Patience patience(scenario);
  const Schedule schedule = build_schedule(scenario);
  VerifiedSchedule verified = plan_and_verify(schedule);
  const MemoryPlan& plan = verified.plan;
  sim::SimOptions sim_options;
  sim_options.network = options.engine == "simgrid" ? sim::NetworkKind::simgrid : sim::NetworkKind::fluid;
  sim_options.fabric.backbone_GBps = options.backbone_GBps;
  if (!std::isfinite(options.backbone_GBps)) throw input_error("--backbone-GBps: expected a number of GB/s");
  if (options.backbone_GBps > 0 && options.engine != "simgrid")
    throw input_error(
        "--backbone-GBps: the closed-form network cannot see flows that share a link; use --engine simgrid");
  if (options.engine == "simgrid" && platform.accelerator && schedule.mesh.ranks() <= sim::kMostEndpoints)
    sim::carry_spine(*platform.accelerator, sim_options.fabric);
  const sim::Costs costs = sim::cost_schedule(schedule, platform, scenario.cluster, 1, scenario.framework);
  const sim::SimResult result = sim::simulate(schedule, std::move(verified.programs), costs, sim_options);
  const double simulate_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const double step_ms = to_ms(result.step);
  const Breakdown b = mean_breakdown(schedule, result.programs, result.timeline);
  const Flops flops = training_flops_per_sequence(scenario.model);
  const std::int64_t ranks = schedule.mesh.ranks();
  const double sequences = double(scenario.training.global_batch_size),
               tokens_per_s = sequences * double(scenario.model.seq_length) / step_ms * 1e3;
  // CoreMonitor that can work at once: ranks of a device share its cores.
  const std::int64_t per_device = schedule.placement.ranks_per_device,
                     cores = sim::cores_per_device(platform, scenario.cluster);
  const double busy_cores = double(std::min(per_device, cores)) * double(ranks / per_device);
  const double peak_flops = platform.accelerator
                                ? platform.accelerator->peak_TFLOPs.value * 1e12 * double(ranks / per_device)
                            : platform.gpu ? platform.gpu->gemm_TFLOPs.value * 1e12 * double(ranks / per_device)
                                           : platform.sgemm_GFLOPs.value * 1e9 * busy_cores;
  const double mfu = flops.model * sequences / (step_ms * 1e-3) / peak_flops,
               hfu = (flops.hardware + recompute_flops_per_sequence(scenario.model, scenario.training.recompute)) *
                     sequences / (step_ms * 1e-3) / peak_flops;
  // Issuing operations is part of the bubble; a step is host bound when it is the larger part of the step.
  const double issue_ms = to_ms(costs.op_overhead) * double(result.programs.front().lanes.front().size()) +
                          to_ms(sim::issue_time(costs.host, result.programs.front()));
  const bool host_bound = issue_ms > 0.5 * step_ms;
  const std::int64_t reserved =
      platform.accelerator ? static_cast<std::int64_t>(platform.accelerator->reserved_bytes.value) : 0;
  const bool fits = plan.peak_bytes() * per_device + reserved <= platform.memory_bytes;
  const auto limits = limits_of(schedule, b, step_ms);

  const std::string about = fmt::format("scenario {} on {}: {} rank{}, schedule {}, network {}", scenario.name,
                                        platform.name, ranks, ranks == 1 ? "" : "s", schedule.name, options.engine);
  std::cout << about << "\n\n";
  Table table({"what", "value"});
  table.add_row({"step", fmt::format("{:.3f} ms{}", step_ms, result.steady ? "" : " (not steady)")});
  table.add_row({"tokens/s", fmt::format("{:.0f}", tokens_per_s)});
  table.add_row({"MFU / HFU", fmt::format("{:.1f} % / {:.1f} % of {}", 100 * mfu, 100 * hfu,
                                          platform.accelerator ? "the data sheet's bf16 peak"
                                          : platform.gpu       ? "a large bf16 GEMM"
                                                               : "sgemm")});
  table.add_row({"exposed communication", fmt::format("{:.3f} ms", to_ms(b.exposed_total))});
  table.add_row({"bubble", fmt::format("{:.3f} ms", to_ms(b.bubble))});
  table.add_row(
      {"memory", fmt::format("{:.1f} MiB a rank, {} of {:.1f} GiB a device", double(plan.peak_bytes()) / (1 << 20),
                             fits ? "fits" : "DOES NOT FIT", double(platform.memory_bytes) / (1 << 30))});
  std::string limits_line = "what limits it:";
  for (const auto& [what, share] : limits)
    if (share >= 0.005) limits_line += fmt::format("  {} {:.1f} %", what, 100 * share);
  std::cout << table.text() << "\n" << limits_line;
  std::cout << fmt::format("\n{} operations simulated in {:.4f} s; with building and verifying the schedule {:.4f} s\n",
                           result.operations, result.simulate_s, simulate_s);
  for (const std::string& note : schedule.notes) std::cout << "note: " << note << "\n";
  if (platform.accelerator && states_links(scenario.cluster))
    std::cout << "note: links, channels and cores of [cluster] do not act: platform " << platform.name
              << " has links of its own\n";
  std::vector<compare::PredictedMode> modes;
  if (options.modes) modes = compare::predict_modes(scenario, platform, sim_options);
  if (options.modes) std::cout << "\n" << table_of(modes).text();

  nlohmann::json limits_json = nlohmann::json::array();
  for (const auto& [what, share] : limits) limits_json.push_back({{"what", what}, {"share", share}});
  write_json(options.json, {{"scenario", scenario.name},
                            {"engine", options.engine},
                            {"ranks", ranks},
                            {"step_ms", step_ms},
                            {"tokens_per_s", tokens_per_s},
                            {"mfu", mfu},
                            {"hfu", hfu},
                            {"tflops_per_gpu", flops.model * sequences / (step_ms * 1e-3) / double(ranks) * 1e-12},
                            {"exposed_ms",
                             {{"dp", exposed_ms(schedule, b, Coord::dp)},
                              {"tp", exposed_ms(schedule, b, Coord::tp)},
                              {"pp", exposed_ms(schedule, b, Coord::pp)},
                              {"cp", exposed_ms(schedule, b, Coord::cp)},
                              {"ep", 0},
                              {"total", to_ms(b.exposed_total)}}},
                            {"bubble_ms", to_ms(b.bubble)},
                            {"core_wait_ms", to_ms(b.core_wait)},
                            {"host_bound", host_bound},
                            {"peak_bytes", plan.peak_bytes()},
                            {"fits", fits},
                            {"limits", std::move(limits_json)},
                            {"operations", result.operations},
                            {"simulate_s", simulate_s},
                            {"modes", options.modes ? json_of(modes) : nlohmann::json(nullptr)}});
  if (!options.trace.empty())
    write_trace(options.trace.path(), {{"predicted " + schedule.name, &schedule, &result.programs, &result.timeline}});
  if (!options.html.empty()) {
    HtmlReport report;
    report.title = scenario.name + ": predicted";
    report.about = {about, fmt::format("platform {} ({}, {})", platform.name, platform.device, platform.date)};
    report.summary = table;
    report.remarks = {limits_line};
    for (const std::string& note : schedule.notes) report.remarks.push_back("note: " + note);
    report.steps = {html_step(schedule, plan, result, b)};
    report.device_bytes = platform.memory_bytes;
    write_text(options.html, render_html(report));
  }
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command =
      app.add_subcommand("simulate", "predict the step: time, MFU, memory, exposed communication, what limits it");
  add_scenario_options(*command, *options);
  add_platform_option(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_html_option(*command, *options);
  command->add_option("--engine", options->engine, "network: fluid (closed form) or simgrid (flows share links)")
      ->check(CLI::IsMember({"fluid", "simgrid"}));
  command->add_flag("--modes", options->modes, "also: every overlap mode that the layout allows");
  command
      ->add_option("--backbone-GBps", options->backbone_GBps,
                   "one link that all traffic between devices crosses; needs --engine simgrid")
      ->check(CLI::NonNegativeNumber);
  command->callback([options] { simulate_command(*options); });
}

}  // namespace stretto::cli
