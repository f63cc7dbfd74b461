#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/load.hpp"
#include "base/timeline.hpp"
#include "calibrate/probes/probes.hpp"
#include "compare/grid.hpp"
#include "exec/ready_step.hpp"
#include "report/comparison.hpp"

namespace stretto::compare {

// One schedule at one number of ranks, ready to run, with its measurements.
struct Contender : exec::ReadyStep {
  using ReadyStep::ReadyStep;
  std::string mode;
  std::vector<std::string> equal_modes;  // other modes with the same schedule
  std::vector<Timeline> measured;        // one timeline for each turn
  double loss = kUnknown;                // after the warm-up, which has the same number of steps for all contenders
};
// Returns the steady period of a measured step.
double step_ms(const Timeline& timeline);

// Returns one contender for each distinct schedule of the grid's modes at grid.ranks[at], and as the last one a second
// copy of the first (A/A). Takes the schedules out of the grid. Throws Error(input) where one is not correct.
std::vector<std::unique_ptr<Contender>> contenders_of(Grid& grid, std::size_t at, const exec::Machine& machine,
                                                      const exec::TokenSource& tokens);

// Reads the state of the host's cores between measured steps: their speed, and the time that other processes take.
class CoreMonitor {
 public:
  // The yardstick runs on `busy` of `all` cores concurrently.
  CoreMonitor(int busy, int all) : yardstick_(busy, all), detours_(busy) {}

  struct Reading {
    double sgemm_GFLOPs = 0;
    calibrate::DetourProbe::Sample detours;
  };
  Reading read() { return {yardstick_.run_GFLOPs(), detours_.run()}; }
  void begin_turn() {
    detours_of_turns_.emplace_back();
    load_.begin_turn();
  }
  void end_turn() { load_.end_turn(); }
  void add(const Reading& reading);  // of the turn that has begun last
  const std::vector<double>& sgemm_GFLOPs() const { return sgemm_GFLOPs_; }
  sim::Disturbance disturbance() const { return calibrate::disturbance_of(detours_of_turns_); }
  Load load() const { return load_.load(); }

 private:
  calibrate::SgemmYardstick yardstick_;
  calibrate::DetourProbe detours_;
  std::vector<double> sgemm_GFLOPs_;
  std::vector<calibrate::DetourProbe::Sample> detours_of_turns_;
  LoadMeter load_;
};

// Counts of run_turns().
struct Turns {
  bool complete = true;                  // false after `stop`
  std::int64_t runs = 0, set_aside = 0;  // kept measurements, and repeated measurements
};

// Warms up all contenders, then measures each of them once in every turn. `cores`, if not null, is read after every
// step. When ranks are processes all of them call this, and rank 0 gets the timelines of all. `stop` is asked before
// every turn. Throws what a step throws.
Turns run_turns(std::vector<std::unique_ptr<Contender>>& contenders, std::int64_t turns,
                launch::ProcessGroup* processes, CoreMonitor* cores,
                const std::function<void(const std::string& line)>& progress, const std::function<bool()>& stop);

}  // namespace stretto::compare
