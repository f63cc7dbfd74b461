#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/chrome_json.hpp"
#include "trace/trace.hpp"

namespace stretto::trace {

// Makes sections of the events that report/trace.hpp writes: a process for each section and rank, "measured plain, 2
// ranks, rank 1"; a thread for each lane; operations with the arguments `op` and `work`.
class OwnTrace {
 public:
  // Takes an event that belongs to such a trace; returns false for others.
  bool add(const ChromeEvent& event, TraceClock& clock);
  bool empty() const { return operations_.empty(); }
  // Returns the sections. `file` is for messages; the search for sections is charged to the budget.
  std::vector<Section> take(const std::string& file, Budget& budget);

 private:
  struct Process {
    std::string title;
    std::map<std::string, std::string> lanes;  // [tid]
    std::optional<Picoseconds> step_begin;
  };
  void add_operation(const ChromeEvent& event, TraceClock& clock);

  std::map<std::string, Process> processes_;  // [pid]
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> name_of_, stream_of_, message_of_;
  std::vector<std::pair<std::string, std::string>> places_;  // [stream]: pid and tid
  std::vector<Kernel> operations_;
  std::vector<Message> messages_;  // one for each communicator
};

}  // namespace stretto::trace
