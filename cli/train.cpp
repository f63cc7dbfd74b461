#include "ask/run/train.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/printable.hpp"
#include "base/statistics.hpp"
#include "base/time_left.hpp"
#include "calibrate/probes/probes.hpp"
#include "cli/commands.hpp"
#include "cli/evaluation_text.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/trainer.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "report/memory.hpp"
#include "report/step_log.hpp"
#include "report/tensorboard.hpp"
#include "report/throughput.hpp"
#include "report/units.hpp"

namespace stretto::cli {
namespace {

// Measures the speed of a core during training: sgemm at times between the steps, because the speed changes from second
// to second.
class Yardstick {
 public:
  void after_step(double step_ms) {
    trained_ms_ += step_ms;
    if (readings_GFLOPs_.size() < kMost && spent_ms_ <= kMostShare * trained_ms_) read();
  }
  double median_GFLOPs() {
    // A run of less than a second has one speed.
    while (readings_GFLOPs_.size() < (trained_ms_ < 1000 ? 1 : kFewest)) read();
    return median(readings_GFLOPs_);
  }

 private:
  static constexpr std::size_t kFewest = 3, kMost = 15;
  static constexpr double kMostShare = 0.02;  // share of the training time

  void read() {
    const auto begin = std::chrono::steady_clock::now();
    readings_GFLOPs_.push_back(sgemm_.run_GFLOPs());
    spent_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  calibrate::SgemmYardstick sgemm_{1, 1};
  std::vector<double> readings_GFLOPs_;
  double trained_ms_ = 0, spent_ms_ = 0;
};

// Returns and prints MFU and HFU against sgemm on the same cores. Without a yardstick, which is in f32, there are none.
std::pair<std::optional<double>, std::optional<double>> host_utilisation(const Scenario& scenario,
                                                                         const Schedule& schedule,
                                                                         const std::vector<double>& times_ms,
                                                                         std::optional<double> yardstick,
                                                                         std::ostream& out) {
  const auto line = [&](const std::string& rates) {
    out << fmt::format("median step {} ({}–{}); {}\n", time_text(median(times_ms)), time_text(minimum(times_ms)),
                       time_text(maximum(times_ms)), rates);
  };
  if (!yardstick) {
    line(rate_text(throughput_of(scenario, median(times_ms), 1, {}).FLOPs_per_s));
    return {};
  }
  const int threads = static_cast<int>(schedule.mesh.ranks()) * schedule.placement.threads_per_rank;
  const int cores = std::min<int>(threads, static_cast<int>(scenario.cluster.cores_per_device > 0
                                                                ? scenario.cluster.cores_per_device
                                                                : std::max(1u, std::thread::hardware_concurrency())));
  const Throughput t = throughput_of(scenario, median(times_ms), 1, {*yardstick * 1e9 * cores, "sgemm"});
  const auto percent = [](const std::optional<double>& share) {
    return share ? fmt::format("{:.0f} %", 100 * *share) : "–";
  };
  line(
      fmt::format("{}; MFU {}, HFU {} of sgemm 1024³ on the same {} core{} ({:.1f} GFLOP/s a core, median "
                  "between the steps; docs/mfu.md)",
                  rate_text(t.FLOPs_per_s), percent(t.mfu), percent(t.hfu), cores, cores == 1 ? "" : "s", *yardstick));
  if (!t.doubt.empty()) out << "note: " << t.doubt << "\n";
  return {t.mfu, t.hfu};
}

struct TrainCommandOptions : ScenarioOptions {
  std::int64_t log_interval = 1;
  Output log, tensorboard;
  std::string event_file;  // in the folder `tensorboard`
};

// Writes every step to the files of --log and --tensorboard.
class StepFiles {
 public:
  explicit StepFiles(const TrainCommandOptions& options) {
    if (!options.log.empty())
      log_.emplace(options.log.path(), std::vector<std::string>{"loss", "gradient_norm", "lr", "step_ms",
                                                                "tokens_per_s", "skipped", "validation_loss"});
    if (options.tensorboard.empty()) return;
    std::error_code error;
    if (std::filesystem::create_directories(options.tensorboard.path(), error); error)
      throw runtime_failure(options.tensorboard.path() + ": cannot create the folder: " + error.message());
    events_.emplace(options.tensorboard.path(options.event_file));
  }
  void after_step(const exec::TrainStep& s) {
    add(s.step + 1, {{"loss", s.loss},
                     {"gradient_norm", s.gradient_norm},
                     {"lr", s.lr},
                     {"step_ms", s.step_ms},
                     {"tokens_per_s", s.tokens_per_s},
                     {"skipped", s.is_skipped ? 1 : 0}});
  }
  void after_evaluation(const exec::Evaluation& e) { add(e.step, {{"validation_loss", e.loss}}); }

