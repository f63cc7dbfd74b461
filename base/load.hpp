#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace stretto {

// Counts what others ran on this process' cores over a period. A value type.
struct Load {
  double cores = 0;                     // that this process may use; 0: the system does not say, and nothing is known
  double others_cores = 0;              // of these, used by other programs; a mean over time, as the next
  double stolen_cores = 0;              // and given by a hypervisor to other machines
  double average = 0;                   // the system's load average of the last minute: all programs, this one too
  std::vector<std::string> names = {};  // of the programs that used most, at most three, the first used most

  // Returns the time that others took for every 100 ms that `threads` threads computed, were all of them always ready
  // to run: what others used beyond the cores that these threads leave free.
  double taken_pct(double threads) const;
};

// Measures the load in turns, from /proc (proc(5)): the time that processors worked, by processor in ticks of 10 ms,
// less the time of this process. Only processors count that this process may use. Not thread-safe.
class LoadMeter {
 public:
  LoadMeter();
  // For tests: `folder` has the files of /proc, and `own_s` returns the seconds that this process has computed.
  LoadMeter(std::string folder, std::vector<int> processors, std::function<double()> own_s, double tick_s);

  void begin_turn();
  void end_turn();
  // Returns the load of the turns so far: of each number the median turn's, as measured times are medians too. Without
  // a turn that was long enough for the ticks, or without /proc, nothing is known.
  Load load() const;

 private:
  struct Reading {
    double used_s = 0, stolen_s = 0, idle_s = 0, own_s = 0;
    int processors = 0;
  };
  struct Program {
    std::string name;
    double used_s = 0;
  };
  Reading read() const;
  std::map<std::int64_t, Program> programs() const;  // [process]

  std::string folder_;
  std::vector<int> processors_;
  std::function<double()> own_s_;
  double tick_s_;
  Reading begin_;
  std::map<std::int64_t, Program> programs_;  // as the turn began
  std::vector<double> others_cores_, stolen_cores_;
  double seconds_ = 0;                    // of all turns
  std::map<std::string, double> used_s_;  // [name], over all turns
};

}  // namespace stretto
