#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/partners.hpp"
#include "model/schedule/violation.hpp"

namespace stretto {

// Matches the bound operations of all programs: the members of each collective, the two ends of each message. Verifier,
// memory plan and launch plans read it.

// A collective kernel spins until its peers are resident. Two kernels issued in opposite order on two GPUs deadlock
// only where one keeps the other from becoming resident. A kernel takes one CTA per channel and a CTA takes at most one
// SM, so kernels with this many channels in sum always fit together: every data-centre GPU has more than twice as many
// SMs, and compute kernels release their SMs in the end.
constexpr int kResidentChannels = 32;

// One process group of a communicator, and the collectives that its members issue.
struct CollectiveGroup {
  std::uint32_t communicator = 0;
  std::vector<std::uint32_t> members;                // indices into the programs, ascending
  std::vector<std::vector<std::uint32_t>> sequence;  // [member] → indices into BoundProgram::ops, in host issue order
};

// All messages from one rank to another on one communicator. sends[n] is matched with receives[n].
struct MessagePair {
  std::uint32_t communicator = 0;
  std::uint32_t from = 0, to = 0;              // indices into the programs
  std::vector<std::uint32_t> sends, receives;  // indices into BoundProgram::ops of `from` and `to`, in host issue order
};

// Position of an operation in its group's sequence, or among the messages of its pair. Operations at equal positions
// rendezvous.
struct RendezvousSlot {
  enum class Kind : std::uint8_t { none, collective, send, receive };
  Kind kind = Kind::none;
  std::uint32_t group = 0;  // index into groups or pairs
  std::uint32_t index = 0;
};

// All collective sequences and messages of a step, matched once.
struct IssueOrder {
  Partners partners;
  std::vector<CollectiveGroup> groups;             // one for each of partners.instances
  std::vector<MessagePair> pairs;                  // one for each of partners.routes
  std::vector<std::vector<RendezvousSlot>> slots;  // [program][op]
};

// Throws Error(input) when an operation uses a communicator without its rank as a member.
IssueOrder find_issue_order(const Schedule& schedule, std::span<const BoundProgram> programs, const Folding& folding);

// Returns order_mismatch violations, at most `limit`. Three rules:
//  1. all members of a group issue equal sequences of (operation, coordinates, kind, elements);
//  2. two groups on different lanes that share two or more members are issued in one relative order by all of them.
//     Waived when an engine is not `sm`, or when both hold at most kResidentChannels CTAs together;
//  3. every send has a receive of equal size.
std::vector<Violation> check_issue_order(const Schedule& schedule, std::span<const BoundProgram> programs,
                                         const IssueOrder& issued, std::size_t limit);

}  // namespace stretto
