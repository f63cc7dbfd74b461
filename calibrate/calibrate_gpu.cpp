#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "calibrate/calibrate.hpp"
#include "exec/cuda/cuda.hpp"
#include "model/verify/verify.hpp"

namespace stretto::calibrate {
namespace {

// Returns the rate of the GEMM with the yardstick's shape.
Quantity yardstick(const std::vector<Sample>& kernels, const GemmShape& shape) {
  const double products =
      static_cast<double>(shape.tokens) * static_cast<double>(shape.outputs) * static_cast<double>(shape.inputs);
  for (const Sample& sample : kernels)
    if (sample.key == "gemm_nt_bf16" && sample.features[1] == products)
      return {2 * products / sample.us * 1e-6,
              {"measured",
               "GEMM of " + std::to_string(shape.tokens) + " x " + std::to_string(shape.outputs) + " x " +
                   std::to_string(shape.inputs) + ", bf16",
               sample.spread_pct}};
  throw runtime_failure("calibrate: the memory does not suffice for the GEMMs that are measured");
}

std::string origin_of(const std::string& key) {
  if (key.starts_with("nccl_")) return "collectives and messages between GPUs of a rank each, all groups at once";
  if (key.starts_with("move_")) return "collectives on links that are not paced";
  if (key == "copy_engine") return "rings of ranks that copy to the next, links not paced";
  return "training steps on one rank, and kernels one by one";
}

}  // namespace

exec::Executor::Device gpu_of(const Machine& machine) {
  const VerifiedSchedule verified =
      plan_and_verify(collective_schedule(CollectiveKind::all_gather, Dtype::f32, 2, {1024}, {}));
  const auto device = machine.make(verified, {})->device();
  if (!device) throw runtime_failure("calibrate: expected a GPU, got this machine's processor");
  return *device;
}

Calibration calibrate_gpu(const Machine& machine, const GpuSizes& sizes,
                          const std::function<void(const std::string&)>& progress, const std::vector<Sample>& network,
                          Notebook* kept) {
  Notebook in_memory;
  Notebook& notebook = kept ? *kept : in_memory;
  using Clock = std::chrono::steady_clock;
  std::string took;
  Clock::time_point begin = Clock::now();
  const auto end_of = [&](const char* part) {
    const Clock::time_point now = Clock::now();
    took += fmt::format("{}{} {:.1f} s", took.empty() ? "" : ", ", part,
                        std::chrono::duration<double>(now - std::exchange(begin, now)).count());
  };
  Calibration result;
  sim::Platform& platform = result.platform;
  const exec::Executor::Device device = gpu_of(machine);
  platform.device = device.name;
  platform.name = "shared GPU, " + std::to_string(device.sms) + " SMs";
  platform.date = today();
  platform.cores = 1;
  platform.memory_bytes = device.memory_bytes;
  platform.compute_capability = device.compute_capability;
  sim::Gpu& gpu = platform.gpu.emplace();
  gpu.sms = device.sms;
  gpu.ctas = cuda::CudaOptions{}.ctas;
  const auto memory_bytes = static_cast<std::int64_t>(static_cast<double>(device.memory_bytes) * kUsableMemory);

  progress("launches, events and paced links");
  const auto overheads = notebook.part("overheads", [&] { return probe_overheads(machine); });
  platform.op_overhead_us = overheads.op_overhead_us;
  // A stream that waits for an event pays only for the event (docs/simulation.md).
  platform.wake_us = overheads.wake_us;
  platform.wake_us.value += overheads.op_overhead_us.value;
  platform.wake_us.source.origin = "400 fills on two streams that wait for each other, end to start";
  platform.timer_overshoot_us = overheads.timer_overshoot_us;
  end_of("overheads");

  // Samples, and notes on what was left out of them.
  using Noted = std::pair<std::vector<Sample>, std::vector<std::string>>;
  const auto noted = [&](const std::string& part, auto probe) {
    const Noted measured = notebook.part(part, [&] {
      Noted fresh;
      fresh.first = probe(fresh.second);
      return fresh;
    });
    for (const std::string& note : measured.second)
      if (std::find(result.notes.begin(), result.notes.end(), note) == result.notes.end()) result.notes.push_back(note);
    return measured.first;
  };
  for (std::size_t i = 0; i < sizes.steps.size(); ++i) {
    const PreciseStep& step = sizes.steps[i];
    progress(fmt::format("training steps, {} of {}: {}", i + 1, sizes.steps.size(), describe(step)));
    for (Sample& sample : noted("training step: " + describe(step), [&](std::vector<std::string>& notes) {
           return probe_model(machine, step, sizes.repeats, memory_bytes, notes);
         }))
      result.samples.push_back(std::move(sample));
  }
  end_of("training steps");
  const std::vector<Sample> kernels = probe_kernels(machine, sizes, memory_bytes, progress, notebook, result.notes);
  gpu.gemm_TFLOPs = yardstick(kernels, sizes.gemms.front());
  end_of("kernels one by one");
  progress("communication kernels and copies");
  // Results are kept when a later probe fails; a prediction that needs a missing one reports it.
  const auto attempt = [&](const char* part, auto&& instead, auto probe) {
    try {
      return notebook.part(part, probe);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::runtime) throw;
      result.notes.push_back(std::string(part) + ": not measured, " + error.what());
      return instead;
    }
  };
  const std::vector<Sample> none;
  const std::vector<Sample> moves =
      attempt("communication kernels", none, [&] { return probe_moves(machine, sizes, platform.wake_us.value); });
  const std::vector<Sample> copies = attempt("copies", none, [&] { return probe_copies(machine, sizes); });
  for (const auto* samples : {&kernels, &moves, &copies, &network})
    result.samples.insert(result.samples.end(), samples->begin(), samples->end());
  std::map<std::string, std::vector<Sample>> by_key;
  for (const Sample& sample : result.samples) by_key[sample.key].push_back(sample);
  for (const auto& [key, samples] : by_key) platform.costs[key] = fit_corrected(samples, origin_of(key));

  end_of("communication and fits");
  progress("compute concurrent with compute");
  const auto alone_us = attempt("classes", std::array<double, sim::kDemandClasses>{},
                                [&] { return probe_classes(machine, sizes.classes); });
  Pairs not_measured;
  for (auto& row : not_measured) row.fill({0, {"assumed", "not measured", 0}});
  platform.slowdown = attempt("compute concurrent with compute", not_measured,
                              [&] { return probe_streams(machine, sizes.classes, alone_us); });
  end_of("compute concurrent with compute");
  progress("compute concurrent with communication");
  TransferCurves curves = attempt("compute concurrent with communication", without_transfers("not measured"),
                                  [&] { return probe_transfers(machine, sizes, alone_us, notebook); });
  gpu.beside_moving = std::move(curves.beside_moving);
  gpu.beside_waiting = std::move(curves.beside_waiting);
  gpu.moving_beside = std::move(curves.moving_beside);
  gpu.beside_copying = std::move(curves.beside_copying);
  gpu.copying_beside = std::move(curves.copying_beside);
  end_of("compute concurrent with communication");
  result.notes.push_back("took: " + took);
  return result;
}

}  // namespace stretto::calibrate
