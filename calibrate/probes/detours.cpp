#include <chrono>
#include <thread>
#include <vector>

#include "calibrate/probes/probes.hpp"

namespace stretto::calibrate {

void DetourProbe::run() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kWatch = std::chrono::milliseconds(20);
  constexpr double kShortest_us = 200;
  std::vector<std::vector<double>> jumps_us(static_cast<std::size_t>(cores_));
  {
    std::vector<std::jthread> threads;
    for (std::vector<double>& jumps : jumps_us)
      threads.emplace_back([&jumps, kWatch] {
        Clock::time_point last = Clock::now();
        for (const Clock::time_point end = last + kWatch; last < end;) {
          const Clock::time_point now = Clock::now();
          const double us = std::chrono::duration<double, std::micro>(now - last).count();
          if (us > kShortest_us) jumps.push_back(us);
          last = now;
        }
      });
  }
  watched_us_ += static_cast<double>(cores_) * std::chrono::duration<double, std::micro>(kWatch).count();
  for (const std::vector<double>& jumps : jumps_us)
    for (const double us : jumps) {
      lost_us_ += us;
      squared_us2_ += us * us;
    }
}

sim::Disturbance DetourProbe::disturbance() const {
  const double worked_us = watched_us_ - lost_us_;
  if (lost_us_ <= 0 || worked_us <= 0) return {};
  // Of exponential lengths the mean square is twice the square of the mean.
  return {lost_us_ / worked_us, from_us(squared_us2_ / lost_us_ / 2)};
}

}  // namespace stretto::calibrate
