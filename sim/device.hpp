#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "sim/cost/cost.hpp"
#include "sim/event_heap.hpp"

namespace stretto::sim {

// A lane's current activity on its device: a compute operation, or one phase of a collective's data movement.
struct Activity {
  Picoseconds ready = 0;      // may start from then on
  Picoseconds start = 0;      // has its cores, and woke up if it had to queue for them
  Picoseconds end = 0;        // as known now; a change of neighbours moves it
  Picoseconds remaining = 0;  // work left at `updated`, in time it would take alone
  Picoseconds updated = 0;
  int cores = 0;
  DemandClass cls = DemandClass::memory;
  const KernelInterference* interference = nullptr;  // a communication kernel, which runs beside what has cores
  double stretch = 1;                                // time it takes over what it would alone, now
  bool asks = false;                                 // for cores to hold, with nothing to run
  bool on_held = false;                              // runs on cores that the lane holds already
};

// The devices of the simulated ranks: cores handed out by priority, first come, first served within one, and the
// interference of what runs together. A lane is known by its number (rank · lanes + lane); it has one activity at a
// time, and may besides hold cores for a communication that waits on them.
class Devices {
 public:
  // `device_of[lane]` are numbers from 0; `most_cores[lane]` is the most that the lane ever holds; what waits for cores
  // is granted them by `priority[lane]`, the lowest first.
  Devices(const Costs& costs, std::vector<std::uint32_t> device_of, const std::vector<int>& most_cores,
          std::vector<int> priority, EventHeap& events);

  Activity& activity(std::uint32_t lane) { return activities_[lane]; }
  const Activity& activity(std::uint32_t lane) const { return activities_[lane]; }

  // Sets the lane's next activity going: on cores that the lane holds, where it does, for which `cores` is 0. When
  // nothing else on the device can delay or slow it, its end is scheduled at once and true is returned:
  // activity(lane).start is final. Otherwise a request is scheduled for `ready`. With `interference`, which must live
  // as long, it queues for nothing; `cores` is 0.
  bool launch(std::uint32_t lane, Picoseconds ready, Picoseconds duration, int cores, DemandClass cls,
              const KernelInterference* interference = nullptr) {
    const bool holds = held_[lane] > 0;
    if ((cores > 0 || holds) && costs_.disturbance.share > 0) duration += lost(lane, ready, duration);
    Activity& activity = activities_[lane];
    activity.ready = activity.start = ready;
    activity.remaining = duration;
    activity.cores = cores;
    activity.cls = cls;
    activity.interference = interference;
    activity.on_held = holds && devices_[device_of_[lane]].couples;
    if (activity.on_held) {
      events_.schedule(lane, ready, EventKind::start);
      return false;
    }
    if (!is_counted(lane)) {
      activity.end = ready + duration;
      events_.schedule(lane, activity.end, EventKind::finish);
      return true;
    }
    ++devices_[device_of_[lane]].busy;
    events_.schedule(lane, ready, EventKind::request);
    return false;
  }

  // Has the lane hold cores until release_held(). True when it does at once; otherwise a request is scheduled for
  // `ready`, and activity(lane).start says when it holds them once the lane is in granted().
  bool hold(std::uint32_t lane, Picoseconds ready, int cores) {
    Activity& activity = activities_[lane];
    activity.ready = activity.start = ready;
    activity.cores = cores;
    if (!contended_[lane]) {
      held_[lane] = cores;
      return true;
    }
    activity.asks = true;
    ++devices_[device_of_[lane]].busy;
    events_.schedule(lane, ready, EventKind::request);
    return false;
  }
  void release_held(std::uint32_t lane, Picoseconds now);

  std::uint32_t count() const { return static_cast<std::uint32_t>(devices_.size()); }
  std::uint32_t device_of(std::uint32_t lane) const { return device_of_[lane]; }
  // Whether other work on the lane's device, once there is some, may delay or slow that of the lane.
  bool is_contended(std::uint32_t lane) const { return contended_[lane] != 0; }
  // No lane of a contended device has an activity that asks, or will ask, for cores.
  bool is_idle(std::uint32_t device) const { return devices_[device].busy == 0; }

  // Event handlers; `now` is the event's time. Lanes that get their cores are appended to granted().
  void on_request(std::uint32_t lane, Picoseconds now);
  void on_start(std::uint32_t lane, Picoseconds now);
  void on_finish(std::uint32_t lane, Picoseconds now) {
    if (activities_[lane].on_held) leave(devices_[device_of_[lane]], lane, now);
    if (!is_counted(lane)) return;
    --devices_[device_of_[lane]].busy;
    release(lane, now);
  }

  // Lanes whose activity.start has just become final; the caller clears it.
  std::vector<std::uint32_t>& granted() { return granted_; }

 private:
  struct DeviceState {
    bool queues = false;   // its lanes together can ask for more cores than there are
    bool couples = false;  // what runs on it can slow something else on it
    int free_cores = 0;
    std::uint32_t busy = 0;              // activities from launch to end, where contended
    std::deque<std::uint32_t> waiting;   // by priority, then as they came
    std::vector<std::uint32_t> running;  // only kept when `couples`
    std::array<int, kDemandClasses> count{};
    std::array<double, kDemandClasses> stretch{1, 1, 1, 1};  // [class]: time factor of compute that runs
    int kernels = 0;                                         // communication kernels that run
  };

  // Its activity asks for cores, or runs beside what does, on a device where that matters.
  bool is_counted(std::uint32_t lane) const {
    return (activities_[lane].cores > 0 || activities_[lane].interference != nullptr) && contended_[lane];
  }

  Picoseconds lost(std::uint32_t lane, Picoseconds ready, Picoseconds duration);
  void grant(DeviceState& device, std::uint32_t lane, Picoseconds now);
  void leave(DeviceState& device, std::uint32_t lane, Picoseconds now);
  void release(std::uint32_t lane, Picoseconds now);
  void serve(DeviceState& device, Picoseconds now);
  void rearm(DeviceState& device, Picoseconds now);
  double stretch_of(const DeviceState& device, const Activity& activity) const;

  const Costs& costs_;
  EventHeap& events_;
  std::vector<std::uint32_t> device_of_;
  std::vector<int> priority_;            // [lane]
  std::vector<int> held_;                // [lane]
  std::vector<std::uint8_t> contended_;  // [lane]: its device queues or couples
  std::vector<DeviceState> devices_;
  std::vector<Activity> activities_;
  std::vector<std::uint32_t> granted_;
  struct Disturbed {
    std::uint64_t drawn = 0;  // random numbers
    double slept = 0;         // time that others had, and nothing was taken for yet
  };
  std::vector<Disturbed> disturbed_;  // [lane]
};

}  // namespace stretto::sim
