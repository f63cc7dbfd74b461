#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/host/memory.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::serial {

// The oracle: runs all ranks of a schedule on one thread, in a seeded random order among those that its lanes, edges
// and rendezvous allow, over poisoned buffers. It knows nothing of the verifier and shares no code with it. A schedule
// whose result depends on the seed is wrong; one that is correct gives the same bits for every seed.
//
// Every operation has a start and a finish, and others may start and finish in between. Where its effect falls is
// random too: at the start, or at the finish with its outputs poisoned meanwhile. So a reader that does not wait for a
// writer meets old bytes, new bytes or poison, and a writer that does not wait for a reader spoils what is read.
class SerialExecutor {
 public:
  // Keeps a reference to `schedule`. The plan gives the layout; storages that it lets share bytes do share them.
  SerialExecutor(const Schedule& schedule, const MemoryPlan& plan);

  host::RankMemory& memory(std::int64_t rank) { return *ranks_[static_cast<std::size_t>(rank)].memory; }
  std::int64_t ranks() const { return static_cast<std::int64_t>(ranks_.size()); }

  // Runs `steps` steps; lanes may run on into the next step as soon as their waits allow. Throws Error(runtime) when
  // nothing can start or finish although the steps are not done (deadlock).
  void run(int steps, std::uint64_t seed);

 private:
  enum class When : std::uint8_t { at_start, at_finish };
  struct LaneState {
    std::uint64_t started = 0, finished = 0;  // operations, over all steps
    bool running = false;
    When when = When::at_start;
  };
  struct RankState {
    BoundProgram program;
    std::unique_ptr<host::RankMemory> memory;
    host::BoundOperands operands;
    std::vector<LaneState> lanes;
  };
  struct Head {
    RankState* rank;
    LaneId lane;
  };

  const BoundOp& head_op(const RankState& rank, LaneId lane) const;
  bool can_start(const RankState& rank, LaneId lane, int steps) const;
  bool can_finish(const RankState& rank, LaneId lane) const;
  void start(RankState& rank, LaneId lane, bool late);
  void finish(RankState& rank, LaneId lane);
  std::vector<Head> peers(const RankState& rank, LaneId lane) const;
  void apply_collective(const std::vector<Head>& members);
  void poison_outputs(RankState& rank, LaneId lane);

  const Schedule& schedule_;
  mutable std::vector<RankState> ranks_;
};

}  // namespace stretto::serial
