#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "model/verify/verify.hpp"

namespace stretto::cuda {

// The NCCL communicator of each of a rank's communications. NCCL runs the operations of one communicator one after the
// other, in the order of the calls and whatever streams they are on (its documentation of ncclGroupStart;
// ncclLaunchPrepare; github.com/NVIDIA/nccl/issues/574), so operations that the schedule may run concurrently must not
// share one:
//
//   collectives  one for each communicator of the schedule, whose collectives are on one lane
//   messages     of a communicator, one for each colour of a sender; two ranks that send to each other differ in
//   colour,
//                so a rank's receives never wait in the queue for its sends, as with Megatron-LM's groups of even and
//                odd stages. Two colours; three in a ring of an odd number.
//   joined       messages that are issued in groups are all on one, because only a group on one communicator is one
//                kernel, whose messages do not wait for each other
struct NcclGroup {
  std::uint32_t communicator = 0;  // communicator of the schedule; for joined messages the first that they have
  enum class Kind : std::uint8_t { collectives, messages, joined };
  Kind kind = Kind::collectives;
  std::uint8_t colour = 0;  // colour of the sender
  auto operator<=>(const NcclGroup&) const = default;
};

// Returns the groups that have a rank as a member, without groups of one. It reads only the schedule: nothing is bound.
std::set<NcclGroup> nccl_groups_of(const Schedule& schedule, std::int64_t rank);

// The ranks to which a rank's messages on a group go, and from which they come.
struct NcclPeers {
  std::set<std::int64_t> to, from;
};
std::map<NcclGroup, NcclPeers> nccl_peers_of(const Schedule& schedule, std::int64_t rank);

// Returns the CTAs of each communicator that has no number of its own (max_ctas), on a device of `sms` SMs. Kernels of
// several communicators are concurrent and wait for ranks on which other ones may have started first. They all end as
// long as all fit on the device, so they share the remainder of one half of it; the other half is for compute. NCCL
// rounds the CTAs of messages up to a power of two.
int ctas_of_others(const Schedule& schedule, const std::set<NcclGroup>& groups, int sms);
// Returns the CTAs of a group, given that number.
int ctas_of(const Schedule& schedule, const NcclGroup& group, int of_others);

struct NcclGroups {
  std::set<NcclGroup> all;       // groups of two members and more that this rank belongs to, used or not
  std::vector<NcclGroup> of_op;  // [op] of the program; meaningless for computation; groups of one are not in `all`
};

// Finds the groups of a rank's program; the result is equal on every member of a group.
NcclGroups find_nccl_groups(const Schedule& schedule, const BoundProgram& program);

// Throws Error(runtime) when joined messages from the rank to another are sent in another order than they are received:
// on one communicator the n-th send meets the n-th receive.
void require_one_order(const VerifiedSchedule& verified, const BoundProgram& program);

// Returns the operations of a joined group in the order of their calls: messages between two ranks must be called in
// one order on both, which program order alone does not guarantee.
std::vector<std::uint32_t> call_order(const Schedule& schedule, const BoundProgram& program,
                                      std::vector<std::uint32_t> joined);

}  // namespace stretto::cuda
