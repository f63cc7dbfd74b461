#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace stretto {

// Estimates the remaining time of work in equal steps from the time that the steps so far took.
class TimeLeft {
 public:
  // Returns ", 2 min 10 s left" when `done` of `all` equal steps are done; "" while nothing can be said or nothing is
  // left.
  std::string after(std::int64_t done, std::int64_t all) const {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
    return text(done > 0 ? taken.count() / double(done) * double(all - done) : 0);
  }
  // Forgets the time so far, because the first steps were of another kind (a warm-up).
  void restart() { begin_ = std::chrono::steady_clock::now(); }

  static std::string text(double seconds);

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace stretto
