#include "sim/device.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/rng.hpp"

namespace stretto::sim {

// Returns the time lost to bursts that begin within `duration` of work on the lane's core, which has slept until
// `ready`.
Picoseconds Devices::lost(std::uint32_t lane, Picoseconds ready, Picoseconds duration) {
  constexpr std::uint64_t kSeed = 1;  // any seed: equal inputs give equal results
  if (disturbed_.empty()) disturbed_.resize(activities_.size());
  Disturbed& mine = disturbed_[lane];
  const double length = static_cast<double>(costs_.disturbance.length), spacing = length / costs_.disturbance.share;
  const auto exponential = [&] { return -std::log1p(-uniform(kSeed, lane, mine.drawn++)); };
  if (costs_.disturbance.shares_by_time)
    mine.slept = std::min(mine.slept + static_cast<double>(ready - activities_[lane].end), length);
  double lost = 0;
  for (double at = exponential() * spacing; at < static_cast<double>(duration); at += exponential() * spacing) {
    const double burst = exponential() * length, paid = std::min(burst, mine.slept);
    mine.slept -= paid;
    lost += burst - paid;
  }
  return static_cast<Picoseconds>(lost);
}

Devices::Devices(const Costs& costs, std::vector<std::uint32_t> device_of, const std::vector<int>& most_cores,
                 std::vector<int> priority, EventHeap& events)
    : costs_(costs),
      events_(events),
      device_of_(std::move(device_of)),
      priority_(std::move(priority)),
      held_(device_of_.size()),
      activities_(device_of_.size()) {
  bool interferes = false;
  for (const auto& row : costs.slowdown)
    for (const double slowdown : row) interferes = interferes || slowdown != 0;
  const bool runs_concurrently = std::any_of(costs.collective.begin(), costs.collective.end(),
                                             [](const CollectiveCost& cost) { return cost.interference.has_value(); });

  for (std::size_t lane = 0; lane < device_of_.size(); ++lane)
    if (device_of_[lane] >= devices_.size()) devices_.resize(device_of_[lane] + 1);
  std::vector<int> cores(devices_.size()), lanes(devices_.size());
  for (std::size_t lane = 0; lane < device_of_.size(); ++lane) {
    cores[device_of_[lane]] += most_cores[lane];
    lanes[device_of_[lane]] += most_cores[lane] > 0;
  }
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].free_cores = costs.cores_per_device;
    devices_[i].queues = costs.cores_per_device > 0 && cores[i] > costs.cores_per_device;
    devices_[i].couples = (interferes && lanes[i] > 1) || (runs_concurrently && lanes[i] > 0);
  }
  contended_.resize(device_of_.size());
  for (std::size_t lane = 0; lane < device_of_.size(); ++lane)
    contended_[lane] = devices_[device_of_[lane]].queues || devices_[device_of_[lane]].couples;
}

void Devices::on_request(std::uint32_t lane, Picoseconds now) {
  DeviceState& device = devices_[device_of_[lane]];
  // The first lane in the queue is not overtaken by lanes that need fewer cores.
  const auto at = std::upper_bound(device.waiting.begin(), device.waiting.end(), priority_[lane],
                                   [&](int priority, std::uint32_t other) { return priority < priority_[other]; });
  const bool queues = device.queues && activities_[lane].interference == nullptr;
  if (queues && (at != device.waiting.begin() || device.free_cores < activities_[lane].cores))
    device.waiting.insert(at, lane);
  else
    grant(device, lane, now);
}

void Devices::grant(DeviceState& device, std::uint32_t lane, Picoseconds now) {
  Activity& activity = activities_[lane];
  if (device.queues) device.free_cores -= activity.cores;
  activity.start = now > activity.ready && costs_.sleeps_for_cores ? now + costs_.wake : now;
  granted_.push_back(lane);
  if (activity.asks) {
    activity.asks = false;
    held_[lane] = activity.cores;
  } else if (!device.couples) {
    activity.end = activity.start + activity.remaining;
    events_.schedule(lane, activity.end, EventKind::finish);
  } else if (activity.start > now) {
    events_.schedule(lane, activity.start, EventKind::start);
  } else {
    on_start(lane, now);
  }
}

