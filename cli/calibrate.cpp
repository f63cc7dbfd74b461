#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "calibrate/minimal.hpp"
#include "cli/commands.hpp"
#include "cli/import.hpp"
#include "cli/number.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "cli/version.hpp"
#include "exec/cuda/cuda.hpp"
#include "predict/inputs.hpp"

namespace stretto::cli {
namespace {

struct CalibrateOptions : RankOptions {
  int cores = 0;
  Output output, json;
  MeasurementImport import;
  bool is_minimal = false;
  std::optional<double> seconds;  // duration of the GEMM of --minimal
  Files files;
};

// Prints what a reader checks first, in some ten lines. All numbers are in the platform file.
void print_summary(const sim::Platform& platform) {
  std::vector<double> medians_pct;
  const std::pair<const std::string, sim::CostFit>* worst = nullptr;
  for (const auto& cost : platform.costs) {
    medians_pct.push_back(cost.second.median_error_pct);
    if (!worst || cost.second.p95_error_pct > worst->second.p95_error_pct) worst = &cost;
  }
  if (worst)
    std::cout << fmt::format("{} costs; fit error {:.1f} % in the middle, worst {:.1f} % (95th pct of {})\n",
                             platform.costs.size(), median(medians_pct), worst->second.p95_error_pct, worst->first);
  if (platform.gpu)
    std::cout << fmt::format("bf16 GEMM {:.0f} TFLOP/s\n", platform.gpu->gemm_TFLOPs.value);
  else
    std::cout << fmt::format("sgemm 1024³: {:.1f} GFLOP/s on one core, {:.1f} on each with all busy\n",
                             platform.sgemm_GFLOPs.value, platform.sgemm_filled_GFLOPs.value);
  std::cout << fmt::format("issue {:.2f} us an operation, wake-up {:.1f} us, timer {:.1f} us late\n",
                           platform.op_overhead_us.value, platform.wake_us.value, platform.timer_overshoot_us.value);
  int of = 0, with = 0;
  for (int a = 0; a < sim::kDemandClasses; ++a)
    for (int b = 0; b < sim::kDemandClasses; ++b)
      if (platform.slowdown[a][b].value > platform.slowdown[of][with].value) of = a, with = b;
  std::cout << fmt::format("two kernels at once: at most +{:.1f} % ({} with {})\n",
                           100 * platform.slowdown[of][with].value, sim::name_of(static_cast<sim::DemandClass>(of)),
                           sim::name_of(static_cast<sim::DemandClass>(with)));
}

// Returns the file in which an interrupted calibration keeps its measurements; the next one continues from it.
std::string partial_of(const std::string& path) { return path + ".partial"; }

const std::string& path_of(CalibrateOptions& options) {
  const std::string path = predict::default_platform_path(options.backend);
  if (options.output.empty() && path.empty())
    throw input_error(
        "--output: expected a file, since neither XDG_DATA_HOME nor HOME is an absolute path, in which it "
        "would be kept");
  Files::set_default(options.output, path);
  if (const auto parent = std::filesystem::path(options.output.name()).parent_path(); !parent.empty()) {
    std::error_code ignored;  // claim_outputs reports errors that matter
    std::filesystem::create_directories(parent, ignored);
  }
  options.files.claim_outputs({{"what was measured before", partial_of(options.output.name())}});
  return options.output.path();
}

struct Interrupted {};

std::string parts_text(const calibrate::Notebook& notebook) {
  return fmt::format("{} part{} of the measurements", notebook.parts(), notebook.parts() == 1 ? "" : "s");
}

// Opens the notebook next to the platform file, which stays unchanged until all of a new one is known.
calibrate::Notebook notebook_of(const std::string& path, const CalibrateOptions& options) {
  nlohmann::json about = {{"version", kVersion},
                          {"git", kGit},
                          {"backend", options.backend},
                          {"cores", options.cores},
                          {"cpu", calibrate::cpu_name()}};
  if (options.backend == "cuda") {
    const exec::Executor::Device gpu = calibrate::gpu_of(exec::gpu_machine());
    about["gpu"] = {gpu.name, gpu.sms, gpu.memory_bytes};
  }
  calibrate::Notebook notebook(partial_of(path), std::move(about));
  if (!notebook.why_not().empty())
    std::cout << "note: " << notebook.path() << " is not used: it " << notebook.why_not() << "\n";
  if (notebook.parts() > 0)
    std::cout << fmt::format("goes on from {}, which has {}\n", notebook.path(), parts_text(notebook));
  std::cout << std::flush;
  return notebook;
}

std::string interrupted_text(const std::string& path, const calibrate::Notebook& notebook) {
  const bool existed = std::filesystem::exists(path);
  return fmt::format("interrupted; {}{}", existed ? path + " is as it was; " : "",
                     notebook.parts() == 0
                         ? std::string("nothing was measured yet")
                         : fmt::format("{} keeps {}: run again to go on", notebook.path(), parts_text(notebook)));
}

// Calibrates. `processes` have a GPU each; NCCL is measured between them before rank 0 measures its own GPU.
void calibrate_as(CalibrateOptions& options, launch::ProcessGroup* processes) {
  const bool is_first = processes == nullptr || processes->rank() == 0;
  const std::string path = is_first ? path_of(options) : "";
  const auto begin = std::chrono::steady_clock::now();
  Progress progress;
  watch_interrupts();
  // Probes end before their next run; probes between processes end where all processes have ended a run.
  const auto may_end = [] {
    if (interrupted()) throw Interrupted{};
  };
  const auto show = [&](const std::string& line) {
    may_end();
    progress.show(line);
  };
  calibrate::Calibration calibration;
  if (options.backend == "cuda") {
    const std::string shared = cuda::reserve_hardware_queues(cuda::kMostQueues);
    if (is_first && !shared.empty()) std::cout << "note: " << shared << "\n";
  }
  calibrate::Notebook notebook = is_first ? notebook_of(path, options) : calibrate::Notebook();
  try {
    if (options.backend == "cuda") {
      std::vector<calibrate::Sample> network;
      if (processes) {
        require_same(*processes, "", "backend");
        watch(*processes, Scenario{});
        if (is_first) show(fmt::format("NCCL between {} GPUs", processes->size()));
        network = calibrate::probe_nccl(exec::gpu_machine(processes), calibrate::gpu_sizes(), processes->size());
        if (!is_first) return;
      }
      calibration = calibrate::calibrate_gpu(calibrate::ending(exec::gpu_machine(), may_end), calibrate::gpu_sizes(),
                                             show, network, &notebook);
    } else {
      calibration = calibrate::calibrate_host(options.cores, notebook, show, may_end);
    }
  } catch (const Interrupted&) {
    progress.clear();
    if (!is_first) throw runtime_failure("");
    throw runtime_failure(interrupted_text(path, notebook));
  }
  progress.clear();
  const sim::Platform& platform = calibration.platform;
  sim::write_platform(path, platform);
  notebook.remove();

  nlohmann::json probes = nlohmann::json::array();
  for (const auto& [key, fit] : platform.costs)
    probes.push_back({{"name", key},
                      {"points", fit.points},
                      {"spread_pct", fit.source.spread_pct},
                      {"fit_median_error_pct", fit.median_error_pct},
                      {"fit_p95_error_pct", fit.p95_error_pct}});
  if (!options.json.is_standard()) {
    for (const std::string& note : calibration.notes) std::cout << "note: " << note << "\n";
    print_summary(platform);
    std::cout << fmt::format(
        "wrote {} in {:.0f} s: every number with its source, spread and fit error (stretto show --platform {})\n", path,
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), path);
  }
  write_json(options.json, {{"platform", path}, {"probes", std::move(probes)}, {"notes", calibration.notes}});
}

// Writes the base's platform file with the few measured numbers of the GPU.
void calibrate_minimally(CalibrateOptions& options) {
  if (options.cores > 0 || options.ranks > 0)
    throw input_error("--minimal: one GPU is measured; expected no --cores or --ranks with it");
  if (options.import.base.empty())
    throw input_error("--minimal: expected --base, the published platform that has the rest (h100-sxm), got none");
  Progress progress;
  watch_interrupts();
  import_measurements(options.import, options.files, options.output, options.json,
                      [&](calibrate::ImportedPlatform& imported) {
                        calibrate::MinimalSizes sizes = calibrate::minimal_sizes();
                        sizes.seconds = options.seconds.value_or(sizes.seconds);
                        calibrate::measure_minimal(exec::gpu_machine(), sizes, imported, [&](const std::string& line) {
                          if (interrupted()) {
                            progress.clear();
                            throw runtime_failure("interrupted; nothing is written");
                          }
                          progress.show(line);
                        });
                        progress.clear();
                      });
}

void calibrate_command(CalibrateOptions& options) {
  if (options.is_minimal) return calibrate_minimally(options);
  if (options.seconds) throw input_error("--seconds: of a minimal calibration; expected --minimal with it");
  if (options.import.is_asked()) {
    if (options.backend != "host" || options.cores > 0 || options.ranks > 0)
      throw input_error("--import: nothing is measured; expected no --backend, --cores or --ranks with it");
    import_measurements(options.import, options.files, options.output, options.json);
    return;
  }
  if (options.backend == "cuda" && options.cores > 0)
    throw input_error("--cores: of a host; expected no --cores with --backend cuda");
  RankedCommand command;
  command.why_cuda =
      "calibrate in several processes needs --backend cuda: a host is measured by one, and GPUs that communicate by "
      "a process each";
  command.start = [&]() -> RankedCommand::Start {
    const std::string path = path_of(options);
    std::vector<std::string> arguments = {"calibrate", "--backend", options.backend, "--output", path};
    if (!options.json.empty()) arguments.insert(arguments.end(), {"--json", options.json.name()});
    return {arguments};
  };
  command.act = [&](launch::ProcessGroup* processes, std::ostream&) { calibrate_as(options, processes); };
  run_ranked(options, command);
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand("calibrate", "measure this machine into a platform file");
  options->files.add_output(
      *command, "-o,--output", options->output,
      "platform file to write; default: stretto/host.toml, or cuda.toml, in $XDG_DATA_HOME or ~/.local/share");
  command->add_option("--cores", options->cores, "cores that ranks will share; default: all")
      ->check(CLI::Range(1, 4096));
  add_rank_options(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_import_options(*command, options->files, options->import);
  command
      ->add_flag(
          "--minimal", options->is_minimal,
          "measure a GPU for under a minute: gemm_sustained, hbm_share and kernel_us in place of those of --base")
      ->group("Minimal");
  command->add_option("--seconds", options->seconds, "how long --minimal repeats a large GEMM; default: 30")
      ->check(number_from(1, 3600))
      ->group("Minimal");
  command->callback([options] { calibrate_command(*options); });
}

}  // namespace stretto::cli
