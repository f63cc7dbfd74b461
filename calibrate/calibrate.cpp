#include "calibrate/calibrate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

#include "base/statistics.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"

namespace stretto::calibrate {
namespace {

// Returns how much longer the operations of a class take in `shared` than in `reference`: the median ratio of samples
// with equal key and features. Shards depend on the number of ranks, so the optimizer's operations have no equal in the
// reference: those are compared with their fitted cost, times `fitted_slowdown`.
double median_ratio(const std::vector<Sample>& shared, const std::vector<Sample>& reference, sim::DemandClass cls,
                    const sim::Platform& platform, double fitted_slowdown, double& spread_pct) {
  std::vector<double> ratios;
  for (const Sample& s : shared) {
    if (s.cls != cls) continue;
    const auto equal = std::find_if(reference.begin(), reference.end(),
                                    [&](const Sample& r) { return s.key == r.key && s.features == r.features; });
    if (equal != reference.end()) {
      ratios.push_back(s.us / equal->us);
      continue;
    }
    const std::vector<double>& coefficients = platform.costs.at(s.key).coefficients;
    const double fitted_us =
        std::inner_product(s.features.begin(), s.features.end(), coefficients.begin(), 0.0) * fitted_slowdown;
    if (fitted_us > 0) ratios.push_back(s.us / fitted_us);
  }
  spread_pct = ratios.empty() ? 0 : stretto::spread_pct(ratios);
  return ratios.empty() ? 1 : median(ratios);
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      std::string name = line.substr(line.find(':') + 2);
      std::erase_if(name, [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32; });
      return name;
    }
  return "unknown CPU";
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

Calibration calibrate_host(int cores, Notebook& notebook, const std::function<void(const std::string&)>& progress,
                           const MayEnd& may_end) {
  if (cores <= 0) cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const MachineOf machine_of = [&](int count) { return ending(host_machine(count), may_end); };
  Calibration result;
  sim::Platform& platform = result.platform;
  platform.device = cpu_name();
  platform.date = today();
  platform.cores = cores;
  platform.name = "host, " + std::to_string(cores) + " cores";

  platform.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);

  progress("issue overhead, wake-up and timer");
  const auto overheads = notebook.part("overheads", [&] { return probe_overheads(machine_of(0)); });
  platform.op_overhead_us = overheads.op_overhead_us;
  platform.wake_us = overheads.wake_us;
  platform.timer_overshoot_us = overheads.timer_overshoot_us;

  StepSamples steps = probe_steps(machine_of, cores, notebook, progress);
  constexpr double kBusy = 0.1;
  if (steps.lost_share > kBusy)
    result.notes.push_back(
        fmt::format("the machine is busy: others took {:.0f} ms of the cores for every 100 ms that were computed, and "
                    "costs are too high by about as much; calibrate again when it is quiet",
                    100 * steps.lost_share));
  platform.sgemm_GFLOPs = steps.sgemm_GFLOPs;
  platform.sgemm_filled_GFLOPs = steps.sgemm_filled_GFLOPs;
  result.samples = steps.alone;
  progress("collectives");
  const auto moves =
      notebook.part("collectives", [&] { return probe_collectives(machine_of(cores), cores, platform.wake_us.value); });
  result.samples.insert(result.samples.end(), moves.begin(), moves.end());
  std::map<std::string, std::vector<Sample>> by_key;
  for (const Sample& sample : result.samples) by_key[sample.key].push_back(sample);
  for (const auto& [key, samples] : by_key) {
    // Products of attention are as small as a head, and a few linear terms cannot describe BLAS at these sizes.
    const bool is_corrected = samples.front().cls == sim::DemandClass::attention;
    platform.costs[key] = (is_corrected ? fit_corrected : fit_linear)(
        samples, key.starts_with("move_") ? "collectives on links that are not paced" : "training steps on one rank");
  }

  progress("compute concurrent with compute");
  platform.slowdown =
      notebook.part("compute concurrent with compute", [&] { return probe_interference(machine_of(cores), cores); });

  for (int c = 0; c < sim::kDemandClasses; ++c) {
    const auto cls = static_cast<sim::DemandClass>(c);
    double spread = 0;
    // Ranks of a data-parallel group run equal operations at one time, so a class concurrent with itself is the pair
    // that matters most: it is taken from training steps, the other pairs from the probe of pairs.
    if (!steps.filled.empty()) {
      const double with_itself = median_ratio(steps.filled, steps.alone, cls, platform, 1, spread);
      platform.slowdown[c][c] = {std::max(0.0, with_itself - 1),
                                 {"measured", "training steps with a rank on every core over one rank alone", spread}};
    }
    const double taking_turns = median_ratio(steps.shared, steps.filled.empty() ? steps.alone : steps.filled, cls,
                                             platform, 1 + platform.slowdown[c][c].value, spread);
    platform.oversubscribed[c] = {std::max(0.0, taking_turns - 1),
                                  {"measured", "training steps with two ranks a core over one rank a core", spread}};
  }
  return result;
}

}  // namespace stretto::calibrate
