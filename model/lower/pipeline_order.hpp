#pragma once
#include <cstdint>
#include <vector>

#include "model/layout.hpp"

namespace stretto {

// The pipeline schedule of one stage as a table, before it becomes operations: whole chunks forward or backward, and
// messages to and from its neighbours. Rewrites of the pipeline's order belong here.

struct PipelineShape {
  std::int64_t stages = 1;
  std::int64_t chunks = 1;  // of a stage (virtual pipeline stages)
  std::int64_t micro_batches = 1;
  std::int64_t group = 1;  // micro-batches of one chunk in a row, with several chunks
  // Messages run beside compute: a receive is posted one compute item ahead of its use, and only its user waits for it.
  // Otherwise they are issued together after the compute item, and the next waits for all of them.
  bool overlap = false;
  bool overlap_warmup_flush = false;  // while only one direction is under way, two items ahead
  std::int64_t deferred = 0;          // micro-batches whose W, of the last piece of the model, come at the very end
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  StageMap map() const { return {stages, chunks, lies_in_v(schedule)}; }
};

enum class UnitKind : std::uint8_t { forward, backward, weights };

// One micro-batch of one chunk of a stage, and which buffers it uses: F, B, or W, the weight gradients that B left out.
struct PipelineUnit {
  UnitKind kind = UnitKind::forward;
  std::int64_t chunk = 0, micro_batch = 0;
  std::int64_t slot = 0;    // of the activations; the same in F, B and W
  std::int64_t buffer = 0;  // forward: of outputs, or where the chunk turns the next one's slot; backward: of gradients
};

struct PipelineMessage {
  PipelineUnit unit;     // forward: the activations it has made or needs; backward: the gradients
  bool is_send = false;  // of what the unit has made; otherwise of what it needs
};

struct PipelineItem {
  bool is_compute = false;
  PipelineUnit unit;                      // of compute
  std::vector<PipelineMessage> messages;  // otherwise; empty never
};

struct PipelineOrder {
  std::vector<PipelineItem> items;
  // [chunk] of this stage: the slots that its micro-batches take, in ascending order. A slot is of one micro-batch of
  // one chunk at a time. Chunks of an interleaved pipeline take theirs from the same slots, of which the stage has as
  // many as it has micro-batches of chunks alive at once; but the chunk with the head has slots of its own. With W
  // apart from B each chunk has its own, 0 … n − 1, and takes them in turn. It has one more than it has micro-batches
  // alive, so that the slot before a micro-batch's was of the micro-batch before and, until this one's W, has no other:
  // a gradient that B makes for W lies there (BlockWriter::kept_gradient).
  std::vector<std::vector<std::int64_t>> slots;
  std::int64_t output_buffers = 1, gradient_buffers = 1;
};

// The order of each stage, by PipelineShape::schedule:
//
// 1F1B (Narayanan et al., PipeDream, SOSP 2019; Megatron-LM's forward_backward_pipelining_without_interleaving) with
// one chunk, interleaved 1F1B (Narayanan et al., arXiv 2104.04473; …_with_interleaving) with several. One stage:
// forward and backward of one micro-batch after the other. Bubble of the compute, F and B of a whole stage: (stages −
// 1)(F + B) / chunks. Needs, with several chunks: stages ≥ 2, stages ≤ group ≤ micro_batches, micro_batches mod group 0
// or ≥ stages.
//
// ZB-H1, ZB-V, DualPipeV: see zero_bubble.hpp and dualpipe_v.hpp. They need two stages, and one chunk or two.
std::vector<PipelineOrder> pipeline_orders(const PipelineShape& shape);

}  // namespace stretto
