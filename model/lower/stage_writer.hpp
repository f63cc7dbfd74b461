#pragma once
#include <string>
#include <vector>

#include "model/lower/blocks.hpp"
#include "model/order/pipeline_order.hpp"

namespace stretto {

// Sends and receives between model chunks: one block each, called with chunk, micro-batch, slot and buffer.
struct MessageBlocks {
  BlockId send_forward = 0, recv_forward = 0, send_backward = 0, recv_backward = 0;
};
struct PipelineBlocks {
  // one for all chunks; where chunks lie in a V, one for the first and one for the second
  std::vector<MessageBlocks> ways;
  const MessageBlocks& of_chunk(std::int64_t chunk) const { return ways[ways.size() == 1 ? 0 : std::size_t(chunk)]; }
  // With BlockShape::scatters_messages: gathers the parts that the tensor-parallel ranks received, before their first
  // use.
  BlockId gather_forward = 0, gather_backward = 0;
  bool is_batched = false;
  bool overlap = false;
};
// Adds lanes, communicators and blocks. Batched messages share one lane ("pp"); others have one for each direction and
// side, so that a posted receive holds nothing up. Forward and backward messages have communicators of their own: with
// two stages the next and the previous stage are one rank. In a V the messages of the second chunk, which go the other
// way, also have their own.
PipelineBlocks add_pipeline_blocks(Schedule& schedule, const ModelBlocks& blocks, const BlockShape& shape,
                                   bool is_batched, bool overlap);

// The sequence of blocks and of messages that block.
constexpr std::uint8_t kSequence = 1;

// Writes the forward and backward passes of one stage into its program, whose first call is in kSequence.
//
// Messages of an item stand in the sequence as concurrent calls: they wait for the preceding compute, and the next
// compute waits for all of them. With overlap they are free (derive_waits), and a unit waits only for the message that
// it needs.
void append_pipeline(const Schedule& schedule, const ModelBlocks& blocks, const PipelineBlocks& messages,
                     const BlockShape& shape, std::int64_t stage, const PipelineOrder& order, std::vector<Call>& calls);

}  // namespace stretto
