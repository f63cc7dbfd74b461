#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/host/memory.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::serial {

// The oracle: runs all ranks of a schedule on one thread, in a seeded random order among those that its lanes, edges
// and rendezvous allow, over poisoned buffers. It knows nothing of the verifier and shares no code with it. A schedule
// whose result depends on the seed is wrong; a correct one gives equal bits for every seed.
//
// Every operation has a start and a finish, and others may start and finish in between. The time of its effect is
// random too: at the start, or at the finish with its outputs poisoned meanwhile. So a reader that does not wait for a
// writer meets old bytes, new bytes or poison, and a writer that does not wait for a reader destroys the data that is
// read.
class SerialExecutor {
 public:
  // Keeps a reference to `schedule`. The plan gives the layout; storages that the plan lets share bytes do share them.
  SerialExecutor(const Schedule& schedule, const MemoryPlan& plan);

  host::RankMemory& memory(std::int64_t rank) { return *ranks_[static_cast<std::size_t>(rank)].memory; }
  std::int64_t ranks() const { return static_cast<std::int64_t>(ranks_.size()); }

  // Calls `observer` after every computation of every rank, before another operation changes memory: for tests that
  // compare operands.
  using Observer = std::function<void(const BoundProgram&, const BoundOp&, std::span<const host::Operand>)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  // Runs `steps` steps; lanes may go on into the next step as soon as their waits allow. Throws Error(runtime) when
  // nothing can start or finish although the steps are not done (deadlock).
  void run(int steps, std::uint64_t seed);

 private:
  enum class When : std::uint8_t { at_start, at_finish };
  // A message with at least one end started. The n-th send is received by the n-th receive.
  struct MessageKey {
    std::uint32_t communicator = 0;
    std::int64_t from = 0, to = 0;
    std::uint64_t number = 0;
    auto operator<=>(const MessageKey&) const = default;
  };
  struct Message {
    std::optional<host::Operand> in, out;  // buffers of the ends that have started
    bool delivered = false;
    int finished_ends = 0;
  };
  struct LaneState {
    std::uint64_t started = 0, finished = 0;  // operations, over all steps
    When when = When::at_start;
    std::deque<MessageKey> messages;  // messages of the operations between finished and started
    bool running() const { return started > finished; }
  };
  struct RankState {
    BoundProgram program;
    std::unique_ptr<host::RankMemory> memory;
    host::BoundOperands operands;
    std::vector<LaneState> lanes;
    // [communicator] finished collectives
    std::vector<std::uint64_t> collectives;
    std::map<std::tuple<std::uint32_t, std::int64_t, bool>, std::uint64_t> messages;  // (communicator, peer, is_send)
  };
  struct Head {
    RankState* rank;
    LaneId lane;
  };

  const BoundOp& op_at(const RankState& rank, LaneId lane, std::uint64_t number) const;
  const BoundOp& head_op(const RankState& rank, LaneId lane) const;
  std::uint64_t group_size(const RankState& rank, LaneId lane) const;  // operations that start together with the head
  bool waits_are_met(const RankState& rank, std::uint64_t step, const BoundOp& op) const;
  bool can_start(const RankState& rank, LaneId lane, int steps) const;
  bool can_finish(const RankState& rank, LaneId lane) const;
  void start(RankState& rank, LaneId lane, std::uint64_t coin);
  void finish(RankState& rank, LaneId lane);
  std::vector<Head> present(const RankState& rank, LaneId lane) const;
  void apply_collective(const std::vector<Head>& members);
  void deliver(Message& message);
  void start_message(RankState& rank, const BoundOp& op, std::uint64_t coin);
  void poison_outputs(RankState& rank, const BoundOp& op);
  void compute(RankState& rank, const BoundOp& op);

  const Schedule& schedule_;
  mutable std::vector<RankState> ranks_;
  std::map<MessageKey, Message> messages_;
  Observer observer_;
};

}  // namespace stretto::serial
