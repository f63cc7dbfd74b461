#pragma once
#include <cstdint>
#include <optional>

#include "base/timeline.hpp"
#include "sim/event_heap.hpp"

namespace stretto::sim {

// The interface of the engine core that a network drives. Times never go back.
class TimedCore {
 public:
  virtual ~TimedCore() = default;
  virtual Picoseconds next_event() const = 0;   // kNever when there is none
  virtual void advance(Picoseconds until) = 0;  // handles all events at or before `until`
  virtual bool finished() const = 0;            // nothing more needs to be simulated
  virtual void transfer_done(std::uint32_t transfer, Picoseconds now) = 0;
};

// Carries transfers, and owns the passing of time. Used by one thread.
class NetworkModel {
 public:
  virtual ~NetworkModel() = default;

  // Every edge of the ring of `group` carries `edge_bytes` > 0 from `begin` on, which is not in the past, at no more
  // than `most_bytes_per_s` (0: the links' rate). `group` is an index into the groups that the network was built with,
  // followed by the links of messages. Returns the time at which the last edge will be done, if that is certain now;
  // otherwise core.transfer_done(transfer, …) is called at that time. `transfer` is the caller's name for the transfer,
  // and may be reused after that.
  virtual std::optional<Picoseconds> start(std::uint32_t transfer, std::uint32_t group, std::int64_t edge_bytes,
                                           double most_bytes_per_s, Picoseconds begin) = 0;

  // Returns whether start() always knows when the last edge will be done, whatever else is active.
  virtual bool is_closed_form() const { return false; }

  // Lets time pass until the core is finished or neither core nor network has anything left to do.
  virtual void run(TimedCore& core) = 0;
};

}  // namespace stretto::sim
