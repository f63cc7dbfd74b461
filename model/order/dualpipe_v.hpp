#pragma once
#include <vector>

#include "model/order/pipeline_order.hpp"

namespace stretto {

// DualPipeV: DeepSeek-V3's DualPipe (arXiv 2412.19437, 3.2.1) cut in half ("DualPipe could be better without the Dual",
// Sea AI Lab 2025), which needs no second copy of the parameters. Two chunks a stage, a and b, lie in a V. In its
// steady state F and B of different chunks alternate, F a, B b, F b, B a, each B followed by its W: in each pair one
// chunk computes while the other communicates.
//
// With P stages, m micro-batches, and r = 0 for the stage that has the ends of the V, in this order and number:
//   2(P − r − 1)      F a
//   r + 1             F a, F b
//   P − r − 1         B b, the oldest W, F b
//   m − 2P + r + 1    F a, B b and its W, F b, B a and its W
//   P − r − 1         B b and its W, F b, B a and its W
//   r + 1             B b, B a; the first r + 1 of these each with its W, the W of the others wait
//   P − r − 1         the oldest W, B a
//   r + 1             the oldest W
//
// Needs m ≥ 2P. Bubble, for a chunk's F, B and W with W ≤ F ≤ B: (P − 1)(F + B − W) + max(0, (P − 1)(B − F) − F). The
// published (P − 1)(F&B + B − 3W), in which B includes its W, holds for pairs that begin together; here the second of a
// pair begins when it can. At most 2P + 1 micro-batches, each with a chunk's activations, are between F and W.
std::vector<std::vector<PipelineItem>> dualpipe_v_items(const PipelineShape& shape);  // [stage]

}  // namespace stretto
