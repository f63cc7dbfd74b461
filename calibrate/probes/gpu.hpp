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

// What a GPU is measured with. Probes of a GPU are the host's, of other sizes, and those below.

constexpr double kUsableMemory = 0.9;  // of the device: the rest is the context's and the libraries'
// The GPU that ranks of this machine share. Throws Error(runtime) as make_cuda_executor() does.
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
  const char* precision;  // as [training] has it
  double dropout = 0;
  bool has_epilogues = false;  // all that GEMMs can have
  AttentionBackend attention = AttentionBackend::fused;
  bool sums_gelu = false;  // with epilogues: gelu_bias_gradient_fusion too, which leaves none that is GELU's alone
};

struct GpuSizes {
  std::vector<PreciseStep> steps;
  std::vector<GemmShape> gemms;  // bf16; the first is the yardstick
  std::vector<AttentionShape> attentions;
  std::vector<std::int64_t> streamed;  // elements that are filled, copied, cast and reduced
  // Of communication kernels: members of a group, elements of the whole buffer, thread blocks.
  std::vector<std::int64_t> members, elements;
  std::vector<int> ctas;
  ClassOperations classes;          // what runs beside them
  std::int64_t slice_elements = 0;  // bf16, that each member of a pair gathers meanwhile
  double window_us = 0;             // least time that both sides of a pair are to run
  int repeats = 0;
};
// For GPUs of the H100's class: GPT-2 from 124M to 1.5B and Llama's style to hidden 8192, in some four minutes.
GpuSizes gpu_sizes();

// Every operation of the training step of a model. One that does not fit in `memory_bytes` is left out, and a line in
// `notes` says so.
std::vector<Sample> probe_model(const Machine& machine, const PreciseStep& step, int repeats, std::int64_t memory_bytes,
                                std::vector<std::string>& notes);
std::string describe(const PreciseStep& step);  // all that tells it from others

// Kernels one after the other on one stream, each on the same memory: GEMMs and attention of shapes that the models
// above do not have, and what only ranks that share a model run (statistics of the vocabulary, biases apart from their
// GEMM, copies, sums of parts). bf16 with f32 gradients. What does not fit is left out, and said.
// `notebook` keeps some dozens of them at a time; `progress` is called before each such list.
std::vector<Sample> probe_kernels(const Machine& machine, const GpuSizes& sizes, std::int64_t memory_bytes,
                                  const std::function<void(const std::string&)>& progress, Notebook& notebook,
                                  std::vector<std::string>& notes);

// Communication kernels of each number of thread blocks on links that are not paced: what moving the bytes costs.
// `wake_us`: of an event, which members wait for behind every phase.
std::vector<Sample> probe_moves(const Machine& machine, const GpuSizes& sizes, double wake_us);

// Messages by copy engines, as many at once as there are ranks in a ring: what a copy costs.
std::vector<Sample> probe_copies(const Machine& machine, const GpuSizes& sizes);

// Collectives and messages by NCCL between `ranks` GPUs, a process each, in groups of every size that divides them and
// with each number of channels, NCCL's own choice among them. Every process calls this; what it returns at rank 0
// counts.
std::vector<Sample> probe_nccl(const Machine& machine, const GpuSizes& sizes, std::int64_t ranks);

// Ranks that send to each other beside compute of one of them: two by kernels of each number of thread blocks (curves
// over the blocks of both), rings of them by copy engines (curves over copies at the same time). `alone_us` [class] is
// what the compute takes alone (probe_classes).
struct TransferCurves {
  std::array<sim::Curve, sim::kDemandClasses> beside_moving, beside_waiting, moving_beside, beside_copying,
      copying_beside;
};
TransferCurves without_transfers(const std::string& reason);  // zeros, and said to be assumed
// Points of the curves that `notebook` has are not measured again.
TransferCurves probe_transfers(const Machine& machine, const GpuSizes& sizes,
                               const std::array<double, sim::kDemandClasses>& alone_us, Notebook& notebook);

}  // namespace stretto::calibrate
