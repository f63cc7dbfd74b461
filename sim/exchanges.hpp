#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "sim/network/network.hpp"

namespace stretto::sim {

// The active sends and receives: two ends are posted, bytes cross the link while the receiver moves them, and a group
// of joined operations completes together. This part knows the queue of every link and the posted ends of each lane.
// docs/simulation.md states the semantics.
//
// Lanes enter by post(). They leave by an event: their stage is then `completing`, and their `finish` is scheduled. In
// between a lane may be `working` on its device; movement_ended() reports the end of that work.
class Exchanges {
 public:
  // `first_transfer` is the number of the first transfer that the network sees.
  Exchanges(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, NetworkModel& network,
            std::uint32_t first_transfer);

  // Posts the ends of the lane's current group. Returns the receivers of the messages that thereby have both ends; the
  // caller has each served, after it has woken the lanes that waited for the start of the group.
  std::vector<std::uint32_t> post(std::uint32_t lane, Picoseconds ready);
  // The lane begins its next receive that can be moved, if it is not moving one. Receives of a group are in order.
  void serve(std::uint32_t lane);
  // The lane has moved a message on its device.
  void movement_ended(std::uint32_t lane, Picoseconds now);
  void transfer_done(std::uint32_t transfer, Picoseconds now);

  // Valid after joined messages are complete: the time at which the ends of message `i` met, and the time at which it
  // would have been complete alone.
  Picoseconds met(std::uint32_t lane, std::uint32_t i) const { return exchanges_[lane].met[i]; }
  Picoseconds done_alone(std::uint32_t lane, std::uint32_t i) const { return exchanges_[lane].done[i]; }

 private:
  // A lane's state in its current joined messages.
  struct Exchange {
    std::uint32_t served = 0;             // messages of the group before this one need no service any more
    std::uint32_t open = 0;               // unfinished messages
    Picoseconds latest = 0;               // time at which the last of them ended, or this rank was woken for it
    Picoseconds wire = 0;                 // time at which the last transfer was complete
    std::vector<std::uint32_t> messages;  // [operation of the group] → messages_; kNone: finished
    std::vector<Picoseconds> met;         // [operation of the group]: time at which both ends were posted
    std::vector<Picoseconds> done;        // [operation of the group]: time at which it would have ended alone
  };
  // A message with at least one end posted.
  struct OpenMessage {
    std::uint32_t link = 0;
    std::array<std::uint32_t, 2> lane = {kNone, kNone};  // lanes of sender and receiver
    std::array<Picoseconds, 2> ready{};
    const CollectiveCost* cost = nullptr;  // the receiver's cost
    Picoseconds met = 0;
    Picoseconds served = 0;  // time at which the receiver began it
    std::optional<Picoseconds> wire, moved;
    bool is_posted() const { return lane[0] != kNone && lane[1] != kNone; }
  };
  // The messages of one link, in order, that lack an end.
  struct LinkQueue {
    std::deque<std::uint32_t> messages;     // → messages_
    std::array<std::uint64_t, 2> posted{};  // number of ends of sender and receiver
    std::uint64_t complete = 0;             // messages with both ends
  };

  std::uint32_t post_end(std::uint32_t link, bool is_receiver, std::uint32_t lane, Picoseconds ready);
  void begin_transfer(std::uint32_t message);
  void try_complete(std::uint32_t message);
  void end_message(std::uint32_t message, bool is_receiver);

  const SimInputs& inputs_;
  Lanes& lanes_;
  Devices& devices_;
  EventHeap& events_;
  NetworkModel& network_;
  std::uint32_t first_transfer_;
  std::vector<Exchange> exchanges_;  // [lane]
  std::vector<LinkQueue> links_;
  std::vector<OpenMessage> messages_;
  std::vector<std::uint32_t> free_messages_;
};

}  // namespace stretto::sim
