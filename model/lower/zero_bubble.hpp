#pragma once
#include <vector>

#include "model/lower/pipeline_order.hpp"

namespace stretto {

// Zero-bubble schedules: B makes the gradients of inputs, which the stage before waits for, and W those of weights,
// which nobody waits for, so that W fills what would be a bubble.
//
//   ZB-H1 (Qi et al., arXiv 2401.10241): 1F1B with W apart.
//   ZB-V (arXiv 2401.10241, and 2405.15362, whose building block is the pattern here): two chunks a stage, in a V.
//
// Both are made by one rule. Units are one tick long. The pattern is F and B of every chunk, repeated every 2 · chunks
// ticks, in which the way down the stages takes a tick a stage and the way up 2 · chunks − 1: then no two units of a
// stage are ever at the same tick. Every stage computes the units of its pattern in order, each as soon as what it
// needs is there and, if it is an F, fewer micro-batches than there are pieces of the model are between their F and
// their W. When the next one cannot start yet, the oldest W does; when there is none and the pieces lie in a V, the
// next F of the first chunk.
//
// F, B and W of a chunk, m micro-batches, m ≥ P stages:
//   ZB-H1  bubble (P − 1) · max(F, B, F + B − W); the paper's (P − 1)(F + B − W) when W ≤ min(F, B)
//   ZB-V   bubble (P − 1) · F when F = B = W: what the last stage waits for its first input. No stage waits after its
//          first F when m ≥ 2P − 1, so nothing would be left if the optimizer did not wait for the norm of all
//          gradients.
// Micro-batches between F and W: P, each of a stage's activations, in ZB-H1; 2P, each of a chunk's, in ZB-V. What
// arrives early takes a slot at once: in ZB-V one more on each stage but the last.
std::vector<std::vector<PipelineItem>> zero_bubble_items(const PipelineShape& shape);  // [stage]

}  // namespace stretto
