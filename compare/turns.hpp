#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/probes/probes.hpp"
#include "compare/contender.hpp"

namespace stretto::compare {

// How the host's cores are while steps are measured on them.
class Cores {
 public:
  // The yardstick runs on `busy` of `all` cores at once.
  Cores(int busy, int all) : yardstick_(busy, all), detours_(busy) {}

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
                launch::ProcessGroup* processes, Cores* cores,
                const std::function<void(const std::string& line)>& progress, const std::function<bool()>& stop);

}  // namespace stretto::compare
