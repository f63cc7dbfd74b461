#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/linear_fit.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "calibrate/probes/step_run.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

class Notebook;

// The probes of a GPU: the host's with other sizes, and those below.

// share of the device's memory: the rest belongs to the context and the libraries
constexpr double kUsableMemory = 0.9;
// Returns the GPU that ranks of this machine share. Throws Error(runtime) as make_cuda_executor() does.
exec::Executor::Device gpu_of(const Machine& machine);

// A linear layer: its forward GEMM, data gradient and weight gradient.
struct GemmShape {
  std::int64_t tokens, outputs, inputs;
};
struct AttentionShape {
  std::int64_t batch, heads, kv_heads, seq, head_dim;
};
struct PreciseStep {
  StepShape shape;
  const char* precision;  // a precision of [training]
  double dropout = 0;
  bool has_epilogues = false;  // with all epilogues that GEMMs can have
  AttentionBackend attention = AttentionBackend::fused;
  bool sums_gelu = false;     // with epilogues: gelu_bias_gradient_fusion too, which leaves no epilogue with GELU alone
  MixtureShape mixture = {};  // with experts, where it has some
};

struct GpuSizes {
  std::vector<PreciseStep> steps;
  std::vector<GemmShape> gemms;  // bf16; the first is the yardstick
  std::vector<AttentionShape> attentions;
  std::vector<std::int64_t> streamed;  // elements of fills, copies, casts and reductions
  // Communication kernels: members of a group, elements of the whole buffer, thread blocks.
  std::vector<std::int64_t> members, elements;
  std::vector<int> ctas;
  ClassOperations classes;          // operations that are concurrent with them
  std::int64_t slice_elements = 0;  // bf16 elements that each member of a pair gathers meanwhile
  double window_us = 0;             // least time in which both sides of a pair run
  int repeats = 0;
};
// Returns sizes for GPUs of the H100's class: GPT-2 from 124M to 1.5B and Llama's style to hidden 8192, in some four
// minutes.
GpuSizes gpu_sizes();

// Measures every operation of a model's training step. A step that does not fit in `memory_bytes` is left out, and a
// line in `notes` says so.
std::vector<Sample> probe_model(const Machine& machine, const PreciseStep& step, int repeats, std::int64_t memory_bytes,
                                std::vector<std::string>& notes);
std::string describe(const PreciseStep& step);  // names everything that distinguishes a step

// Measures kernels one after the other on one stream, each on the same memory: GEMMs and attention of shapes that the
// models above do not have, and operations that only ranks that share a model run (statistics of the vocabulary, biases
// separate from their GEMM, copies, sums of parts, counts and rows of experts). bf16 with f32 gradients. Kernels that
// do not fit are left out, and noted. `notebook` keeps them in lists of some dozens; `progress` is called before each
// list.
std::vector<Sample> probe_kernels(const Machine& machine, const GpuSizes& sizes, std::int64_t memory_bytes,
                                  const std::function<void(const std::string&)>& progress, Notebook& notebook,
                                  std::vector<std::string>& notes);

// Measures communication kernels with each number of thread blocks on links that are not paced: the cost of moving the
// bytes. `wake_us` is the cost of an event, for which members wait after every phase.
std::vector<Sample> probe_moves(const Machine& machine, const GpuSizes& sizes, double wake_us);

// Measures messages by copy engines, as many at once as there are ranks in a ring: the cost of a copy.
std::vector<Sample> probe_copies(const Machine& machine, const GpuSizes& sizes);

// Measures collectives and messages by NCCL between `ranks` GPUs, a process each, in groups of every size that divides
// them and with each number of channels, including NCCL's own choice. Every process calls this; the result of rank 0
// counts.
std::vector<Sample> probe_nccl(const Machine& machine, const GpuSizes& sizes, std::int64_t ranks);

// Ranks that send to each other while one of them computes: two ranks by kernels with each number of thread blocks
// (curves over the blocks of both), rings of ranks by copy engines (curves over concurrent copies). `alone_us` [class]
// is the time of the compute alone (probe_classes).
struct TransferCurves {
  std::array<sim::Curve, sim::kDemandClasses> beside_moving, beside_waiting, moving_beside, beside_copying,
      copying_beside;
};
TransferCurves without_transfers(const std::string& reason);  // zeros, marked as assumed
// Points of the curves that `notebook` has are not measured again.
TransferCurves probe_transfers(const Machine& machine, const GpuSizes& sizes,
                               const std::array<double, sim::kDemandClasses>& alone_us, Notebook& notebook);

}  // namespace stretto::calibrate
