#include "sim/accelerator/kernel_time.hpp"

#include <algorithm>

#include "base/overloaded.hpp"
#include "model/ring.hpp"

namespace stretto::sim {
namespace {

double value_of(const std::optional<Quantity>& own, const Quantity& platform) {
  return own ? own->value : platform.value;
}

// Megatron-LM's fused softmax takes 4 heads of a micro-batch at a time, and leaves the rest to PyTorch
// (is_kernel_available of fused_softmax.py).
bool softmax_falls_back(const Attention& attention) { return attention.batch * attention.heads % 4 != 0; }

class KernelClock {
 public:
  KernelClock(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
              const Operation& operation)
      : a_(accelerator), f_(framework), schedule_(schedule), operation_(operation) {}

  double us(const Gemm& g) const {
    const double m = double(g.m), n = double(g.n), k = double(g.k);
    const double share = a_.gemm_share.value * a_.peak_TFLOPs.value * 1e6;  // FLOP/µs
    const double product_bytes = 2 * (m * k + k * n + m * n);
    const double product = a_.gemms.empty() ? std::max(2 * m * n * k / share, memory_us(product_bytes))
                                            : a_.gemms.time_us(m, n, k, a_.gemm_waves ? a_.sms : 0);
    // The operands' bytes beyond two bytes an element, read or written once.
    const double more = std::max(0.0, operand_bytes() - product_bytes);
    // Rows of A have k elements, or m where it is stored turned; those of B n, or k.
    const bool is_odd = has_rows_of(g, 2), is_aligned = !has_rows_of(g, 8);
    const double aligned = is_odd ? a_.gemm_odd.value : is_aligned ? 1 : a_.gemm_unaligned.value;
    return product * value_of(f_.gemm_sustained, a_.gemm_sustained) * aligned + memory_us(more);
  }

  double us(const Attention& at) const {
    if (f_.attention_kernel == kUnfused) return unfused_us(at);
    const AttentionKernel& kernel = a_.attention_named(f_.attention_kernel);
    const bool is_forward = at.pass == Pass::forward;
    const double s = double(at.seq), heads = double(at.batch) * double(at.heads), d = double(at.head_dim);
    const double rate = (is_forward ? kernel.forward_TFLOPs : kernel.backward_TFLOPs).value * 1e6;  // FLOP/µs
    const double pass = is_forward ? 4 : 10, half = at.causal ? 1 : 2;
    const double all = pass * heads * s * s * d * half / rate;
    // Rates are counted without halving, so an SM does half of `rate / sms` in truth.
    const double rows = std::min(s, double(is_forward ? kernel.forward_rows : kernel.backward_rows));
    const double longest = pass * rows * s * d / (rate / 2 / a_.sms);
    return std::max(all, longest) + kernel_gap();
  }

  double us(const Collective&) const { return 0; }
  double us(const PointToPoint&) const { return 0; }
  template <class W>
  double us(const W& work) const {
    const auto own = f_.element_bytes.find(kind_of(work));
    const double bytes = own == f_.element_bytes.end() ? operand_bytes() : own->second.value * elements_of(work);
    return memory_us(bytes) + kernel_gap();
  }

 private:
  // Products of scores and of values as batched GEMMs, 2 forward and 4 backward; between them softmax, which a causal
  // kernel reads and writes by half, and dropout with its mask (docs/platform.md: attention apart).
  double unfused_us(const Attention& at) const {
    const bool is_forward = at.pass == Pass::forward;
    const double heads = double(at.batch) * double(at.heads), s = double(at.seq), d = double(at.head_dim);
    const double scores = heads * s * s;
    const double product_flops = 2 * scores * d, product_bytes = 2 * (scores + 2 * heads * s * d);
    const double rate = value_of(f_.bmm_share, a_.bmm_share) * a_.peak_TFLOPs.value * 1e6;  // FLOP/µs
    const double product = std::max(product_flops / rate, memory_us(product_bytes)) + kernel_gap();
    // In PyTorch: cast to f32, mask, softmax and cast back, each a kernel that reads and writes all scores.
    const double softmax_bytes =
        softmax_falls_back(at) ? 26 * scores : (is_forward ? 3 : 6) * (at.causal ? 1 : 4.0 / 3) * scores;
    const double dropout_bytes = at.dropout > 0 ? 5 * scores : 0;
    return (is_forward ? 2 : 4) * product + memory_us(softmax_bytes + dropout_bytes) +
           (at.dropout > 0 ? 2 : 1) * kernel_gap();
  }

