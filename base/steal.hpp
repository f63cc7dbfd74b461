#pragma once
#include <cstdint>
#include <utility>

namespace stretto {

// The share of the processors' time that a hypervisor gave to other machines while this one wanted to run: "steal" of
// /proc/stat (proc(5)), over all processors, in ticks of 10 ms. 0 where the system does not say. Not thread-safe.
class StealClock {
 public:
  StealClock() { share_since_last(); }
  // Returns stolen / (stolen + used) since the last call, from 0 to 1. The value is coarse: within less than a second
  // one tick is some percent.
  double share_since_last();

 private:
  std::int64_t stolen_ = 0, used_ = 0;
};

// Above this share a measurement says more about the neighbours on the machine than about the measured work.
constexpr double kMostStolen = 0.03;

// Repeats disturbed measurements, each three times at most, while the budget of repeats lasts. The decision looks at
// the stolen time and never at the result, so it does not prefer fast results to slow ones.
class Undisturbed {
 public:
  explicit Undisturbed(std::int64_t repeats) : left_(repeats) {}
  // Calls `run` once or more; each call must replace the result of the call before.
  template <class Run>
  void operator()(Run run) {
    clock_.share_since_last();
    run();
    ++runs_;
    for (int i = 0; i < 3 && left_ > 0 && clock_.share_since_last() > kMostStolen; ++i, --left_, ++set_aside_) run();
  }
  std::int64_t set_aside() const { return set_aside_; }
  std::int64_t runs() const { return runs_; }  // number of runs without the discarded ones

 private:
  StealClock clock_;
  std::int64_t left_, set_aside_ = 0, runs_ = 0;
};

}  // namespace stretto
