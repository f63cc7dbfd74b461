#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// The peers of every communication. Verifier, memory plan, simulator and executors all read them here; only the serial
// oracle computes them independently. `programs` are those of all ranks or of all representatives. In the second case a
// folded rank is found at its representative.

// One process group of a communicator: its members among the programs.
struct CommunicatorInstance {
  std::uint32_t communicator = 0;
  std::int64_t size = 1;               // all members, folded ones included
  std::vector<std::uint32_t> members;  // indices into the programs, ascending
};

// Messages from one program to another on one communicator. The n-th send on a route is matched with the n-th receive.
struct MessageRoute {
  std::uint32_t communicator = 0, from = 0, to = 0;  // indices into the programs
  std::int64_t distance = 1;  // places in the ring of members; distinguishes routes that folding maps onto one pair
  // True when the two programs' own ranks exchange the message. Otherwise the real peer is a folded rank, whose
  // progress says nothing about the representative's.
  bool is_direct = true;
};

struct Partners {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<CommunicatorInstance> instances;
  std::vector<MessageRoute> routes;
  std::vector<std::vector<std::uint32_t>> instance_of;  // [program][communicator]; kNone: not a member
  std::vector<std::vector<std::uint32_t>> route_of;     // [program][OpId]; kNone: no message, or not of this program
};

Partners find_partners(const Schedule& schedule, std::span<const BoundProgram> programs);

}  // namespace stretto
