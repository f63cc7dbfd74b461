#include "calibrate/minimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/statistics.hpp"
#include "calibrate/calibrate.hpp"
#include "exec/cuda/cuda.hpp"
#include "model/lower/builder.hpp"
#include "model/verify/verify.hpp"

namespace stretto::calibrate {
namespace {

constexpr int kGemms = 32, kCopies = 4, kChain = 400;

struct Matrix {
  std::int64_t rows = 0, cols = 0;
};

// Returns a schedule of one operation `times` times, one after the other on one rank. All read the same matrices and
// write the same one.
Schedule repeated(const Work& work, const std::vector<Matrix>& read_from, const Matrix& write_to, int times) {
  Schedule schedule;
  schedule.name = "probe_minimal";
  schedule.compute_dtype = Dtype::bf16;
  schedule.mesh = Mesh({{Coord::dp, 1}});
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  schedule.programs = {{"rank", {}}};
  std::vector<Access> accesses;
  for (const Matrix& m : read_from) {
    const std::string name = "in" + std::to_string(accesses.size());
    accesses.push_back(
        read(whole(schedule, add_tensor(schedule, name, Dtype::bf16, BufferKind::parameter, m.rows, m.cols))));
  }
  accesses.push_back(write(
      whole(schedule, add_tensor(schedule, "out", Dtype::bf16, BufferKind::workspace, write_to.rows, write_to.cols))));
  for (int i = 0; i < times; ++i) {
    const BlockId block =
        add_single(schedule, {fmt::format("{}.{}", describe(work), i), work, 0, Phase::forward, accesses});
    schedule.programs.front().order.push_back(call_block(schedule, block));
  }
  return schedule;
}

Schedule gemms_of(const GemmShape& s) {
  return repeated(Gemm{s.tokens, s.outputs, s.inputs, false, true, false},
                  {{s.tokens, s.inputs}, {s.outputs, s.inputs}}, {s.tokens, s.outputs}, kGemms);
}
Schedule copies_of(std::int64_t elements, int times) {
  return repeated(Cast{elements}, {{1, elements}}, {1, elements}, times);
}

bool fits(const Schedule& schedule, std::int64_t memory_bytes) {
  const std::int64_t needed = plan_memory(schedule).peak_bytes() + cuda::overhead_bytes(schedule, 1);
  return static_cast<double>(needed) <= kUsableMemory * static_cast<double>(memory_bytes);
}

std::vector<double> times_us(const Timeline& timeline) {
  std::vector<double> times;
  for (const TimelineRow& row : timeline.rows) times.push_back(to_us(row.end - row.start));
  return times;
}

struct GemmTimes {
  std::vector<double> first_us, last_us;  // times in the first second and in the last third
};

GemmTimes measure_gemms(const Schedule& schedule, const Machine& machine, double seconds,
                        const std::function<void(const std::string&)>& progress) {
  const VerifiedSchedule verified = plan_and_verify(schedule);
  const std::unique_ptr<exec::Executor> executor = machine.make(verified, {});
  fill_randomly(schedule, *executor);
  executor->run(1);  // this run is made of calls; later runs are a graph
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto passed_s = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  struct Run {
    double begin_s = 0;
    std::vector<double> us;
  };
  std::vector<Run> runs;
  do {
    const double now_s = passed_s();
    progress(fmt::format("a large GEMM, {:.0f} of {:.0f} s", now_s, seconds));
    runs.push_back({now_s, times_us(executor->run(machine.steps))});
  } while (passed_s() < seconds);
  GemmTimes times;
  for (const Run& run : runs) {
    if (run.begin_s < 1) times.first_us.insert(times.first_us.end(), run.us.begin(), run.us.end());
    if (run.begin_s * 3 >= runs.back().begin_s * 2)
      times.last_us.insert(times.last_us.end(), run.us.begin(), run.us.end());
  }
  return times;
}

// Returns the time of the whole step / its kernels, because timestamps between the kernels would be timed too.
std::vector<double> chain_us(const Schedule& schedule, const Machine& machine, int repeats) {
  const VerifiedSchedule verified = plan_and_verify(schedule);
  const std::unique_ptr<exec::Executor> executor = machine.make(verified, {});
  fill_randomly(schedule, *executor);
  constexpr int kSteps = 10;
  executor->run_without_rows(2);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const Timeline timeline = executor->run_without_rows(kSteps);
    times.push_back(to_us(timeline.step_end - timeline.step_begin) / kChain);
  }
  return times;
}

}  // namespace

