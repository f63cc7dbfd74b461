#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"

namespace stretto::sim {

enum class NetworkKind : std::uint8_t {
  fluid,    // closed form: a transfer takes edge_bytes / link rate, whatever else is on the fabric
  simgrid,  // flows on a SimGrid platform share the links they meet on (max-min)
};

// Fabric of the simulated cluster; only the simgrid network looks at more than closed form can express.
struct Fabric {
  std::int64_t devices = 1;  // network endpoints are ranks; ranks_per_device of them sit on each device
  double backbone_GBps = 0;  // one link that all traffic crosses; 0 = none (non-blocking switch)
};

struct SimOptions {
  NetworkKind network = NetworkKind::fluid;
  Fabric fabric;
  int max_steps = 8;  // steps simulated before giving up on finding the steady period
  // With a disturbance no two steps are equal: so many are simulated, and the one of the median period is the result.
  // Their rows are all kept meanwhile.
  int disturbed_steps = 41;
  // Solo calls are simulated once and then played (sim/solo_player.hpp), which saves most of the time. Results are the
  // same bytes without.
  bool plays_solo_calls = true;
};

struct SimResult {
  Timeline timeline;  // of the last step simulated, when it repeats the one before; rows of representatives
  // With a disturbance, on the fluid network: all steps of which `timeline` is the one of the median period.
  std::vector<Timeline> disturbed;
  std::vector<BoundProgram> programs;  // of the representative ranks, in the order of their rank numbers
  Picoseconds step = 0;                // steady period
  bool steady = false;                 // two consecutive periods were equal (within 1e-6 relative), or it is a median
  std::int64_t operations = 0;         // operations simulated, all steps and representatives
  double simulate_s = 0;               // wall time
};

// Runs the schedule on the model of a machine. Deterministic: equal inputs give equal results. `programs` are those of
// the representative ranks, as the verifier returns them (VerifiedSchedule): nobody else binds them for a simulation. A
// schedule that deadlocks all the same is an Error(runtime) naming the lanes that wait and what for. simgrid:
// one SimGrid engine exists per process; calls must come from one thread.
SimResult simulate(const Schedule& schedule, std::vector<BoundProgram> programs, const Costs& costs,
                   const SimOptions& options = {});

}  // namespace stretto::sim
