#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/fabric.hpp"

namespace stretto::sim {

enum class NetworkKind : std::uint8_t {
  fluid,    // closed form: a transfer takes edge_bytes / link rate; concurrent transfers do not slow each other
  simgrid,  // flows of a SimGrid platform share their common links (max-min)
};

struct SimOptions {
  NetworkKind network = NetworkKind::fluid;
  Fabric fabric;
  int max_steps = 8;  // maximum number of simulated steps in search of the steady period
  // With a disturbance no two steps are equal: this many are simulated, and the one of the median period is the result.
  // The rows of all of them are kept in memory.
  int disturbed_steps = 41;
  // Simulates solo calls once and then replays them (sim/solo_player.hpp), which saves most of the time. Results are
  // byte-identical either way.
  bool plays_solo_calls = true;
  // Ends with the first step that the next one would repeat (sim/recorder.hpp); false simulates max_steps.
  bool stops_when_steady = true;
};

// A step and its timeline. The step is the simulated one, in which stragglers have classes of their own.
struct SimResult : BoundStep {
  Timeline timeline;  // the last simulated step; rows of representatives only
  // With a disturbance, on the fluid network: all steps; `timeline` is the one of the median period.
  std::vector<Timeline> disturbed;
  Picoseconds step = 0;         // steady period
  bool steady = false;          // the next step would repeat the last (within 1e-6 relative), or the result is a median
  std::int64_t operations = 0;  // simulated operations of all steps and representatives
  double simulate_s = 0;        // wall time of the simulation
};

// Simulates the schedule on the model of a machine. Deterministic: equal inputs give equal results. `step` is the
// schedule's, as the verifier returns it (VerifiedSchedule): no other code binds one for a simulation. Ranks with costs
// of their own (Costs::of_rank) are simulated separately, with as few of their peers as do not behave like all others.
// If the schedule deadlocks nevertheless, throws Error(runtime) naming the waiting lanes and what they wait for.
// simgrid: there is one SimGrid engine in a process, so call it from one thread only.
SimResult simulate(const Schedule& schedule, BoundStep step, const Costs& costs, const SimOptions& options = {});

}  // namespace stretto::sim