  // Whether rows of an operand have a number of elements that `unit` does not divide.
  static bool has_rows_of(const Gemm& g, std::int64_t unit) {
    return (g.trans_a ? g.m : g.k) % unit != 0 || (g.trans_b ? g.k : g.n) % unit != 0;
  }

  template <class W>
  static double elements_of(const W& work) {
    if constexpr (requires { work.cols; })
      return double(work.rows) * double(work.cols);
    else if constexpr (requires { work.elements; })
      return double(work.elements);
    else  // Rope
      return double(work.rows) * double((work.heads + work.kv_heads) * work.head_dim);
  }

  // Every operand is read or written once, and one that is accumulated both. Of an embedding table only its rows.
  double operand_bytes() const {
    double bytes = 0;
    const auto* embedding = std::get_if<Embedding>(&operation_.work);
    for (const Access& access : operation_.accesses) {
      const Tensor& tensor = schedule_.tensors[access.view.tensor];
      const Dtype dtype = schedule_.storages[tensor.places.front().storage].dtype;
      double elements = double(access.view.rows) * double(access.view.cols);
      if (embedding) elements = std::min(elements, double(embedding->rows) * double(embedding->cols));
      bytes += elements * double(bytes_of(dtype)) * (access.mode == AccessMode::accumulate ? 2 : 1);
    }
    return bytes;
  }

  double memory_us(double bytes) const {
    return bytes / (value_of(f_.hbm_share, a_.hbm_share) * a_.hbm_GBps.value * 1e3);
  }
  double kernel_gap() const { return value_of(f_.kernel_us, a_.kernel_us); }

  const Accelerator& a_;
  const Framework& f_;
  const Schedule& schedule_;
  const Operation& operation_;
};

}  // namespace

int kernels_of(const Framework& framework, const Operation& operation) {
  const auto* attention = std::get_if<Attention>(&operation.work);
  if (attention == nullptr || framework.attention_kernel != kUnfused) return 1;
  // Split of q, k and v, two products, softmax, the copy of heads to rows; backward twice that.
  return (attention->pass == Pass::forward ? 5 : 10) + (attention->dropout > 0 ? 1 : 0) +
         (softmax_falls_back(*attention) ? 6 : 0);
}

std::int64_t kept_between_passes_bytes(const Framework& framework, const Attention& attention) {
  if (framework.attention_kernel != kUnfused) return 0;
  return attention.batch * attention.heads * attention.seq * attention.seq * (attention.dropout > 0 ? 5 : 2);
}

double kernel_us(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                 const Operation& operation) {
  const KernelClock clock(accelerator, framework, schedule, operation);
  return std::visit([&](const auto& work) { return clock.us(work); }, operation.work);
}

GroupTime collective_time(const Accelerator& a, const Framework& framework, CollectiveKind kind, double bytes,
                          const GroupSpan& span) {
  if (span.members <= 1) return {};
  const double in_step = value_of(framework.collective_in_step_us, a.collective_in_step_us);
  if (span.nodes > 1) {
    const double cards = static_cast<double>(span.cards()) * a.card_GBps(span.leaving);
    const double nvlink = a.collectives.has(kind) ? a.collectives.bus_GBps(kind) : a.nvlink.GBps.value;
    const auto model = [&](double size) { return nccl_across_nodes(kind, size, span, cards, nvlink); };
    const GroupTime time = model(bytes);
    // A measured group had its links to itself, and latency and bytes are in the model's proportion.
    const bool is_free = span.leaving * a.oversubscription <= 1;
    const auto model_us = [&](double size) { return model(size).us; };
    const double us = (is_free ? a.collectives.across_us(kind, span, bytes, model_us) : std::nullopt).value_or(time.us);
    return {us + in_step, time.latency_us * us / time.us + in_step};
  }
  if (a.collectives.has(kind)) return {a.collectives.time_us(kind, span.members, bytes) + in_step, in_step};
  const RingCost ring = ring_cost(kind, Dtype::bf16, static_cast<std::int64_t>(bytes / 2), span.members);
  const double latency = double(ring.steps) * a.nvlink.latency_us.value + in_step;
  return {latency + double(ring.edge_bytes) / (a.nvlink.GBps.value * 1e3), latency};
}

GroupTime message_time(const Accelerator& a, double bytes, const GroupSpan& span) {
  const bool crosses_nodes = span.nodes > 1;
  const double latency = (crosses_nodes ? a.network : a.nvlink).latency_us.value;
  return {latency + bytes / ((crosses_nodes ? a.card_GBps(span.leaving_by_message) : a.nvlink.GBps.value) * 1e3), latency};
}

}  // namespace stretto::sim
