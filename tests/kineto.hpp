#pragma once
// For tests: traces of PyTorch's profiler as a framework would have made them of a simulated step.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/overloaded.hpp"
#include "sim/engine.hpp"

namespace stretto::testing {

// A kernel of a framework: its name, and its share of the operation's time.
struct FrameworkKernel {
  std::string name;
  double share = 1;
};

// Returns the kernels with which a framework runs an operation, by names of public traces.
inline std::vector<FrameworkKernel> kernels_of(const Operation& operation) {
  const bool is_forward = operation.phase == Phase::forward;
  const auto named = [](const char* name) { return std::vector<FrameworkKernel>{{name, 1}}; };
  return std::visit(
      Overloaded{
          [&](const Gemm& g) -> std::vector<FrameworkKernel> {
            if (g.trans_a)
              return {{"nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NTT", 0.9},
                      {"void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::Params)", 0.1}};
            return named("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel");
          },
          [&](const GroupedGemm&) {
            return named(
                "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<GroupProblemShape<int> > >(P)");
          },
          [&](const Attention& a) -> std::vector<FrameworkKernel> {
            if (a.pass == Pass::forward)
              return named("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Params)");
            return {{"void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128>>(Params)", 0.05},
                    {"void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(P)", 0.9},
                    {"void flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<128>>(Params)", 0.05}};
          },
          [&](const RmsNorm&) {
            return named(is_forward
                             ? "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<Traits>(Params)"
                             : "void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<Traits>(Params)");
          },
          [&](const Rope&) { return named("void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>(int)"); },
          [&](const Elementwise& e) {
            const bool activates = e.fn == ElementwiseFn::swiglu || e.fn == ElementwiseFn::swiglu_backward;
            return named(activates ? "void cuda::swiglu_backward<__nv_bfloat16>(void const*, void const*, void*)"
                                   : "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<"
                                     "c10::BFloat16>, at::detail::Array<char*, 3> >(int)");
          },
          [&](const Embedding&) { return named("void at::native::indexSelectLargeIndex<c10::BFloat16, long>(long)"); },
          [&](const CrossEntropy&) -> std::vector<FrameworkKernel> {
            return {{"void at::native::cunn_SoftMaxForward<8, float, float, float, LogSoftMaxForwardEpilogue>(P)", 0.5},
                    {"void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(P)", 0.5}};
          },
          [&](const VocabStats&) { return named("void cunn_SoftMaxForward<8, LogSoftMaxForwardEpilogue>(P)"); },
          [&](const Fill&) { return named("Memset (Device)"); },
          [&](const Cast&) {
            return named("void at::native::vectorized_elementwise_kernel<4, bfloat16_copy_kernel>(int)");
          },
          [&](const SumSquares&) {
            return named("void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>, float*>(int)");
          },
          [&](const AdamW&) -> std::vector<FrameworkKernel> {
            const char* name = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)";
            return {{name, 0.5}, {name, 0.5}};
          },
          [&](const Collective& c) {
            switch (c.kind) {
              case CollectiveKind::all_gather:
                return named("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage)");
              case CollectiveKind::reduce_scatter:
                return named("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage)");
              case CollectiveKind::all_reduce:
                return named("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)");
              default:
                return named("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)");
            }
          },
          [&](const PointToPoint&) { return named("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)"); },
          [&](const auto&) {
            return named("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>(int)");
          },
      },
      operation.work);
}

// Returns the operator that PyTorch calls for an operation, with its operands' sizes, as a trace has it; "" for others.
inline std::string operator_of(const Operation& operation) {
  if (const auto* g = std::get_if<Gemm>(&operation.work))
    return fmt::format(R"("aten::mm","dims":[[{},{}],[{},{}]])", g->m, g->k, g->k, g->n);
  if (const auto* g = std::get_if<GroupedGemm>(&operation.work)) {
    if (g->pass == Pass::wgrad)
      return fmt::format(R"("aten::_grouped_mm","dims":[[{},{}],[{},{}]])", g->n, g->rows, g->rows, g->k);
    const bool is_forward = g->pass == Pass::forward;
    const std::int64_t in = is_forward ? g->k : g->n, out = is_forward ? g->n : g->k;
    return fmt::format(R"("aten::_grouped_mm","dims":[[{},{}],[{},{},{}]])", g->rows, in, g->groups, in, out);
  }
  if (const auto* a = std::get_if<Attention>(&operation.work); a && a->pass == Pass::forward)
    return fmt::format(R"("aten::_scaled_dot_product_flash_attention","dims":[[{},{},{},{}],[{},{},{},{}]])", a->batch,
                       a->heads, a->seq, a->head_dim, a->batch, a->kv_heads, a->seq, a->head_dim);
  if (const auto* e = std::get_if<Embedding>(&operation.work); e && e->pass == Pass::forward)
    return fmt::format(R"("aten::embedding","dims":[[{},{}],[{}]])", e->vocab, e->cols, e->rows);
  return "";
}

struct KinetoOptions {
  int steps = 3;
  bool marks_steps = true;
  // From this share of the step on, everything is later by so much; a kernel runs meanwhile, unless its name is "".
  double inserted_at = 0;
  double inserted_us = 0;
  std::string inserted_kernel;
  std::string left_out;                     // kernels whose names have this part do not run
  double from_us = -1e18, until_us = 1e18;  // operations that start outside these times of the step are left out
  double clock_us = 1.7e9;                  // the rank's clock at the beginning
  bool has_shapes = false;                  // record_shapes: operators of the host with the sizes of their operands
  // [operation] when the host launches it, from the step's beginning on; empty: early enough
  std::vector<double> launched_us = {};
};

