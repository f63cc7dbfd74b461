#pragma once
#include <vector>

#include "model/order/pipeline_order.hpp"

namespace stretto {

// Zero-bubble schedules: B makes the gradients of inputs, which the previous stage waits for, and W those of weights,
// which no stage waits for, so that W fills time that would be a bubble.
//
//   ZB-H1 (Qi et al., arXiv 2401.10241): 1F1B with W separate from B.
//   ZB-V (arXiv 2401.10241, and 2405.15362, whose building block is the pattern here): two chunks a stage, in a V.
//
// Both are made by one rule. Units are one tick long. The pattern is F and B of every chunk, repeated every 2 · chunks
// ticks. In it the way down the stages takes one tick a stage and the way up 2 · chunks − 1, so that no two units of a
// stage have one tick. Every stage computes the units of its pattern in order. A unit begins as soon as its inputs
// exist; an F also needs that fewer micro-batches than there are model chunks are between F and W. When the next unit
// cannot start yet, the oldest W does; when there is no W and the chunks lie in a V, the next F of the first chunk.
//
// F, B and W of a chunk, m micro-batches, m ≥ P stages:
//   ZB-H1  bubble (P − 1) · max(F, B, F + B − W); the paper's (P − 1)(F + B − W) when W ≤ min(F, B)
//   ZB-V   bubble (P − 1) · F when F = B = W: the time that the last stage waits for its first input. No stage waits
//          after its first F when m ≥ 2P − 1, so there would be no bubble if the optimizer did not wait for the norm of
//          all gradients.
// Micro-batches between F and W: P in ZB-H1, each with a stage's activations; 2P in ZB-V, each with a chunk's
// activations. An input that arrives early takes a slot at once: in ZB-V one more on each stage but the last.
std::vector<std::vector<PipelineItem>> zero_bubble_items(const PipelineShape& shape);  // [stage]

}  // namespace stretto
