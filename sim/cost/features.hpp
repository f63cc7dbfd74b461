#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/ops/dtype.hpp"
#include "model/schedule/schedule.hpp"
#include "model/schedule/work.hpp"
#include "sim/cost/cost.hpp"

namespace stretto::sim {

// How the time of one kind of work scales on a CPU: a key that names the cost function, and the features in which it is
// linear. Calibration fits the coefficients, prediction multiplies by them; a new operation is one row here.
//
//   gemm        1, mnk, mk, kn, mn          arithmetic, packing of A and of B, update of C (Goto & van de Geijn 2008)
//   attention   bh, bh·s·d, bh·s², bh·s²·d  bh = batch · heads: overhead, reading q k v, softmax, matmuls
//   rope        1, s·d, elements            angles of the positions, turning q and k
//   row-wise    1, rows, elements           norms, cross-entropy
//   streaming   1, n, max(0, n − kPrivateElements), max(0, n − kSharedElements)   a slope for each level of caches
struct WorkCost {
  // Ends in the type that is computed in; before it stands the result's type where that differs and computing is in
  // bf16: "gemm_tn_acc_f32", "gemm_tn_acc_f32_bf16".
  std::string key;
  std::vector<double> features;      // the first is the constant
  DemandClass cls;                   // no default: code that forgets it does not compile
  std::vector<WorkCost> parts = {};  // of a GEMM with an epilogue: the works that run where there are no epilogues
};
constexpr double kPrivateElements = 131072;  // 512 KiB of f32: second-level caches of current CPUs are 0.25 to 2 MiB
constexpr double kSharedElements = 4194304;  // 16 MiB: where a share of the last level ends

// Returns the cost key and features of a compute operation, with the dtypes and access modes of its operands.
WorkCost work_cost(const Schedule& schedule, const Operation& operation);

// Returns the cost of one member's data movement in a collective on a host, per phase. `in_place`: a gather need not
// copy its own shard.
WorkCost movement_cost(const Collective& collective, Dtype dtype, std::int64_t members, bool in_place);

// Returns the cost of the receiver of a message.
WorkCost movement_cost(const PointToPoint& message, Dtype dtype);

// Returns the cost of a movement as a kernel of `blocks` thread blocks on a GPU, one of `kernels` concurrent ones: each
// block moves its share of the bytes, and all share the memory.
WorkCost on_blocks(WorkCost movement, double blocks, double kernels);

// Returns the cost of a collective or message of NCCL between GPUs with one rank each: start, steps of the ring, bytes
// over each of its edges, and bytes of each channel where the number of channels is given.
WorkCost nccl_cost(const Collective& collective, Dtype dtype, std::int64_t members, std::optional<int> channels);
WorkCost nccl_cost(const PointToPoint& message, Dtype dtype, std::optional<int> channels);

// Returns the cost of a message by a copy engine, one of `copies` concurrent ones: the engine's rate, and the memory
// that all share.
WorkCost copy_cost(std::int64_t bytes, double copies);

}  // namespace stretto::sim
