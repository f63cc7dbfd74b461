#pragma once
#include <cstdint>
#include <string>

#include "sim/call_cache.hpp"
#include "sim/collectives.hpp"
#include "sim/device.hpp"
#include "sim/event_heap.hpp"
#include "sim/exchanges.hpp"
#include "sim/inputs.hpp"
#include "sim/lanes.hpp"
#include "sim/network/network.hpp"
#include "sim/options.hpp"
#include "sim/recorder.hpp"
#include "sim/repeated_step.hpp"

namespace stretto::sim {

// The discrete-event loop of the simulator. It takes each lane from operation to operation: waits, start, end, timeline
// row. Every piece of state belongs to one component:
//
//   EventHeap     the next event of every lane
//   Lanes         program counters, and which lanes wait for which
//   Devices       cores, and the interference of concurrent work
//   Collectives   members that have arrived, and movement in phases
//   Exchanges     sends and receives
//   CallCache    recordings of solo calls
//   StepRecorder  rows, ends of steps, the steady period
//   RepeatedStep  whether a step goes on as the one before did
//
// A component never calls the core or a component further down in this list. It changes the stage of a lane and
// schedules the lane's next event; the core passes the event to the component that has the lane. docs/simulation.md
// states the semantics. Memory besides the rows is O(ranks · lanes). Not thread-safe.
class Core : public TimedCore {
 public:
  // `inputs` and `network` are borrowed and must outlive the core. The core reads the switches of its components from
  // the options.
  Core(const SimInputs& inputs, NetworkModel& network, int max_steps, const SimOptions& options);

  // Simulates until the period is steady or max_steps are done. Throws Error(runtime) on a deadlock.
  void run();

  StepRecorder& recorder() { return recorder_; }
  // number of finished operations; those of all whole steps, where the last one goes on as the one before did
  std::int64_t operations() const {
    return repeats_ ? recorder_.steps() * lanes_.per_step() + repeated_step_.operations_ahead()
                    : lanes_.finished() + played_;
  }

  Picoseconds next_event() const override { return events_.next_time(); }
  void advance(Picoseconds until) override;
  bool finished() const override { return finished_; }
  void transfer_done(std::uint32_t transfer, Picoseconds now) override;

 private:
  void resolve_waits(std::uint32_t lane);
  void begin_operation(std::uint32_t lane, Picoseconds ready);
  void communicate(std::uint32_t lane, Picoseconds start);
  void set_started(std::uint32_t lane, std::uint32_t operations, Picoseconds time);
  void wake(std::uint32_t on, EdgeKind kind, Picoseconds time);
  void start_granted();

  void on_request(std::uint32_t lane, Picoseconds now);
  void on_finish(std::uint32_t lane, Picoseconds now);
  void end_working(std::uint32_t lane, Picoseconds now);
  void end_operation(std::uint32_t lane, Picoseconds now);
  void end_playing(std::uint32_t lane, Picoseconds now);
  const TimelineRow& last_of(const SoloRun& run, std::uint32_t lane, std::uint32_t count) const;
  void pass(const SoloRun& run, std::uint32_t lane, std::uint32_t count);
  void go_back(std::uint32_t rank);
  bool leave(std::uint32_t lane, std::uint32_t operations, Picoseconds end);
  void go_on(std::uint32_t lane, Picoseconds now);
  void write_rows(std::uint32_t lane, Picoseconds end);
  std::string deadlock_message() const;

  const SimInputs& inputs_;
  NetworkModel& network_;
  int max_steps_;
  EventHeap events_;
  Lanes lanes_;
  Devices devices_;
  Collectives collectives_;
  Exchanges exchanges_;
  CallCache call_cache_;
  StepRecorder recorder_;
  RepeatedStep repeated_step_;
  Picoseconds now_ = 0;      // time of the event that is handled
  Picoseconds latest_ = 0;   // time of the latest event
  std::int64_t played_ = 0;  // finished operations of solo calls that were still being replayed at the end
  bool finished_ = false;
  bool repeats_ = false;
};

}  // namespace stretto::sim
