#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// Who communicates with whom. Verifier, memory plan, simulator and executors all take it from here; only the serial
// oracle works it out by itself. The programs are those of all ranks, or of representatives: then a rank that is folded
// away is found at its representative.

// One instance of a communicator, as far as it has members among the programs.
struct CommunicatorInstance {
  std::uint32_t communicator = 0;
  std::int64_t size = 1;               // all members, those that are folded away included
  std::vector<std::uint32_t> members;  // indices into the programs, ascending
};

// From one program to another on one communicator: the n-th send on a route meets the n-th receive.
struct MessageRoute {
  std::uint32_t communicator = 0, from = 0, to = 0;  // indices into the programs
  std::int64_t distance = 1;  // places in the ring of the communicator's members; tells apart what is folded together
  // The ranks of the two programs meet each other. Otherwise each meets a rank that the other program stands for: what
  // that one has done says nothing about the program's own rank.
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