void measure_minimal(const Machine& machine, const MinimalSizes& sizes, ImportedPlatform& imported,
                     const std::function<void(const std::string&)>& progress) {
  sim::Accelerator& a = *imported.platform.accelerator;
  if (a.gemms.empty())
    throw input_error("--minimal: expected a platform with a table of GEMMs, to which gemm_sustained refers, got " +
                      imported.base + " without one");
  progress("the GPU");
  const exec::Executor::Device device = gpu_of(machine);
  if (device.compute_capability > 0) imported.platform.compute_capability = device.compute_capability;
  const std::string of = fmt::format("stretto calibrate --minimal, {}, {}: ", today(), printable(device.name));
  const auto replace = [&](const char* key, Quantity& quantity, std::vector<double> values, const std::string& probe) {
    quantity = {
        median(values), {"measured", of + probe, spread_pct(values)}, percentile(values, 10), percentile(values, 90)};
    for (ImportedPlatform::Part& part : imported.parts)
      if (part.what == key) part = {key, fmt::format("{:.6g}", quantity.value), kMeasured};
  };

  progress("a chain of small kernels");
  replace("kernel_us", a.kernel_us, chain_us(copies_of(16, kChain), machine, sizes.repeats),
          fmt::format("time of each of {} small kernels in a chain, in a CUDA graph", kChain));

  progress("a large copy");
  std::int64_t copied = sizes.copied;
  while (copied > 1 && !fits(copies_of(copied, kCopies), device.memory_bytes)) copied /= 2;
  const Schedule copies = copies_of(copied, kCopies);
  const ProbeRun run = run_probe(copies, machine, {}, 2, sizes.repeats,
                                 [&](exec::Executor& executor) { fill_randomly(copies, executor); });
  const double bytes = 2 * static_cast<double>(copied) * static_cast<double>(bytes_of(Dtype::bf16));
  std::vector<double> shares;
  for (const Timeline& timeline : run.timelines)
    for (const double us : times_us(timeline)) shares.push_back(bytes / us * 1e-3 / a.hbm_GBps.value);
  if (percentile(shares, 90) > 1)
    throw input_error(fmt::format(
        "--minimal: a copy reads and writes {:.0f} GB/s, more than the hbm_GBps of {}, {:g}: expected a --base of this "
        "GPU, {}, or --hbm_GBps",
        median(shares) * a.hbm_GBps.value, imported.base, a.hbm_GBps.value, printable(device.name)));
  replace("hbm_share", a.hbm_share, shares, fmt::format("copy of {:g} MB over hbm_GBps", bytes / 2 * 1e-6));

  GemmShape s = sizes.gemm;
  while (std::min({s.tokens, s.outputs, s.inputs}) > 1 && !fits(gemms_of(s), device.memory_bytes))
    s = {s.tokens / 2, s.outputs / 2, s.inputs / 2};
  const GemmTimes times = measure_gemms(gemms_of(s), machine, sizes.seconds, progress);
  const double m = double(s.tokens), n = double(s.outputs), k = double(s.inputs);
  const double table_us = a.gemms.time_us(m, n, k, a.gemm_waves ? a.sms : 0);
  const std::string shape = fmt::format("GEMM of {} x {} x {}", s.tokens, s.outputs, s.inputs);
  std::vector<double> ratios;
  for (const double us : times.last_us) ratios.push_back(us / table_us);
  replace("gemm_sustained", a.gemm_sustained, ratios,
          fmt::format("{}, random numbers, last third of {:g} s, over the table's time", shape, sizes.seconds));
  imported.platform.device = printable(device.name);
  const auto rate = [&](double us) { return 2 * m * n * k / us * 1e-6; };
  imported.notes.push_back(fmt::format(
      "{}, random numbers: {:.4g} TFLOP/s in the first second, {:.4g} in the last third of {:g} s; the table's {:.4g}",
      shape, rate(median(times.first_us)), rate(median(times.last_us)), sizes.seconds, rate(table_us)));
  if (device.sms != a.sms)
    imported.notes.push_back(fmt::format("{} has {} SMs, {} {}: the rest is another GPU's", printable(device.name),
                                         device.sms, imported.base, a.sms));
}

}  // namespace stretto::calibrate