// Returns the trace of a rank: `steps` steps of the simulated one, one after the other.
inline std::string kineto_json(const Schedule& schedule, const sim::SimResult& result, std::int64_t rank,
                               const KinetoOptions& options = {}) {
  const BoundProgram& program = result.programs[result.folding.index_of(rank)];
  const double period = to_us(result.timeline.step_end - result.timeline.step_begin) + options.inserted_us;
  const double origin = to_us(result.timeline.step_begin);
  std::string events;
  int correlation = 0;
  const auto put = [&](const std::string& event) { events += (events.empty() ? "\n" : ",\n") + event; };
  const auto kernel = [&](const std::string& name, double begin, double length, int stream, const std::string& more,
                          double launched, int thread) {
    ++correlation;
    put(fmt::format(R"({{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":{},"ts":{:.3f},"dur":2,)"
                    R"("args":{{"External id":{},"cbid":211,"correlation":{}}}}})",
                    thread, launched, correlation, correlation));
    put(fmt::format(R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{)"
                    R"("External id":{},"device":0,"context":1,"stream":{},"correlation":{}{}}}}})",
                    name, stream, begin, length, correlation, stream, correlation, more));
  };
  for (int step = 0; step < options.steps; ++step) {
    const double base = options.clock_us + step * period;
    if (options.marks_steps)
      put(fmt::format(R"({{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{}","pid":9,"tid":9,"ts":{:.3f},)"
                      R"("dur":{:.3f},"args":{{}}}})",
                      step + 3, base - 0.5, period));
    const double late_from = options.inserted_at * (period - options.inserted_us);
    bool is_inserted = options.inserted_us == 0;
    for (const TimelineRow& row : result.timeline.rows) {
      if (row.rank != program.rank) continue;
      const BoundOp& op = program.ops[row.op];
      const Operation& operation = schedule.operations[op.op];
      const bool moves = is_communication(operation.work);
      double begin = to_us(row.start) - origin;
      if (begin < options.from_us || begin > options.until_us) continue;
      if (!moves && begin >= late_from && !is_inserted) {
        is_inserted = true;
        if (!options.inserted_kernel.empty())
          kernel(options.inserted_kernel, base + begin, options.inserted_us, 7, "", base, 9);
      }
      // A communication that is running then begins no later.
      if (begin >= late_from) begin += options.inserted_us;
      const bool is_backward = operation.phase == Phase::dgrad || operation.phase == Phase::wgrad;
      std::string more;
      if (const auto* collective = std::get_if<Collective>(&operation.work)) {
        const Communicator& communicator = schedule.communicators[collective->communicator];
        const Dtype type = schedule.dtype_of(operation.accesses.front().view);
        const bool gathers = collective->kind == CollectiveKind::all_gather;
        const bool scatters = collective->kind == CollectiveKind::reduce_scatter;
        const bool exchanges = collective->kind == CollectiveKind::all_to_all ||
                               collective->kind == CollectiveKind::dispatch ||
                               collective->kind == CollectiveKind::combine;
        const char* name = gathers     ? "_allgather_base"
                           : scatters  ? "_reduce_scatter_base"
                           : exchanges ? "all_to_allv"
                                       : "allreduce";
        more = fmt::format(
            R"(,"Collective name":"{}","In msg nelems":{},"Out msg nelems":{},"Group size":{},"dtype":"{}",)"
            R"("Process Group Name":"{}")",
            name, collective->elements / (gathers ? communicator.size : 1),
            collective->elements / (scatters ? communicator.size : 1), communicator.size,
            type == Dtype::f32 ? "Float" : "BFloat16", communicator.name);
      }
      double at = base + begin;
      const double launched = base + (options.launched_us.empty() ? 0.5 * begin : options.launched_us[row.op]);
      if (std::string name = options.has_shapes ? operator_of(operation) : ""; !name.empty()) {
        const std::size_t dims = name.find(",\"dims\":");
        put(fmt::format(R"({{"ph":"X","cat":"cpu_op","name":{},"pid":9,"tid":{},"ts":{:.3f},"dur":3,"args":{{)"
                        R"("External id":{},"Input type":["c10::BFloat16"],"Input Dims":{}}}}})",
                        name.substr(0, dims), is_backward ? 10 : 9, launched - 0.5, 1000000 + correlation,
                        name.substr(dims + 8)));
      }
      for (const FrameworkKernel& one : kernels_of(operation)) {
        if (!options.left_out.empty() && one.name.find(options.left_out) != std::string::npos) continue;
        const double length = one.share * to_us(row.end - row.start);
        kernel(one.name, at, length, moves ? 20 + int(op.lane) : 7, more, launched, is_backward ? 10 : 9);
        at += length;
      }
    }
  }
  put(R"({"ph":"s","id":1,"pid":9,"tid":9,"ts":1,"cat":"fwdbwd","name":"fwdbwd"})");
  put(R"({"ph":"f","id":1,"pid":9,"tid":10,"ts":2,"cat":"fwdbwd","name":"fwdbwd","bp":"e"})");
  return fmt::format(R"({{"schemaVersion":1,"deviceProperties":[{{"id":0,"name":"NVIDIA H100"}}],)"
                     R"("distributedInfo":{{"backend":"nccl","rank":{},"world_size":{}}},"traceEvents":[{}]}})",
                     rank, schedule.mesh.ranks(), events);
}

}  // namespace stretto::testing
