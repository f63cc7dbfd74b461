#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

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
  for (const Sample& sample : samples) {
    sum.watched_us += sample.watched_us;
    sum.lost_us += sample.lost_us;
    sum.squared_us2 += sample.squared_us2;
  }
  return sum;
}

void DetourProbe::add(const Sample& sample) {
  sum_.watched_us += sample.watched_us;
  sum_.lost_us += sample.lost_us;
  sum_.squared_us2 += sample.squared_us2;
}

sim::Disturbance DetourProbe::disturbance() const {
  if (sum_.lost_us <= 0) return {};
  // With exponential lengths the mean square is twice the square of the mean.
  return {sum_.lost_us / (sum_.watched_us - sum_.lost_us), from_us(sum_.squared_us2 / sum_.lost_us / 2)};
}

}  // namespace stretto::calibrate