 private:
  void add(std::int64_t step, const StepValues& values) {
    if (log_) log_->add(step, values);
    if (events_) events_->add(step, values);
  }

  std::optional<StepLog> log_;
  std::optional<TensorBoardLog> events_;
};

// Prints the progress of training, every `log_interval` steps and at the last step.
class StepLines {
 public:
  StepLines(std::ostream& out, std::int64_t train_iters, std::int64_t log_interval)
      : out_(out), train_iters_(train_iters), log_interval_(log_interval) {}

  void after_evaluation(const exec::Evaluation& e) { out_ << evaluation_text(e) << std::flush; }
  void after_step(const exec::TrainStep& s) {
    if (first_ < 0) first_ = s.step;
    steps_ += 1;
    interval_ms_ += s.step_ms;
    if (s.is_skipped)
      out_ << fmt::format("step {}: skipped, because its gradient norm {:.3g} is above grad_norm_skip_threshold\n",
                          s.step + 1, s.gradient_norm);
    tokens_ += s.tokens_per_s * s.step_ms;
    if ((s.step + 1) % log_interval_ != 0 && s.step + 1 != train_iters_) return;
    out_ << fmt::format("step {:5d}/{}  loss {:.5f}  norm {:.3f}  lr {:.2e}  {}  {:.0f} tokens/s{}\n", s.step + 1,
                        train_iters_, s.loss, s.gradient_norm, s.lr, time_text(interval_ms_ / double(steps_)),
                        tokens_ / interval_ms_, time_left_.after(s.step + 1 - first_, train_iters_ - first_))
         << std::flush;
    steps_ = 0;
    interval_ms_ = tokens_ = 0;
  }

 private:
  std::ostream& out_;
  const std::int64_t train_iters_, log_interval_;
  std::int64_t first_ = -1;  // first step of this run
  std::int64_t steps_ = 0;   // steps since the last line; their time, and 1,000 times their tokens
  double interval_ms_ = 0, tokens_ = 0;
  TimeLeft time_left_;
};

// Trains. Returns "", or why training is not complete.
std::string train_as(const TrainCommandOptions& options, ScenarioRun& run) {
  const Scenario& scenario = run.scenario;
  launch::ProcessGroup* const processes = run.processes;
  std::vector<std::string>& notes = run.notes;
  std::ostream& out = run.out;
  const bool is_first = run.is_first();
  exec::require_data(scenario);  // before memory is taken
  run.choose_fusions(options);
  std::optional<Patience> patience;
  if (is_first) patience.emplace(scenario);
  const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario, free_memory_bytes()));
  const Schedule& schedule = verified.schedule;
  const MemoryPlan& plan = verified.plan;
  patience.reset();
  const std::int64_t ranks = schedule.mesh.ranks();
  out << fmt::format("scenario {}: {} parameters, {} rank{}, schedule {}, {} a rank\n", scenario.name,
                     count_text(double(parameter_count(scenario.model))), ranks, ranks == 1 ? "" : "s", schedule.name,
                     size_text(double(plan.peak_bytes())));
  notes.insert(notes.end(), schedule.notes.begin(), schedule.notes.end());
  run.reserve_queues(schedule);
  for (const std::string& note : notes) out << "note: " << note << "\n";
  watch_interrupts();
  // Rank 0 measures how fast a core is.
  std::optional<Yardstick> yardstick;
  if (is_first && !run.is_gpu && schedule.compute_dtype == Dtype::f32) yardstick.emplace();
  StepLines log(out, scenario.training.train_iters, options.log_interval);
  exec::TrainOptions callbacks;
  callbacks.processes = processes;
  callbacks.stop = interrupted;
  callbacks.on_message = [&](const std::string& line) { out << printable(line) << std::endl; };
  std::optional<StepFiles> files;
  if (is_first) files.emplace(options);
  callbacks.on_evaluation = [&](const exec::Evaluation& e) {
    log.after_evaluation(e);
    if (files) files->after_evaluation(e);
  };
  callbacks.on_step = [&](const exec::TrainStep& s) {
    log.after_step(s);
    if (files) files->after_step(s);
    if (yardstick) yardstick->after_step(s.step_ms);
  };
  const exec::Machine machine = run.machine(static_cast<int>(scenario.cluster.cores_per_device));
  const auto executor = machine.make(verified, exec::run_options(scenario));
  std::size_t said = 0;
  const auto say_notes = [&] {
    const std::vector<std::string> all = executor->notes();
    for (; said < all.size(); ++said) out << "note: " << all[said] << "\n";
  };
  say_notes();
  const auto device = executor->device();
  if (device && is_first)
    out << memory_tables_text(
               {memory_use(schedule, plan), processes ? 1 : ranks, device->memory_bytes, device->outside_plan})
        << "\n";
  const exec::TrainResult result = exec::train(scenario, schedule, *executor, callbacks);
  say_notes();  // notes of the first steps

