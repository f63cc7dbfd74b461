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
  Picoseconds ready = 0;      // earliest start
  Picoseconds start = 0;      // it has its cores, and has woken up if it had to queue for them
  Picoseconds end = 0;        // end as known now; a change of neighbours moves it
  Picoseconds remaining = 0;  // work left at `updated`, as time alone on the device
  Picoseconds updated = 0;
  int cores = 0;
  DemandClass cls = DemandClass::memory;
  // set for a communication kernel, which is concurrent with activities on cores
  const KernelInterference* interference = nullptr;
  double stretch = 1;    // current time / time alone
  bool asks = false;     // it asks for cores to hold, with nothing to run
  bool on_held = false;  // it runs on cores that the lane already holds
};

// The devices of the simulated ranks: cores are granted by priority, first come, first served within one priority;
// concurrent activities interfere. A lane is known by its number (rank · lanes + lane); it has one activity at a time,
// and may also hold cores for a communication that waits on them.
class Devices {
 public:
  // `device_of[lane]` are numbers from 0; `most_cores[lane]` is the most that the lane ever holds; lanes that wait for
  // cores get them by `priority[lane]`, the lowest first.
  Devices(const Costs& costs, std::vector<std::uint32_t> device_of, const std::vector<int>& most_cores,
          std::vector<int> priority, EventHeap& events);

  Activity& activity(std::uint32_t lane) { return activities_[lane]; }
  const Activity& activity(std::uint32_t lane) const { return activities_[lane]; }

  // Starts the lane's next activity: on cores that the lane holds, in which case `cores` is 0. When no other activity
  // on the device can delay or slow it, schedules its end at once and returns true: activity(lane).start is final.
  // Otherwise a request is scheduled for `ready`. With `interference`, which must outlive the activity, it does not
  // queue; `cores` is 0.
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

  // Makes the lane hold cores until release_held(). Returns true when it does at once; otherwise a request is scheduled
  // for `ready`, and activity(lane).start is the time from which it holds them, once the lane is in granted().
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
  // Returns whether other activities on the lane's device may, when they exist, delay or slow the lane's activity.
  bool is_contended(std::uint32_t lane) const { return contended_[lane] != 0; }
  // Returns whether no lane of a contended device has an activity that asks, or will ask, for cores.
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

  // Returns the lanes whose activity.start has just become final; the caller clears the list.
  std::vector<std::uint32_t>& granted() { return granted_; }

 private:
  struct DeviceState {
    bool queues = false;   // its lanes together can ask for more cores than there are
    bool couples = false;  // a running activity can slow another one
    int free_cores = 0;
    std::uint32_t busy = 0;              // activities from launch to end, on a contended device
    std::deque<std::uint32_t> waiting;   // sorted by priority, then by arrival
    std::vector<std::uint32_t> running;  // only kept when `couples`
    std::array<int, kDemandClasses> count{};
    std::array<double, kDemandClasses> stretch{1, 1, 1, 1};  // [class]: time factor of running compute
    int kernels = 0;                                         // running communication kernels
  };

  // Returns whether the lane's activity asks for cores, or is concurrent with one that does, on a device where that
  // matters.
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
    std::uint64_t drawn = 0;  // number of random numbers drawn
    double slept = 0;         // time that others had while the lane slept and that has not been deducted yet
  };
  std::vector<Disturbed> disturbed_;  // [lane]
};

}  // namespace stretto::sim
