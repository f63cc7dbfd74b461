#pragma once
#include <string>
#include <vector>

#include "model/lower/blocks.hpp"
#include "model/lower/pipeline_order.hpp"

namespace stretto {

// Sends and receives between model chunks: one block each, called with chunk, micro-batch, slot and buffer.
struct MessageBlocks {
  BlockId send_forward = 0, recv_forward = 0, send_backward = 0, recv_backward = 0;
};
struct PipelineBlocks {
  std::vector<MessageBlocks> ways;  // of all chunks; where pieces lie in a V, of the first and of the second
  const MessageBlocks& of_chunk(std::int64_t chunk) const { return ways[ways.size() == 1 ? 0 : std::size_t(chunk)]; }
  // With BlockShape::scatters_messages: what the tensor-parallel ranks received becomes whole, before its first use.
  BlockId gather_forward = 0, gather_backward = 0;
  bool is_batched = false;
  bool overlap = false;
};
// Adds lanes, communicators and blocks. Batched messages share one lane ("pp"); others have one for each direction and
// side, so that a posted receive holds nothing up. Forward and backward messages are on communicators of their own:
// with two stages the next and the previous are the same rank. In a V so are those of the second chunk, which go the
// other way.
PipelineBlocks add_pipeline_blocks(Schedule& schedule, const ModelBlocks& blocks, const BlockShape& shape,
                                   bool is_batched, bool overlap);

// The sequence that blocks stand in, and messages that block.
constexpr std::uint8_t kSequence = 1;

// Writes the forward and backward passes of one stage into its program, whose first call is in kSequence.
//
// Messages of an item stand in sequence, side by side: they wait for the compute before them, and the compute after
// them for all of them. With overlap they are free (derive_waits), and a unit waits for the message that it needs.
void append_pipeline(const Schedule& schedule, const ModelBlocks& blocks, const PipelineBlocks& messages,
                     const BlockShape& shape, std::int64_t stage, const PipelineOrder& order, std::vector<Call>& calls);

}  // namespace stretto
