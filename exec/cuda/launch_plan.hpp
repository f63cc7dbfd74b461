#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::cuda {

// One step of a schedule as calls to the API of a device: the stream of each operation's launch, and the events that
// are recorded and waited for. Made once, on any machine; the code that runs it makes one call for each action. Each
// lane of a rank has a stream, so that operations of a lane need no events between them.
//
// When all ranks share the device, events synchronise communication too. In a collective every member records its
// arrival, waits for all others, moves its share (local::run_share of this phase), and synchronises once more, so that
// no buffer is reused while another member still reads it. For joined messages arrival is recorded, every receive waits
// for its sender and copies, and every send waits until it has been received. When each rank is a process, a collective
// is one launch and so are joined messages: the ranks synchronise inside the kernels (NCCL).
//
// How many rows experts have may depend on data, and products of experts and exchanges of rows are called with these
// numbers (counts_of()). The stream of the operation that makes the numbers copies them to the host, and the host waits
// for that before it launches the first operation that needs them, as Megatron-LM does (core/transformer/moe/
// token_dispatcher.py). A place on the device has one on the host: its next numbers are made when all who need these
// have run, and so have been launched.
struct LaunchAction {
  enum class Kind : std::uint8_t {
    wait,       // the stream goes on when `event` has happened
    record,     // `event` happens when everything before it on the stream is done
    launch,     // the operation, or phase `phase` of a collective; of messages only receives are launched
    copy,       // the numbers of rows that the operation has made go to the host
    host_wait,  // the host makes the next call when `event` has happened
    begin,      // nothing to do: all waits of the operation on its own rank have been made
    end,        // nothing to do: the operation is complete here
  };
  Kind kind = Kind::launch;
  std::uint32_t stream = 0;
  std::uint32_t event = 0;       // for wait, record and host_wait
  bool of_step_before = false;   // for wait: the previous step's event; before the first step it counts as happened
  std::uint32_t rank = 0;        // index into the programs
  std::uint32_t op = 0;          // operation that it belongs to, as an index into BoundProgram::ops
  std::uint8_t phase = 0;        // for launch
  std::uint32_t rendezvous = 0;  // for a launch of communication on a shared device: index of the participants
  // for a launch of messages without rendezvous: this many operations, from `op` on in its lane
  std::uint32_t joined = 1;
};

struct LaunchPlan {
  std::uint32_t streams = 0;  // rank · lanes + lane
  std::uint32_t events = 0;
  // The calls in order: an event that is waited for has been recorded by an earlier action, unless of_step_before.
  std::vector<LaunchAction> actions;
  // The participants of each rendezvous. Collective: all members, in the order of the group. Message: the sender.
  struct Participant {
    std::uint32_t rank = 0, op = 0;
  };
  std::vector<std::vector<Participant>> rendezvous;

  // Returns whether the host waits for numbers of rows, so that no graph can hold the step.
  bool waits_on_host() const;
};

// Returns which operand of a work has the numbers of rows without which the host cannot launch it; nothing for other
// works.
std::optional<std::size_t> counts_of(const Work& work);
// Returns the operand that such numbers of rows are written to; nothing for works that do not make them.
std::optional<std::size_t> made_counts_of(const Work& work);

// Returns the plan of all ranks, which share a device; none is folded in `step`. Calls follow the host issue order of
// every rank as far as their waits allow. The schedule must have been verified.
//
// Start → start edges become "after everything before it on its stream", the latest moment before a kernel's start that
// an event can mark.
LaunchPlan plan_launches(const Schedule& schedule, const BoundStep& step);
// Returns the plan of one rank on its own device: no rendezvous, calls in host issue order.
LaunchPlan plan_launches_of_rank(const Schedule& schedule, const BoundProgram& program);

}  // namespace stretto::cuda
