#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "calibrate/probes/probes.hpp"
#include "compare/grid.hpp"
#include "exec/ready_step.hpp"
#include "report/comparison.hpp"

namespace stretto::compare {

// One schedule at one number of ranks, ready to run, and what was measured of it.
struct Contender : exec::ReadyStep {
  using ReadyStep::ReadyStep;
  std::string mode;
  std::vector<std::string> equal_modes;  // which give the same schedule
  std::vector<Timeline> measured;        // one a turn
  double loss = kUnknown;                // of the last step of the warm-up: turns may be more in one than in another
};
double step_ms(const Timeline& timeline);

// A contender for every schedule that is none of those before, and last a second copy of the first (A/A).
std::vector<std::unique_ptr<Contender>> contenders_of(const Grid& grid, std::int64_t ranks,
                                                      const exec::Machine& machine, const exec::TokenSource& tokens);

// How the host's cores are while steps are measured on them.
class CoreMonitor {
 public:
  // The yardstick runs on `busy` of `all` cores at once.
  CoreMonitor(int busy, int all) : yardstick_(busy, all), detours_(busy) {}

  struct Reading {
    double sgemm_GFLOPs = 0;
    calibrate::DetourProbe::Sample detours;
  };
  Reading read() { return {yardstick_.run_GFLOPs(), detours_.run()}; }
  void add(const Reading& reading);
  const std::vector<double>& sgemm_GFLOPs() const { return sgemm_GFLOPs_; }
  const calibrate::DetourProbe& detours() const { return detours_; }

 private:
  calibrate::SgemmYardstick yardstick_;
  calibrate::DetourProbe detours_;
  std::vector<double> sgemm_GFLOPs_;
};

struct Turns {
  bool complete = true;                  // false when `stop` said so
  std::int64_t runs = 0, set_aside = 0;  // measurements kept, and those made again
};

// Warms all contenders up and then times each once a turn; `cores`, where there are any, is read beside every step.
// Where ranks are processes, rank 0 gets the timelines of all.
Turns run_turns(std::vector<std::unique_ptr<Contender>>& contenders, std::int64_t turns,
                launch::ProcessGroup* processes, CoreMonitor* cores,
                const std::function<void(const std::string& line)>& progress, const std::function<bool()>& stop);

}  // namespace stretto::compare
