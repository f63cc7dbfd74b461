#pragma once
#include <cstdint>
#include <map>

#include "base/timeline.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::sweep {

// The cost of one layer follows from tensor, context and expert parallelism, micro-batch size, recomputation and the
// overlap of its own communication, but not from the number of stages, chunks, layers and micro-batches. All points
// that have equal layers are a family. Its costs are those of a small pipeline of at most two stages, three layers
// each, which is built and simulated once; closed forms (sweep/bounds.hpp) make bounds of any pipeline of them.

// Times of one micro-batch on the busiest compute lane of a rank. All are lower bounds: the least of several
// micro-batches.
struct LayerTimes {
  Picoseconds forward = 0, backward = 0;  // computation alone; recomputation belongs to the backward pass
  Picoseconds wgrad = 0;                  // the part of `backward` that is weight gradients
  // From the beginning of the layer's first operation to the end of its last, and to the beginning of the next layer's
  // first: the computation and what it waits for. `forward` and `backward` where layers do not run one after the other.
  Picoseconds forward_span = 0, backward_span = 0;
  Picoseconds forward_in_row = 0, backward_in_row = 0;
};

struct TimeFamily {
  std::map<LayerSpec, LayerTimes> layers;
  Picoseconds embedding_forward = 0, embedding_backward = 0;
  Picoseconds head = 0;  // both passes
};

// Bytes of a rank are `constant` + Σ over the stage's layers of `state` + Σ over layers and micro-batches that the
// stage holds at once of `activations`.
struct StageBytes {
  double constant = 0;  // embedding or head, and what comes and goes while a layer runs
  std::map<LayerSpec, double> state, activations;
};
struct MemoryFamily {
  StageBytes first, last;     // of the stage with the embedding and of the one with the head; one stage: `last` is both
  std::int64_t reserved = 0;  // of a device, outside its ranks' memory and NCCL's buffers
};

// Returns whether the closed forms know the scenario on the platform: published GPUs with a rank each, one kind of
// context parallelism in all layers.
bool has_family(const Scenario& scenario, const sim::Platform& platform);

// Returns the micro-batches of the small pipeline whose memory is planned: the scenario's where these are few.
std::int64_t micro_batches_of_memory(const Scenario& scenario);

// Build and simulate the small pipelines. The scenario must have a family. Throw Error(input) as build_schedule() and
// cost_schedule() do.
TimeFamily time_family(const Scenario& scenario, const sim::Platform& platform);
MemoryFamily memory_family(const Scenario& scenario, const sim::Platform& platform);

}  // namespace stretto::sweep
