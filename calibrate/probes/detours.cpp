#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/statistics.hpp"
#include "calibrate/probes/probes.hpp"

namespace stretto::calibrate {

DetourProbe::DetourProbe(int cores)
    : threads_(std::min(cores, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())))) {}

DetourProbe::Sample DetourProbe::run() const {
  using Clock = std::chrono::steady_clock;
  std::vector<Sample> samples(static_cast<std::size_t>(threads_));
  {
    std::vector<std::jthread> threads;
    for (Sample& sample : samples)
      threads.emplace_back([&sample] {
        const Clock::time_point begin = Clock::now();
        for (Clock::time_point last = begin; last < begin + std::chrono::milliseconds(20);) {
          const Clock::time_point now = Clock::now();
          const double us = std::chrono::duration<double, std::micro>(now - std::exchange(last, now)).count();
          sample.watched_us += us;
          if (us <= kShortestBurst_us) continue;
          sample.lost_us += us;
          sample.squared_us2 += us * us;
        }
      });
  }
  Sample sum;
  for (const Sample& sample : samples) sum += sample;
  return sum;
}

DetourProbe::Sample& DetourProbe::Sample::operator+=(const Sample& more) {
  watched_us += more.watched_us;
  lost_us += more.lost_us;
  squared_us2 += more.squared_us2;
  return *this;
}

sim::Disturbance disturbance_of(std::span<const DetourProbe::Sample> turns) {
  DetourProbe::Sample sum;
  std::vector<double> shares;
  for (const DetourProbe::Sample& turn : turns) {
    sum += turn;
    if (turn.watched_us > turn.lost_us) shares.push_back(turn.lost_us / (turn.watched_us - turn.lost_us));
  }
  if (sum.lost_us <= 0 || shares.empty()) return {};
  // With exponential lengths the mean square is twice the square of the mean.
  return {median(shares), from_us(sum.squared_us2 / sum.lost_us / 2)};
}

}  // namespace stretto::calibrate
