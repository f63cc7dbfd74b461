#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/compare_run.hpp"
#include "cli/progress.hpp"
#include "report/trace.hpp"

namespace stretto::cli {
namespace {

void compare(const CommonOptions& options) {
  const Scenario scenario = read_scenario(options.scenario, options.set);
  require_writable(options.json);
  require_writable(options.trace);
  const sim::Platform platform = load_platform(options, scenario);
  watch_interrupts();
  Progress progress;
  const CompareRun run = run_compare(
      scenario, platform, [&](const std::string& line) { progress.show(line); }, interrupted);
  progress.clear();
  std::cout << "scenario " << scenario.name << ": " << scenario.model.num_layers << " layers, hidden "
            << scenario.model.hidden_size << ", " << scenario.model.seq_length << " x "
            << scenario.training.micro_batch_size << " tokens a micro-batch, " << scenario.num_microbatches()
            << " micro-batches a step and rank; link "
            << fmt::format("{:g} GB/s, {:g} us", scenario.cluster.link_GBps, scenario.cluster.link_latency_us)
            << "\nplatform " << run.comparison.platform << "\n\n";
  if (!run.comparison.rows.empty()) std::cout << comparison_text(run.comparison);
  write_json(options.json, comparison_json(run.comparison));
  if (!options.trace.empty()) {
    std::vector<TraceSection> sections;
    for (const ComparedTimelines& t : run.timelines) {
      const std::string title = t.mode + ", " + std::to_string(t.ranks) + (t.ranks == 1 ? " rank" : " ranks");
      sections.push_back({"predicted " + title, &t.schedule, &t.predicted_programs, &t.predicted});
      sections.push_back({"measured " + title, &t.schedule, &t.measured_programs, &t.measured});
    }
    write_trace(options.trace, sections);
  }
  if (!run.complete) throw runtime_failure("interrupted; shown is what was finished");
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "every overlap mode at every number of ranks: predicted, measured, error");
  add_scenario_options(*command, *options);
  add_platform_option(*command, *options);
  add_output_options(*command, *options);
  command->callback([options] { compare(*options); });
}

}  // namespace stretto::cli
