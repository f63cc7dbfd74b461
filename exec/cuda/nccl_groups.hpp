#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "model/verify/verify.hpp"

namespace stretto::cuda {

// Which of NCCL's communicators a rank's communication is on. NCCL runs what is on one communicator one after the
// other, in the order of the calls and whatever streams they are on (its documentation of ncclGroupStart;
// ncclLaunchPrepare; github.com/NVIDIA/nccl/issues/574), so what the schedule may run at the same time must not share
// one:
//
//   collectives  one for each communicator of the schedule, whose collectives are on one lane
//   messages     of a communicator, one for each colour of a sender, and two ranks that send to each other differ in
//                colour: a rank's receives never queue behind its sends, as with Megatron-LM's groups of even and odd
//                stages. Two colours; three in a ring of an odd number.
//   joined       messages that are issued in groups are all on one, because only a group on one communicator is one
//                kernel, whose messages do not wait for each other
struct NcclGroup {
  std::uint32_t communicator = 0;  // of the schedule; of joined messages the first that they have
  enum class Kind : std::uint8_t { collectives, messages, joined };
  Kind kind = Kind::collectives;
  std::uint8_t colour = 0;  // of the sender
  auto operator<=>(const NcclGroup&) const = default;
};

// What a rank is a member of, without groups of one. From the schedule alone: nothing is bound.
std::set<NcclGroup> nccl_groups_of(const Schedule& schedule, std::int64_t rank);

// Ranks that a rank's messages on a group go to and come from.
struct NcclPeers {
  std::set<std::int64_t> to, from;
};
std::map<NcclGroup, NcclPeers> nccl_peers_of(const Schedule& schedule, std::int64_t rank);

// CTAs of each communicator that has none of its own (max_ctas), on a device of `sms`. Kernels of several communicators
// run at the same time and wait for ranks on which others may have started first. They end as long as all find room on
// the device, so those share what is left of one half of it; the other half is for compute. NCCL rounds those of
// messages up to a power of two.
int ctas_of_others(const Schedule& schedule, const std::set<NcclGroup>& groups, int sms);
// Those of a group, given that number.
int ctas_of(const Schedule& schedule, const NcclGroup& group, int of_others);

struct NcclGroups {
  std::set<NcclGroup> all;       // of two members and more: what this rank is a member of, used by it or not
  std::vector<NcclGroup> of_op;  // [op] of the program; of computation meaningless, of groups of one not in `all`
};

// The same on every member of a group.
NcclGroups find_nccl_groups(const Schedule& schedule, const BoundProgram& program);

// Throws Error(runtime) when joined messages from the rank to another are sent in another order than they are received
// in: on one communicator the n-th send meets the n-th receive.
void require_one_order(const VerifiedSchedule& verified, const BoundProgram& program);

// The operations of a joined group, in the order in which they are called: messages between the same two ranks must be
// called in the same order on both, which program order alone does not give.
std::vector<std::uint32_t> call_order(const Schedule& schedule, const BoundProgram& program,
                                      std::vector<std::uint32_t> joined);

}  // namespace stretto::cuda
