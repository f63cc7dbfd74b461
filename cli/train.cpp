#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "calibrate/probes/probes.hpp"
#include "cli/commands.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/trainer.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/verify.hpp"
#include "report/table.hpp"

namespace stretto::cli {
namespace {

struct TrainCommand : CommonOptions {
  std::string backend = "host";
};

double model_flops_per_s(const Scenario& scenario, const std::vector<double>& times_ms) {
  return training_flops_per_sequence(scenario.model).model * double(scenario.training.global_batch_size) /
         (median(times_ms) * 1e-3);
}

// MFU and HFU against sgemm on the same cores; prints them.
std::pair<double, double> host_utilisation(const Scenario& scenario, const Schedule& schedule,
                                           const std::vector<double>& times_ms) {
  const double yardstick = calibrate::SgemmYardstick(1, 1).run_GFLOPs();
  const int threads = static_cast<int>(schedule.mesh.ranks()) * schedule.placement.threads_per_rank;
  const int cores = std::min<int>(threads, static_cast<int>(scenario.cluster.cores_per_device > 0
                                                                ? scenario.cluster.cores_per_device
                                                                : std::max(1u, std::thread::hardware_concurrency())));
  const Flops flops = training_flops_per_sequence(scenario.model);
  const double flops_per_s = model_flops_per_s(scenario, times_ms), peak = yardstick * 1e9 * cores;
  const double executed = flops.hardware + recompute_flops_per_sequence(scenario.model, scenario.training.recompute);
  const double mfu = flops_per_s / peak, hfu = mfu * executed / flops.model;
  std::cout << fmt::format(
      "median step {:.1f} ms ({:.1f}–{:.1f}); {:.1f} GFLOP/s; MFU {:.0f} %, HFU {:.0f} % of sgemm 1024³ on the same "
      "{} core{} ({:.1f} GFLOP/s a core; docs/mfu.md)\n",
      median(times_ms), minimum(times_ms), maximum(times_ms), flops_per_s * 1e-9, 100 * mfu, 100 * hfu, cores,
      cores == 1 ? "" : "s", yardstick);
  return {mfu, hfu};
}

void train(const TrainCommand& options) {
  const Scenario scenario = read_scenario(options.scenario, options.set);
  require_writable(options.json);
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_and_verify(schedule).plan;
  const std::int64_t ranks = schedule.mesh.ranks();
  std::cout << fmt::format("scenario {}: {:.2f} M parameters, {} rank{}, schedule {}, {:.1f} MiB a rank\n",
                           scenario.name, double(parameter_count(scenario.model)) * 1e-6, ranks, ranks == 1 ? "" : "s",
                           schedule.name, double(plan.peak_bytes()) / (1 << 20));
  for (const std::string& note : schedule.notes) std::cout << "note: " << note << "\n";
  watch_interrupts();
  exec::TrainOptions callbacks;
  callbacks.stop = interrupted;
  callbacks.on_message = [](const std::string& line) { std::cout << line << std::endl; };
  callbacks.on_step = [&](const exec::TrainStep& s) {
    std::cout << fmt::format("step {:5d}/{}  loss {:.5f}  norm {:.3f}  lr {:.2e}  {:.1f} ms  {:.0f} tokens/s\n",
                             s.step + 1, scenario.training.train_iters, s.loss, s.gradient_norm, s.lr, s.step_ms,
                             s.tokens_per_s)
              << std::flush;
  };
  exec::TrainResult result;
  if (options.backend == "cuda") {
    const std::string shared = cuda::reserve_hardware_queues(static_cast<std::size_t>(ranks) * schedule.lanes.size());
    if (!shared.empty()) std::cout << "note: " << shared << "\n";
    const auto executor = cuda::make_cuda_executor(schedule, plan, cuda::cuda_options(scenario));
    for (const std::string& note : executor->notes()) std::cout << "note: " << note << "\n";
    result = exec::train(scenario, schedule, *executor, callbacks);
  } else {
    result = exec::train_on_host(scenario, schedule, plan, callbacks);
  }

  nlohmann::json steps = nlohmann::json::array();
  std::vector<double> times_ms;
  for (const exec::TrainStep& s : result.steps) {
    steps.push_back({{"step", s.step},
                     {"loss", s.loss},
                     {"step_ms", s.step_ms},
                     {"tokens_per_s", s.tokens_per_s},
                     {"gradient_norm", s.gradient_norm},
                     {"lr", s.lr}});
    times_ms.push_back(s.step_ms);
  }
  nlohmann::json mfu = nullptr, hfu = nullptr, tflops_per_gpu = nullptr;
  if (!times_ms.empty() && options.backend == "cuda") {
    tflops_per_gpu = model_flops_per_s(scenario, times_ms) * 1e-12;  // all ranks share one
    std::cout << fmt::format("median step {:.1f} ms ({:.1f}–{:.1f}); {:.1f} TFLOP/s\n", median(times_ms),
                             minimum(times_ms), maximum(times_ms), tflops_per_gpu.get<double>());
  } else if (!times_ms.empty()) {
    std::tie(mfu, hfu) = host_utilisation(scenario, schedule, times_ms);
  }
  write_json(options.json, {{"steps", std::move(steps)},
                            {"mfu", mfu},
                            {"hfu", hfu},
                            {"tflops_per_gpu", tflops_per_gpu},
                            {"resumed_from", result.resumed_from >= 0 ? nlohmann::json(result.resumed_from)
                                                                      : nlohmann::json(nullptr)}});
  if (!result.finished) throw runtime_failure("interrupted before train_iters; run again to go on from the checkpoint");
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainCommand>();
  CLI::App* command = app.add_subcommand("train", "run it for real: loss and tokens/s per step, checkpoints");
  add_scenario_options(*command, *options);
  command->add_option("--json", options->json, "write results as JSON to this file, - for standard output");
  command->add_option("--backend", options->backend, "what runs it: host, this machine's processor; cuda, its GPU")
      ->check(CLI::IsMember({"host", "cuda"}));
  command->callback([options] { train(*options); });
}

}  // namespace stretto::cli
