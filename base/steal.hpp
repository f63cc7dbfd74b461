#pragma once
#include <cstdint>
#include <utility>

namespace stretto {

// How much of the processors' time a hypervisor gave to others while something here wanted to run: "steal" of
// /proc/stat (proc(5)), over all processors, in ticks of 10 ms. 0 where the system does not say. Not thread-safe.
class StealClock {
 public:
  StealClock() { share_since_last(); }
  // Stolen / (stolen + used) since the last call, 0 to 1. Coarse: over less than a second a tick is some percent.
  double share_since_last();

 private:
  std::int64_t stolen_ = 0, used_ = 0;
};

// More than this, and a measurement says more about the neighbours than about what was measured.
constexpr double kMostStolen = 0.03;

// Repeats what was disturbed, each measurement three times at most, as long as repeats are left for all. It looks at
// what was stolen and never at the result, so it does not prefer fast results to slow ones.
class Undisturbed {
 public:
  explicit Undisturbed(std::int64_t repeats) : left_(repeats) {}
  // `run` makes its result anew each time.
  template <class Run>
  void operator()(Run run) {
    clock_.share_since_last();
    run();
    ++runs_;
    for (int i = 0; i < 3 && left_ > 0 && clock_.share_since_last() > kMostStolen; ++i, --left_, ++set_aside_) run();
  }
  std::int64_t set_aside() const { return set_aside_; }
  std::int64_t runs() const { return runs_; }  // without those set aside

 private:
  StealClock clock_;
  std::int64_t left_, set_aside_ = 0, runs_ = 0;
};

}  // namespace stretto