void Devices::on_start(std::uint32_t lane, Picoseconds now) {
  DeviceState& device = devices_[device_of_[lane]];
  assert(device.couples);
  Activity& activity = activities_[lane];
  ++(activity.interference != nullptr ? device.kernels : device.count[static_cast<int>(activity.cls)]);
  device.running.push_back(lane);
  activity.updated = now;
  activity.stretch = 0;  // it has done no work that must be accounted
  rearm(device, now);
  activity.stretch = stretch_of(device, activity);
  activity.end =
      now + (activity.stretch == 1 ? activity.remaining
                                   : std::llround(static_cast<double>(activity.remaining) * activity.stretch));
  events_.schedule(lane, activity.end, EventKind::finish);
}

// Removes an operation; the remaining operations have one neighbour less.
void Devices::leave(DeviceState& device, std::uint32_t lane, Picoseconds now) {
  const auto at = std::find(device.running.begin(), device.running.end(), lane);
  assert(at != device.running.end());
  *at = device.running.back();
  device.running.pop_back();
  const Activity& activity = activities_[lane];
  --(activity.interference != nullptr ? device.kernels : device.count[static_cast<int>(activity.cls)]);
  rearm(device, now);
}

void Devices::release(std::uint32_t lane, Picoseconds now) {
  DeviceState& device = devices_[device_of_[lane]];
  if (device.couples) leave(device, lane, now);
  if (!device.queues) return;
  device.free_cores += activities_[lane].cores;
  serve(device, now);
}

void Devices::release_held(std::uint32_t lane, Picoseconds now) {
  const int held = std::exchange(held_[lane], 0);
  if (held == 0 || !contended_[lane]) return;
  DeviceState& device = devices_[device_of_[lane]];
  --device.busy;
  if (!device.queues) return;
  device.free_cores += held;
  serve(device, now);
}

void Devices::serve(DeviceState& device, Picoseconds now) {
  while (!device.waiting.empty() && activities_[device.waiting.front()].cores <= device.free_cores) {
    const std::uint32_t next = device.waiting.front();
    device.waiting.pop_front();
    grant(device, next, now);
  }
}

double Devices::stretch_of(const DeviceState& device, const Activity& activity) const {
  if (activity.interference == nullptr) return device.stretch[static_cast<std::size_t>(activity.cls)];
  double stretch = 1;
  for (std::size_t b = 0; b < kDemandClasses; ++b)
    if (device.count[b] > 0) stretch += activity.interference->slowed[b];
  return stretch;
}

void Devices::rearm(DeviceState& device, Picoseconds now) {
  bool changed = device.kernels > 0;
  for (int a = 0; a < kDemandClasses; ++a) {
    double stretch = 1;
    for (int b = 0; b < kDemandClasses; ++b)
      if (device.count[b] > (a == b)) stretch += costs_.slowdown[a][b];
    if (device.kernels > 0)
      for (const std::uint32_t lane : device.running)
        if (const KernelInterference* interference = activities_[lane].interference) stretch += interference->slows[a];
    changed = changed || stretch != device.stretch[a];
    device.stretch[a] = stretch;
  }
  if (!changed) return;
  for (const std::uint32_t lane : device.running) {
    Activity& activity = activities_[lane];
    const double stretch = stretch_of(device, activity);
    if (activity.stretch == 0 || stretch == activity.stretch) continue;
    const Picoseconds elapsed = now - activity.updated;
    // Both conversions are exact at stretch 1 (below 2^53 ps = 2.5 hours) and off by half a picosecond otherwise. An
    // operation that ends now has exactly 0 left: stretch is at least 1, so the division undoes the rounding of the
    // product.
    activity.remaining -= std::llround(static_cast<double>(elapsed) / activity.stretch);
    activity.remaining = std::max<Picoseconds>(activity.remaining, 0);
    activity.updated = now;
    activity.stretch = stretch;
    activity.end = now + std::llround(static_cast<double>(activity.remaining) * stretch);
    events_.schedule(lane, activity.end, EventKind::finish);
  }
}

}  // namespace stretto::sim
