#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/schedule/dtype.hpp"
#include "model/schedule/schedule.hpp"
#include "model/schedule/work.hpp"
#include "sim/cost/cost.hpp"

namespace stretto::sim {

// How the time of one kind of work scales on a CPU: a key that names the cost function, and the quantities it is linear
// in. Calibration fits the coefficients, prediction multiplies by them; adding an operation is one row here.
//
//   gemm        1, mnk, mk, kn, mn          arithmetic, packing of A and of B, update of C (Goto & van de Geijn 2008)
//   attention   bh, bh·s·d, bh·s², bh·s²·d  bh = batch · heads: overhead, reading q k v, softmax, matmuls
//   rope        1, s·d, elements            angles of the positions, turning q and k
//   row-wise    1, rows, elements           norms, cross-entropy
//   streaming   1, n, max(0, n − kPrivateElements), max(0, n − kSharedElements)   a slope for each level of caches
struct WorkCost {
  // With the type that is computed in, and before it that of the result where it is another and computing is in bf16:
  // "gemm_tn_acc_f32", "gemm_tn_acc_f32_bf16".
  std::string key;
  std::vector<double> features;      // first: the constant
  DemandClass cls;                   // no default: who forgets it does not compile
  std::vector<WorkCost> parts = {};  // of a GEMM with an epilogue: what runs in its place where there are no epilogues
};
constexpr double kPrivateElements = 131072;  // 512 KiB of f32: second-level caches of current CPUs are 0.25 to 2 MiB
constexpr double kSharedElements = 4194304;  // 16 MiB: where a share of the last level ends

// The cost key and features of a compute operation, with the dtypes and access modes of its operands.
WorkCost work_cost(const Schedule& schedule, const Operation& operation);

// The same of one member's data movement in a collective on a host, per phase. `in_place`: a gather need not copy its
// own shard.
WorkCost movement_cost(const Collective& collective, Dtype dtype, std::int64_t members, bool in_place);

// The same of the receiver of a message.
WorkCost movement_cost(const PointToPoint& message, Dtype dtype);

// The same movement as a kernel of `blocks` thread blocks on a GPU, one of `kernels` that run there at the same time:
// each block has its share of the bytes to move, and all of them share the memory.
WorkCost on_blocks(WorkCost movement, double blocks, double kernels);

// The same of a collective or message of NCCL between GPUs with one rank each: start, steps of the ring, bytes over
// each of its edges, and the same by channel where their number is given.
WorkCost nccl_cost(const Collective& collective, Dtype dtype, std::int64_t members, std::optional<int> channels);
WorkCost nccl_cost(const PointToPoint& message, Dtype dtype, std::optional<int> channels);

// The same of a message by a copy engine, one of `copies` at the same time: the engine's rate, and the memory that all
// share.
WorkCost copy_cost(std::int64_t bytes, double copies);

}  // namespace stretto::sim
