#pragma once
#include <cstdint>
#include <vector>

#include "model/layout.hpp"

namespace stretto {

// The pipeline schedule of one stage as a table, before it becomes operations: whole chunks forward or backward, and
// messages to and from its neighbours. Rewrites of the pipeline's order belong here.

struct PipelineShape {
  std::int64_t stages = 1;
  std::int64_t chunks = 1;  // chunks of a stage (virtual pipeline stages)
  std::int64_t micro_batches = 1;
  std::int64_t group = 1;  // consecutive micro-batches of one chunk, with several chunks
  // Messages are concurrent with compute: a receive is posted one compute item ahead of its use, and only its user
  // waits for it. Without overlap messages are issued together after the compute item, and the next item waits for all
  // of them.
  bool overlap = false;
  bool overlap_warmup_flush = false;  // while only one direction is active: two items ahead
  std::int64_t deferred = 0;          // micro-batches whose W of the last model chunk comes at the very end
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  // Forward and backward passes of different micro-batches come in pairs, which run concurrently: one more forward pass
  // precedes the first backward pass (Megatron-LM, core/pipeline_parallel/combined_1f1b.py). Not with one chunk on
  // several stages.
  bool pairs_passes = false;
  StageMap map() const { return {stages, chunks, lies_in_v(schedule)}; }
};

enum class UnitKind : std::uint8_t { forward, backward, weights };

// One micro-batch of one chunk of a stage, with its buffers: F, B, or W, the weight gradients that B left out.
struct PipelineUnit {
  UnitKind kind = UnitKind::forward;
  std::int64_t chunk = 0, micro_batch = 0;
  std::int64_t slot = 0;  // slot of the activations; equal in F, B and W
  // forward: output buffer, or the next chunk's slot where the chunk turns; backward: gradient buffer
  std::int64_t buffer = 0;
};

struct PipelineMessage {
  // forward: the unit that made or needs the activations; backward: the unit that made or needs the gradients
  PipelineUnit unit;
  bool is_send = false;  // the unit has made the message; otherwise the unit needs it
};

struct PipelineItem {
  bool is_compute = false;
  PipelineUnit unit;                      // the compute unit of an item
  std::vector<PipelineMessage> messages;  // the messages of an item without a unit; never both empty
  bool begins_pair = false;               // the next compute unit runs concurrently with this one
};

struct PipelineOrder {
  std::vector<PipelineItem> items;
  // [chunk] of this stage: the slots that its micro-batches take, in ascending order. A slot belongs to one micro-batch
  // of one chunk at a time. Chunks of an interleaved pipeline take their slots from one pool, which is as large as the
  // number of live (chunk, micro-batch) pairs; the chunk with the head has slots of its own. When W is separate from B
  // each chunk has its own slots, 0 … n − 1, and takes them in turn. It has one slot more than live micro-batches, so
  // that the slot before a micro-batch's slot belonged to the previous micro-batch and stays unused until this one's W:
  // a gradient that B makes for W lies there (BlockWriter::kept_gradient).
  std::vector<std::vector<std::int64_t>> slots;
  std::int64_t output_buffers = 1, gradient_buffers = 1;
};

// Returns the order of each stage, by PipelineShape::schedule:
//
// 1F1B (Narayanan et al., PipeDream, SOSP 2019; Megatron-LM's forward_backward_pipelining_without_interleaving) with
// one chunk, interleaved 1F1B (Narayanan et al., arXiv 2104.04473; …_with_interleaving) with several. A single stage
// runs forward and backward of one micro-batch after the other. Bubble of the compute, with F and B of a whole stage:
// (stages − 1)(F + B) / chunks. Several chunks need: stages ≥ 2, stages ≤ group ≤ micro_batches, micro_batches mod
// group 0 or ≥ stages.
//
// ZB-H1, ZB-V, DualPipeV: see zero_bubble.hpp and dualpipe_v.hpp. They need two stages, and one chunk or two.
std::vector<PipelineOrder> pipeline_orders(const PipelineShape& shape);

}  // namespace stretto