  std::string unfinished;
  if (!result.finished)
    unfinished = scenario.training.checkpoint_dir.empty()
                     ? "interrupted before train_iters; without [training] checkpoint_dir nothing of it is kept"
                     : "interrupted before train_iters; run again to go on from the checkpoint";
  if (!is_first) return unfinished;
  std::vector<double> times_ms;
  for (const exec::TrainStep& s : result.steps) times_ms.push_back(s.step_ms);
  ask::Utilisation utilisation;
  if (!times_ms.empty() && run.is_gpu) {
    const std::int64_t gpus = processes ? ranks : 1;
    const PeakRate sheet = data_sheet_peak(device ? device->name : "", gpus, schedule.compute_dtype);
    const Throughput t = throughput_of(scenario, median(times_ms), gpus, sheet);
    utilisation.mfu = t.mfu;
    utilisation.tflops_per_gpu = t.TFLOPs_per_device;
    out << fmt::format("median step {:.1f} ms ({:.1f}–{:.1f}); {:.1f} TFLOP/s a GPU", median(times_ms),
                       minimum(times_ms), maximum(times_ms), t.TFLOPs_per_device);
    if (t.mfu)
      out << fmt::format("; MFU {} of the {:g} that the data sheet of {} has", percent_text(*t.mfu),
                         sheet.FLOPs_per_s / double(gpus) * 1e-12, device->name);
    out << "\n";
    if (!t.doubt.empty()) out << "note: " << t.doubt << "\n";
  } else if (!times_ms.empty()) {
    std::tie(utilisation.mfu, utilisation.hfu) = host_utilisation(
        scenario, schedule, times_ms, yardstick ? std::optional(yardstick->median_GFLOPs()) : std::nullopt, out);
  }
  write_json(options.json, ask::json_of(result, utilisation, run.cpu_affinity()));
  return unfinished;
}

void train_command(const TrainCommandOptions& options) {
  ScenarioCommand command;
  command.name = "train";
  command.takes_one = true;
  run_ranked(
      options, command,
      [](const Scenario& scenario) {
        build_schedule(scenario, free_memory_bytes());
        exec::require_data(scenario);
      },
      [&](ScenarioRun& run) {
        const std::string unfinished = train_as(options, run);
        if (!unfinished.empty()) throw runtime_failure(run.is_first() ? unfinished : "");
      });
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainCommandOptions>();
  CLI::App* command = app.add_subcommand("train", "run it for real: loss and tokens/s per step, checkpoints");
  add_scenario_options(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_rank_options(*command, *options);
  add_mode_option(*command, *options);
  command
      ->add_option("--log-interval,--log_interval", options->log_interval,
                   "a line for each group of this number of steps, with the loss of the last and the mean time of all; "
                   "1 unless given")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  options->files.add_output(
      *command, "--log", options->log,
      "append loss, norm, rate and time of every step to this file as it goes: .csv, else JSON lines");
  options->files.add_output(*command, "--tensorboard", options->tensorboard,
                            "write an event file of TensorBoard into this folder as it goes");
  command->callback([options] {
    options->event_file = event_file_name();
    options->files.set_folder(options->tensorboard, {options->event_file});
    options->further = {"--log-interval", std::to_string(options->log_interval)};
    for (const auto& [name, output] : {std::pair{"--log", &options->log}, {"--tensorboard", &options->tensorboard}})
      if (!output->empty()) options->further.insert(options->further.end(), {name, output->name()});
    train_command(*options);
  });
}

}  // namespace stretto::cli
