#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "sim/network/network.hpp"

namespace stretto::sim {

// The active collectives: members arrive, move their bytes in phases, and complete together. This part knows which
// members have arrived at each, and how far the bytes are. docs/simulation.md states the semantics.
//
// Lanes enter by arrive(). They leave by an event: their stage is then `completing`, and their `finish` is scheduled.
// In between a lane may be `working` on its device; movement_ended() reports the end of that work.
class Collectives {
 public:
  Collectives(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, NetworkModel& network);

  // Returns the number of transfers; the network sees them numbered from 0.
  std::uint32_t transfers() const { return static_cast<std::uint32_t>(gatherings_.size()); }

  // The lane is ready for its collective. Throws Error(runtime) when another member has arrived with another operation.
  void arrive(std::uint32_t lane, Picoseconds ready);
  // The lane's share of the movement, or of one phase of it, has ended on its device.
  void movement_ended(std::uint32_t lane, Picoseconds now);
  void transfer_done(std::uint32_t transfer, Picoseconds now);

  // Returns the names of the members that an arrived lane waits for.
  std::string describe_missing(std::uint32_t lane) const;

 private:
  // The members of a communicator on one lane, and their current collective.
  struct Gathering {
    std::uint32_t group = 0;
    std::vector<std::uint32_t> lanes;      // lanes of the simulated members
    const CollectiveCost* cost = nullptr;  // cost of the current collective
    std::uint32_t present = 0;             // members that have arrived, or have finished the current phase of movement
    std::uint32_t first = kNone;           // the lane that arrived first: all members must bring one operation
    int phases_left = 0;
    Picoseconds latest = 0;           // time at which the last present member arrived, or finished
    bool slept = false;               // some member arrived before the last
    bool moved = false;               // all phases of movement are over
    std::optional<Picoseconds> wire;  // time at which the transfer is complete, if known
  };

  Gathering& of(std::uint32_t lane) { return gatherings_[index_of(lane)]; }
  std::uint32_t index_of(std::uint32_t lane) const {
    return index_[lane * communicators_ + lanes_[lane].current().communicator];
  }
  void require_same_operation(const Gathering& gathering, std::uint32_t lane) const;
  void start_transfer(Gathering& gathering);
  void start_phase(Gathering& gathering);
  void try_complete(Gathering& gathering);

  const SimInputs& inputs_;
  Lanes& lanes_;
  Devices& devices_;
  EventHeap& events_;
  NetworkModel& network_;
  std::size_t communicators_;
  std::vector<Gathering> gatherings_;
  std::vector<std::uint32_t> index_;   // [lane · communicators + communicator] → gatherings_
  std::vector<Picoseconds> there_at_;  // [lane]: time at which it arrived, or finished the last phase
};

}  // namespace stretto::sim
