#pragma once
#include <cstdint>

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
  // Simulates solo calls once and then replays them (sim/call_cache.hpp), which saves most of the time. Results are
  // byte-identical either way.
  bool caches_solo_calls = true;
  // Ends in a step that goes on as the one before did (sim/repeated_step.hpp). Results are the same either way.
  bool knows_repeated_step = true;
  // Ends with the first step that the next one would repeat (sim/recorder.hpp); false simulates max_steps.
  bool stops_when_steady = true;
  // Number of micro-batches of a round, for which SimResult::round is looked for; 0: it is not.
  std::int64_t round_micro_batches = 0;
  std::int64_t round_from = 0;  // micro-batches before this one have rounds of another kind
};

}  // namespace stretto::sim
