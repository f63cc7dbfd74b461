#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"

namespace stretto {

// The peers of every communication. Verifier, memory plan, simulator and executors read them here; only the serial
// oracle computes them independently. Programs belong to a folding's representatives, which stand for every rank.

// The process groups of a communicator in which one set of programs meets: the groups of the programs' own ranks, and
// the groups of ranks that they represent. A program is in at most one instance of a communicator.
struct CommunicatorInstance {
  std::uint32_t communicator = 0;
  std::int64_t size = 1;               // all members, folded ones included
  std::vector<std::uint32_t> members;  // indices into the programs, ascending
};

// Messages from one program to another on one communicator. The n-th send on a route is matched with the n-th receive.
struct MessageRoute {
  std::uint32_t communicator = 0, from = 0, to = 0;  // indices into the programs
  std::int64_t distance = 1;  // places in the ring of members; it distinguishes routes that folding maps onto one pair
  // true when the own ranks of the two programs exchange the message. Otherwise the real peer is a folded rank, whose
  // progress says nothing about the representative's.
  bool is_direct = true;
};

// Returns the ranks of `rank`'s process group, in the order of their coordinates; empty when `rank` is not a member.
std::vector<std::int64_t> members_of(const Schedule& schedule, const Communicator& communicator, std::int64_t rank);

// The other end of a message of `rank`, which must be a member, and the number of places that the receiver comes after
// the sender in the ring. `distance` is equal for both ends.
struct Peer {
  std::int64_t rank = 0;
  std::int64_t distance = 0;
};
Peer peer_of(const Schedule& schedule, const PointToPoint& message, std::int64_t rank);

struct Partners {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<CommunicatorInstance> instances;
  std::vector<MessageRoute> routes;
  std::vector<std::vector<std::uint32_t>> instance_of;  // [program][communicator]; kNone: not a member
  std::vector<std::vector<std::uint32_t>> route_of;     // [program][OpId]; kNone: no message, or not in this program
};

// Finds the partners of `programs`, which are the programs of folding.representatives().
Partners find_partners(const Schedule& schedule, std::span<const BoundProgram> programs, const Folding& folding);

}  // namespace stretto
