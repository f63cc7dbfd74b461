#include "sim/accelerator/kernel_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/overloaded.hpp"
#include "model/optimizer_precision.hpp"
#include "model/ring.hpp"

namespace stretto::sim {
namespace {

double value_of(const std::optional<Quantity>& own, const Quantity& platform) {
  return own ? own->value : platform.value;
}

// A softmax over a number of heads that the framework's kernel does not take falls back to PyTorch: casts to f32 and
// back, mask and softmax, and the corresponding gradients, by kernels that read and write all scores.
constexpr int kKernelsOfPyTorch = 7;
constexpr double kBytesOfPyTorch = 26;  // bytes per score
bool falls_back(const Framework& framework, const Softmax& softmax) {
  return softmax.rows / softmax.cols % framework.softmax_heads != 0;
}

// The router without moe_router_fusion: a number of kernels; each reads and writes the scores of all experts in
// f32. A framework that says the bytes of a router has the fusion, forward: random numbers in place of logits and their
// copy, outputs that are filled, and the kernel of scores and top-k; backward: an output that is filled, and its
// kernel. Both assumed by their source (megatron/core/transformer/moe/router.py and moe_utils.py; fused_router of
// TransformerEngine).
constexpr int kKernelsOfRouter = 20, kKernelsOfFusedRouter = 5, kKernelsOfFusedGradients = 2;
int kernels_of_router(const Framework& framework, const Route& route) {
  if (!framework.element_bytes.contains(std::string(kind_of(route)))) return kKernelsOfRouter;
  return route.pass == Pass::forward ? kKernelsOfFusedRouter : kKernelsOfFusedGradients;
}

// Heads of latent attention without the fused kernel, which Megatron-LM calls experimental: splits, halves that turn,
// concatenations and copies. Assumed by its source (core/transformer/multi_latent_attention.py, apply_rotary_pos_emb).
constexpr int kKernelsOfLatentHeads = 12;

// Linear attention by chunks: norms of q and k, sums of decays, products and solution of a chunk, states, output; their
// gradients compute most of them again. Counted in flash-linear-attention bc3b101d (fla/ops/gated_delta_rule/chunk.py);
// mamba e9594ce1 (ssd_combined.py) has as many to one or two.
constexpr int kKernelsOfLinear = 6, kKernelsOfLinearGradients = 14, kKernelsOfGates = 3;

bool writes(const Operation& operation, TensorId tensor) {
  return std::any_of(operation.accesses.begin(), operation.accesses.end(), [&](const Access& access) {
    return access.mode == AccessMode::write && access.view.tensor == tensor;
  });
}

// Returns whether a norm's forward pass writes the tensor.
bool norm_writes(const Schedule& schedule, TensorId tensor) {
  return std::any_of(schedule.operations.begin(), schedule.operations.end(), [&](const Operation& operation) {
    const auto* rms = std::get_if<RmsNorm>(&operation.work);
    const auto* layer = std::get_if<LayerNorm>(&operation.work);
    if ((rms == nullptr || rms->pass != Pass::forward) && (layer == nullptr || layer->pass != Pass::forward))
      return false;
    return writes(operation, tensor);
  });
}

class KernelClock {
 public:
  KernelClock(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
              const Operation& operation, KernelChoices choices)
      : a_(accelerator), f_(framework), schedule_(schedule), operation_(operation), choices_(choices) {}

  double us(const Gemm& g) const {
    const double m = double(g.m), n = double(g.n), k = double(g.k);
    const ProductType type = product_type_of(schedule_, operation_);
    // Results of a plain product are in bf16.
    const double product_bytes =
        bytes_of_operand(0) * m * k + bytes_of_operand(1) * k * n + double(bytes_of(Dtype::bf16)) * m * n;
    if (is_low(type)) {
      const double split = g.split_accumulation && type == ProductType::fp8 ? a_.split_accumulation.value : 1;
      const double plain = view_bytes(0) + view_bytes(1) + double(bytes_of(Dtype::bf16)) * m * n;
      return a_.product_us(type, m, n, k) * split +
             memory_us(std::max(0.0, operand_bytes(own_bytes("main_grad")) - plain));
    }
    const double share = a_.gemm_share.value * a_.peak_TFLOPs.value * 1e6;  // FLOP/µs
    const double product = a_.gemms.empty() ? std::max(2 * m * n * k / share, memory_us(product_bytes))
                                            : a_.gemms.time_us(m, n, k, a_.gemm_waves ? a_.sms : 0, type);
    // The operands' bytes in addition to those of a plain product, read or written once.
    const double more = std::max(0.0, operand_bytes(own_bytes("main_grad")) - product_bytes);
    // Rows of A have k elements, or m where A is stored transposed; rows of B have n, or k.
    const bool is_odd = has_rows_of(g, 2), is_aligned = !has_rows_of(g, 8);
    const double aligned = is_odd ? a_.gemm_odd.value : is_aligned ? 1 : a_.gemm_unaligned.value;
    return product * value_of(f_.gemm_sustained, a_.gemm_sustained) * aligned + memory_us(more);
  }

  double us(const Attention& at) const {
    const AttentionKernel& kernel = a_.attention_named(f_.attention_kernel);
    const bool is_forward = at.pass == Pass::forward;
    const double heads = double(at.batch) * double(at.heads), d = double(at.head_dim);
    // A kernel for sequences of different lengths skips what a document does not see, and its sequences are as short.
    Attention as_one = at;
    as_one.by_document = false;
    const bool is_short = at.by_document && at.document_tokens > 0;
    const double share = is_short ? attention_pairs(at).count / attention_pairs(as_one).count : 1;
    const double queries = double(at.query_tokens()), keys = double(at.key_tokens()) * share;
    const auto of_width = [&](double width) { return width / (width + kernel.half_rate_head_dim); };
    const double narrow = std::min(1.0, of_width(d) / of_width(double(kernel.head_dim)));
    const double reached =
        keys / (keys + (is_forward ? kernel.half_rate_keys : kernel.backward_half_rate_keys)) * narrow;
    // Rates are counted without halving, so the arithmetic that is really executed runs at `rate / 2`.
    const double rate = (is_forward ? kernel.forward_TFLOPs : kernel.backward_TFLOPs).value * 1e6 * reached;  // FLOP/µs
    // Forward multiplies QKᵀ and PV, backward QKᵀ, dQ and dK, and dV and dP.
    // A kernel with a window costs as if it visited some keys more, at the rate of the kernel without one. Forward
    // times of inference kernels with windows, at 8,192 tokens (aiconfigurator at 095f58a5, its tables of context
    // attention by window size), say 510 keys (FA3 on H100), 730 to 1,040 (vLLM and TensorRT-LLM there), 950 (B200 and
    // GB200) and 1,200 (GB300). No public table has cuDNN's training kernel.
    constexpr double kWindowFloor = 950;
    const double v = double(at.width_of_values()), of_pair = is_forward ? 2 * (d + v) : 6 * d + 4 * v,
                 half = queries * keys * (at.causal ? 0.5 : 1),
                 pairs = at.rules.limits_keys()
                             ? std::min(half, attention_pairs(at).count + queries * std::min(keys, kWindowFloor))
                             : half;
    const double all = of_pair * heads * pairs / (rate / 2);
    const double rows = std::min(queries, double(is_forward ? kernel.forward_rows : kernel.backward_rows));
    const double visited = at.rules.limits_keys() ? pairs / queries : keys;
    const double longest = of_pair * rows * visited / (rate / 2 / a_.sms);
    // Bytes that kernels around attention move for each element of the queries. A framework may repeat a key for all
    // queries that share it.
    double moved = own_bytes(is_forward ? "attention_forward" : "attention_backward").value_or(0);
    if (at.kv_heads < at.heads) moved += own_bytes(is_forward ? "repeat_kv_forward" : "repeat_kv_backward").value_or(0);
    const double products = std::max(all, longest), around = memory_us(moved * heads * queries * d) + kernel_gap();
    if (!choices_.fp8_attention) return products + around;
    // Casts of q, k, v and of the result to codes and back, of 3 bytes an element, forward; and of their gradients.
    const double casts = double(at.batch) * (double(at.query_tokens()) * double(at.heads) * (d + v) +
                                             double(at.key_tokens()) * double(at.kv_heads) * (d + v));
    return products / a_.fp8_attention.value + memory_us(3 * casts) + 4 * kernel_gap() + around;
  }

  // A product moves the scores or probabilities, one matrix of all heads, and one of the key heads.
  double us(const AttentionProduct& at) const {
    const double scores = double(at.score_rows()) * double(at.seq), tokens = double(at.batch) * double(at.seq);
    const double bytes = bytes_of_operand(0) * (scores + tokens * double(at.heads + at.kv_heads) * double(at.head_dim));
    const double rate = value_of(f_.bmm_share, a_.bmm_share) * a_.peak_TFLOPs.value * 1e6;  // FLOP/µs
    return std::max(2 * scores * double(at.head_dim) / rate, memory_us(bytes)) + kernel_gap();
  }

  double us(const Softmax& softmax) const {
    const double scores = double(softmax.rows) * double(softmax.cols);
    // In the forward pass a causal kernel does not read the masked half.
    const double masked = softmax.causal && softmax.pass == Pass::forward ? scores : 0;
    const double bytes = falls_back(f_, softmax) ? kBytesOfPyTorch * scores : operand_bytes() - masked;
    return memory_us(bytes) + kernel_gap();
  }

  // A grouped product runs at the rate of a dense one of as many rows, in its own precision, times M / (M + 190) with M
  // rows a group, and for weight gradients times 0.9: fitted to SimuMax's measured grouped GEMMs (20 shapes on B200, M
  // from 128 to 9,832: mean error 13 % forward, 11 % of data gradients, 23 % of weight gradients), whose weight
  // gradients run at 0.75; 0.9 is assumed of Hopper.
  double us(const GroupedGemm& g) const {
    constexpr double kHalfRows = 190, kWeightGradients = 0.9;
    const double rows = double(g.rows), n = double(g.n), k = double(g.k), of_group = rows / double(g.groups);
    const bool is_wgrad = g.pass == Pass::wgrad;
    const double share = a_.gemm_share.value * a_.peak_TFLOPs.value * 1e6;  // FLOP/µs
    const auto [m, width, depth] = is_wgrad                  ? std::array{n, k, rows}
                                   : g.pass == Pass::forward ? std::array{rows, n, k}
                                                             : std::array{rows, k, n};
    const double rate = of_group / (of_group + kHalfRows) * (is_wgrad ? kWeightGradients : 1);
    double product = 0;
    if (g.has_codes()) {
      const ProductType type = product_type_of(schedule_, operation_);
      const double split = g.split_accumulation && type == ProductType::fp8 ? a_.split_accumulation.value : 1;
      product = a_.product_us(type, m, width, depth) * split / rate;
    } else {
      const double dense = a_.gemms.empty()
                               ? 2 * m * width * depth / share
                               : a_.gemms.time_us(m, width, depth, a_.gemm_waves ? a_.sms : 0, ProductType::bf16);
      product = dense / rate * value_of(f_.gemm_sustained, a_.gemm_sustained);
    }
    product *= a_.grouped_gemm.value;
    // The gradient that is added to is read and written besides.
    const double added = is_wgrad ? 2 * double(g.groups) * n * k * own_bytes("main_grad").value_or(4) : 0;
    return std::max(product, memory_us(operand_bytes(own_bytes("main_grad")) - added)) + memory_us(added);
  }

  // The gradient of Mamba-2's skip reads v and the gradient of o.
  double us(const LinearAttention& w) const {
    if (w.pass == Pass::wgrad) return memory_bound_us(w);
    const LinearAttentionRates& rates = a_.linear_attention;
    const bool is_forward = w.pass == Pass::forward;
    const auto rate = [](const Quantity& quantity, const char* key, const char* what) {
      if (quantity.value > 0) return quantity.value;
      throw input_error(std::string("[accelerator.linear_attention] ") + key + ": expected a rate of " + what +
                        " (docs/platform.md says how it is measured), got a platform without it");
    };
    const double state = double(w.key_dim * w.value_dim), tokens = double(w.seq), heads = double(w.batch * w.heads);
    if (w.delta) {
      const char* what = "the gated delta rule";
      const double ns = rate(rates.delta_ns, "delta_ns", what) * tokens * heads + rates.delta_serial_ns.value * tokens;
      return ns * 1e-3 * state / (128 * 128) * (is_forward ? 1 : rate(rates.delta_backward, "delta_backward", what)) +
             kernel_gap();
    }
    const char* what = "Mamba-2's state space";
    const double ns = rate(rates.ssd_ns, "ssd_ns", what) * tokens * std::max(rates.ssd_pairs.value, heads);
    return ns * 1e-3 * state / (128 * 64) * (is_forward ? 1 : rate(rates.ssd_backward, "ssd_backward", what)) +
           kernel_gap();
  }

  double us(const Route& route) const {
    const double elements = double(route.rows) * double(route.experts);
    const int kernels = kernels_of_router(f_, route);
    const double bytes = own_bytes(kind_of(route)).value_or(kernels * 2 * double(bytes_of(Dtype::f32)));
    return memory_us(bytes * elements) + kernels * kernel_gap();
  }

  // DeepEP and HybridEP read a rank's rows where they are, and sort what came by a pass of its own: SortByExpert stands
  // for it, or its permutation where a rank has one expert (deepseek-ai/DeepEP, branch hybrid-ep: permute_launcher() of
  // csrc/hybrid_ep/executor/executor.cu after the exchange, unless moe_permute_fusion_into_hybridep, which no recipe
  // has). NCCL's EP copies what came from where it was staged (Megatron-LM d98e8a64,
  // core/transformer/transformer_config.py:993).
  double us(const Permute& permute) const { return permute.in_transport ? 0 : memory_bound_us(permute); }

  // A query is read and written only where it turns.
  double us(const LatentHeads& h) const {
    const double size = double(bytes_of(schedule_.compute_dtype)), turned = double(h.heads * h.rope);
    const double elements = double(h.up_cols() + h.rope + h.kv_cols()) + 2 * turned;
    return memory_us(own_bytes(kind_of(h)).value_or(size) * double(h.rows) * elements) + kernel_gap();
  }

  // Where a framework's norm kernels write codes by a known scale, or take the largest magnitude, of what they write,
  // those operations are part of them; its codes are no more bytes than the numbers that it does not write then.
  double us(const Amax& amax) const {
    if (is_of_norm() || gathered_bytes()) return 0;
    return memory_bound_us(amax) + double(std::max<std::int64_t>(amax.groups - 1, 0)) * kernel_gap();
  }
  double us(const UpdateScale& update) const { return gathered_bytes() ? 0 : memory_bound_us(update); }
  double us(const WeightedActivation& activation) const {
    return choices_.fuses_experts ? 0 : memory_bound_us(activation);
  }
  double us(const Quantise& q) const {
    if (choices_.fuses_experts && is_part_of_experts(schedule_, operation_)) return 0;
    const double elements = double(q.rows) * double(q.cols);
    if (is_of_norm() && q.records) return 0;
    const std::optional<double> gathered = gathered_bytes();
    if (gathered) return memory_us(*gathered * elements);
    // One kernel makes the second copy of codes, and puts scales into the order in which products read them; the codes
    // themselves stay where they came (TransformerEngine d0067d0, common/cast/fused_group_requantize.cu).
    if (q.of_codes) return cast_us(elements, operand_bytes() - elements * (q.columnwise == ColumnCopy::none ? 2 : 1));
    // Each group is a kernel, which is as fast as one of its size.
    const double kernels = double(std::max<std::int64_t>(q.groups, 1));
    return kernels * cast_us(elements / kernels, operand_bytes() / kernels);
  }
  double us(const TransposeCodes& t) const { return cast_us(double(t.rows) * double(t.cols), operand_bytes()); }

  double us(const Collective&) const { return 0; }
  double us(const PointToPoint&) const { return 0; }
  template <class W>
  double us(const W& work) const {
    return memory_bound_us(work);
  }

 private:
  // Returns the time of a kernel that makes or moves the codes of `elements` numbers and moves `bytes`.
  double cast_us(double elements, double bytes) const {
    if (f_.hbm_share || a_.casts.elements.empty()) return memory_us(bytes) + kernel_gap();
    return bytes / (a_.casts.share_at(elements) * a_.hbm_GBps.value * 1e3) + kernel_gap();
  }

  // Returns the bytes that a pass moves of each weight, where the framework gathers codes, for the operations that make
  // codes of weights here; nullopt for others.
  std::optional<double> gathered_bytes() const {
    return operation_.codes_of == Factor::w ? own_bytes("gathered_codes") : std::nullopt;
  }

  // Returns whether the operation reads what a norm has just written and the framework's norm does it too.
  bool is_of_norm() const {
    return f_.norm_quantises && norm_writes(schedule_, operation_.accesses.front().view.tensor);
  }

  template <class W>
  double memory_bound_us(const W& work) const {
    std::optional<double> own = own_bytes(kind_of(work));
    if constexpr (requires { work.pass; })
      if (const auto of_pass = own_bytes(std::string(kind_of(work)) + "_" + name_of(work.pass))) own = of_pass;
    if constexpr (std::is_same_v<W, AdamW>)
      if (own) *own += state_bytes_beyond_f32();
    const double bytes = own ? *own * elements_of(work) : operand_bytes();
    return memory_us(bytes) + kernel_gap();
  }

  // Returns the bytes of an element of states that an update takes more than of states in f32, which the framework's
  // bytes are about.
  double state_bytes_beyond_f32() const {
    const auto type = [&](std::size_t i) { return schedule_.dtype_of(operation_.accesses[i].view); };
    if (operation_.accesses.size() < 7) return 0;  // no master
    return state_traffic_bytes(type(4), type(5), type(6)) - state_traffic_bytes(Dtype::f32, Dtype::f32, Dtype::f32);
  }

  // Returns the framework's bytes of an element for this kind of work.
  std::optional<double> own_bytes(const std::string& kind) const {
    const auto own = f_.element_bytes.find(kind);
    return own == f_.element_bytes.end() ? std::nullopt : std::optional(own->second.value);
  }

  // Returns whether rows of an operand have a number of elements that `unit` does not divide.
  static bool has_rows_of(const Gemm& g, std::int64_t unit) {
    return (g.trans_a ? g.m : g.k) % unit != 0 || (g.trans_b ? g.k : g.n) % unit != 0;
  }

  template <class W>
  static double elements_of(const W& work) {
    if constexpr (std::is_same_v<W, Permute>)
      return double(work.sorted_rows()) * double(work.cols);
    else if constexpr (std::is_same_v<W, ShortConv>)
      return double(work.rows) * double(work.channels);
    else if constexpr (std::is_same_v<W, LinearGates>)
      return double(work.rows) * double(work.heads);
    else if constexpr (std::is_same_v<W, LinearAttention>)
      return double(work.rows()) * double(work.value_cols());
    else if constexpr (std::is_same_v<W, GatedNorm>)
      return double(work.rows) * double(work.groups * work.cols);
    else if constexpr (requires { work.all_rows(); })  // a norm
      return double(work.all_rows()) * double(work.cols);
    else if constexpr (requires { work.cols; })
      return double(work.rows) * double(work.cols);
    else if constexpr (requires { work.elements; })
      return double(work.elements);
    else if constexpr (std::is_same_v<W, BalanceLoss>)
      return double(work.rows) * double(work.experts);
    else if constexpr (std::is_same_v<W, MeanCounts>)
      return double(work.experts);
    else if constexpr (std::is_same_v<W, CountRows>)
      return double(work.ranks) * double(work.experts);
    else if constexpr (std::is_same_v<W, MoveBias>)
      return double(work.rows) * double(work.experts);
    else if constexpr (std::is_same_v<W, SortTokens> || std::is_same_v<W, CountLoads>)
      return double(work.rows) * double(work.topk);
    else if constexpr (std::is_same_v<W, AttentionMerge>)
      return double(work.batch * work.tokens * work.heads * work.head_dim);
    else  // Rope, SplitHeads
      return double(work.rows) * double((work.heads + work.kv_heads) * work.head_dim);
  }

  // Returns whether an operand of a grouped product is a code of its weights.
  bool is_of_weights(const Access& access) const {
    const auto* grouped = std::get_if<GroupedGemm>(&operation_.work);
    return grouped != nullptr && grouped->pass != Pass::wgrad && &access == &operation_.accesses[1];
  }

  // Returns the bytes of all operands: each is read or written once, an accumulated one both. Of an embedding table and
  // of matrices with room for more rows only the used rows count. Elements in f32 that are added to have the given
  // size.
  double operand_bytes(std::optional<double> added_to = std::nullopt) const {
    double bytes = 0;
    const auto* embedding = std::get_if<Embedding>(&operation_.work);
    const auto [used, capacity] = std::visit(
        [](const auto& work) -> std::pair<double, std::int64_t> {
          if constexpr (requires { work.capacity, work.rows; }) return {double(work.rows), work.capacity};
          return {0, 0};
        },
        operation_.work);
    for (const Access& access : operation_.accesses) {
      const Dtype dtype = schedule_.dtype_of(access.view);
      double elements = double(access.view.rows) * double(access.view.cols);
      if (access.view.rows == capacity || (capacity > 0 && is_code(dtype) && !is_of_weights(access)))
        elements *= used / double(capacity);
      if (embedding) elements = std::min(elements, double(embedding->rows) * double(embedding->cols));
      const bool adds = access.mode == AccessMode::accumulate;
      const double size = adds && added_to && dtype == Dtype::f32 ? *added_to : double(bytes_of(dtype));
      bytes += elements * size * (adds ? 2 : 1);
    }
    return bytes;
  }

  double view_bytes(std::size_t i) const {
    const View& view = operation_.accesses[i].view;
    return double(view.rows) * double(view.cols) * bytes_of_operand(i);
  }
  double bytes_of_operand(std::size_t i) const {
    return double(bytes_of(schedule_.dtype_of(operation_.accesses[i].view)));
  }
  double memory_us(double bytes) const {
    return bytes / (value_of(f_.hbm_share, a_.hbm_share) * a_.hbm_GBps.value * 1e3);
  }
  double kernel_gap() const { return value_of(f_.kernel_us, a_.kernel_us); }

  const Accelerator& a_;
  const Framework& f_;
  const Schedule& schedule_;
  const Operation& operation_;
  const KernelChoices choices_;
};

// Rate over NVLink of DeepEP's kernels that also forward what comes from other nodes, over that of those within a node:
// H100, combine in bf16, 24 SMs, 2 nodes: 200 GB/s with 4,096 tokens and 222 with 16,384, and 281 in a node
// (measurements of ai-dynamo/aiconfigurator); HybridEP with 16 SMs 191 to 217 (deepseek-ai/DeepEP, branch hybrid-ep,
// docs/README_Hybrid-EP.md, whose rates count rows for the own node).
constexpr double kForwarding = 0.74;

// Returns the bus bandwidth of a domain's collectives.
double bus_GBps(const Accelerator& a, CollectiveKind kind) {
  return a.collectives.has(kind) ? a.collectives.bus_GBps(kind, a.table_change()) : a.nvlink.GBps.value;
}

// Every member sends each other member its slice directly: to other nodes over its share of the cards, and within its
// node over NVLink, concurrently.
GroupTime all_to_all_across(const Accelerator& a, double bytes, const GroupSpan& span, double nvlink_GBps,
                            double in_step_us, double slower = 1) {
  const double members = double(span.members), here = double(span.cards());
  const double away = bytes * (members - here) / members, near = bytes * (here - 1) / members;
  const double latency = a.network.latency_us.value + in_step_us;
  return {latency + std::max(slower * away / (a.card_GBps(span.leaving) * 1e3), near / (nvlink_GBps * 1e3)), latency};
}

}  // namespace

ProductType product_type_of(const Schedule& schedule, const Operation& product) {
  const auto* grouped = std::get_if<GroupedGemm>(&product.work);
  const Scaling scaling = grouped != nullptr ? grouped->scaling_a : std::get<Gemm>(product.work).scaling_a;
  switch (scaling) {
    case Scaling::none:
      return product_type_of(product_type(schedule, product));
    case Scaling::tensor:
      return ProductType::fp8;
    case Scaling::block_128:
    case Scaling::block_128x128:
      return ProductType::fp8_block;
    case Scaling::mx:
      return ProductType::mxfp8;
    case Scaling::nv:
    case Scaling::nv_16x16:
      return ProductType::nvfp4;
  }
  return ProductType::f32;
}

ProductType lowest_product_type(const Schedule& schedule) {
  ProductType lowest = product_type_of(schedule.compute_dtype);
  for (const Operation& operation : schedule.operations)
    if (has_codes(operation.work)) lowest = std::max(lowest, product_type_of(schedule, operation));
  return lowest;
}

int kernels_of(const Framework& framework, const Operation& operation) {
  if (const auto* route = std::get_if<Route>(&operation.work)) return kernels_of_router(framework, *route);
  if (std::holds_alternative<LatentHeads>(operation.work)) return kKernelsOfLatentHeads;
  if (std::holds_alternative<LinearGates>(operation.work)) return kKernelsOfGates;
  if (const auto* linear = std::get_if<LinearAttention>(&operation.work); linear != nullptr)
    return linear->pass == Pass::forward ? kKernelsOfLinear
           : linear->pass == Pass::dgrad ? kKernelsOfLinearGradients
                                         : 1;
  const auto* softmax = std::get_if<Softmax>(&operation.work);
  return softmax != nullptr && falls_back(framework, *softmax) ? kKernelsOfPyTorch : 1;
}

bool is_part_of_experts(const Schedule& schedule, const Operation& operation) {
  if (std::holds_alternative<WeightedActivation>(operation.work)) return true;
  const auto* quantise = std::get_if<Quantise>(&operation.work);
  if (quantise == nullptr || quantise->groups == 0) return false;
  const TensorId from = operation.accesses.front().view.tensor;
  return std::any_of(schedule.operations.begin(), schedule.operations.end(), [&](const Operation& other) {
    return std::holds_alternative<WeightedActivation>(other.work) && writes(other, from);
  });
}

double kernel_us(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                 const Operation& operation, KernelChoices choices) {
  const KernelClock clock(accelerator, framework, schedule, operation, choices);
  return std::visit([&](const auto& work) { return clock.us(work); }, operation.work);
}

GroupTime collective_time(const Accelerator& a, const Framework& framework, CollectiveKind kind, double bytes,
                          const GroupSpan& span) {
  if (span.members <= 1) return {};
  kind = like_equal_slices(kind);
  const double in_step = value_of(framework.collective_in_step_us, a.collective_in_step_us);
  if (span.nodes > 1) {
    const double cards = static_cast<double>(span.cards()) * a.card_GBps(span.leaving), nvlink = bus_GBps(a, kind);
    if (kind == CollectiveKind::all_to_all) return all_to_all_across(a, bytes, span, nvlink, in_step);
    const auto model = [&](double size) {
      return nccl_across_nodes(kind, size, span, cards, nvlink, a.collective_latency.value);
    };
    const GroupTime time = model(bytes);
    // A measured group had its links to itself; the model divides its time into latency and bytes.
    const bool is_free = span.leaving * a.oversubscription <= 1;
    const auto model_us = [&](double size) { return model(size).us; };
    CollectiveTable::Model measured_us;
    if (a.table_change() != LinkChange{} || a.network_change() != 1)
      measured_us = [&](double size) {
        const double of_table = a.collectives.has(kind) ? a.collectives.bus_GBps(kind) : nvlink / a.table_change().rate;
        return nccl_across_nodes(kind, size, span, cards / a.network_change(), of_table).us;
      };
    const double us =
        (is_free ? a.collectives.across_us(kind, span, bytes, model_us, measured_us) : std::nullopt).value_or(time.us);
    return {us + in_step, time.latency_us * us / time.us + in_step};
  }
  if (a.collectives.has(kind))
    return {a.collectives.time_us(kind, span.members, bytes, a.table_change()) + in_step, in_step};
  const RingCost ring = ring_cost(kind, Dtype::bf16, static_cast<std::int64_t>(bytes / 2), span.members);
  const double latency = double(ring.steps) * a.nvlink.latency_us.value + in_step;
  return {latency + double(ring.edge_bytes) / (a.nvlink.GBps.value * 1e3), latency};
}

double measured_collective_us(const Accelerator& accelerator, CollectiveKind kind, double bytes,
                              const GroupSpan& span) {
  Framework alone;
  alone.collective_in_step_us = Quantity{};
  return collective_time(accelerator, alone, kind, bytes, span).us;
}

GroupTime token_exchange_time(const Accelerator& a, const Framework& framework, const Collective& work,
                              double element_bytes, TokenTransport transport, const GroupSpan& span,
                              const GroupLimit& limit) {
  if (span.members <= 1) return {};
  const TokenExchange& exchange = a.token_exchange;
  const double bytes = double(work.elements) * element_bytes;
  if (transport == TokenTransport::nccl) {
    GroupTime time = collective_time(a, framework, work.kind, bytes, span);
    if (span.nodes > 1) {
      // The card's rate has the share that rings reach; an exchange reaches another.
      const double slower = a.network_share.value / exchange.network_share.value;
      time = all_to_all_across(a, bytes, span, bus_GBps(a, CollectiveKind::all_to_all),
                               value_of(framework.collective_in_step_us, a.collective_in_step_us), slower);
    }
    return {time.us + exchange.us.value, time.latency_us + exchange.us.value};
  }
  if (work.cols == 1) return {};
  const double copies = double(std::max<std::int64_t>(1, work.copies)), tokens = bytes / copies,
               ranks = double(span.members), nodes = double(span.nodes);
  const auto met = [&](double places) { return places * (1 - std::pow(1 - 1 / places, copies)); };
  // A group of experts that several nodes share may send a token to each of them.
  const double most_nodes =
      limit.groups > 0 ? double(limit.most_groups) * std::max(1.0, nodes / double(limit.groups)) : nodes;
  const double nvlink_GBps = exchange.flex_nvlink_GBps.value * a.nvlink_change() * (span.nodes > 1 ? kForwarding : 1);
  const double near = tokens * met(ranks) * (ranks - 1) / ranks / (nvlink_GBps * 1e3);
  const double far = span.nodes > 1 ? tokens * std::min(met(nodes), most_nodes) * (nodes - 1) / nodes /
                                          (exchange.flex_network_GBps.value * a.network_change() * 1e3)
                                    : 0;
  // NCCL's EP runs HybridEP's kernels (Megatron-LM d98e8a64, core/transformer/moe/token_dispatcher.py:1631).
  const bool scans = transport != TokenTransport::deepep && work.kind == CollectiveKind::dispatch;
  const double latency = exchange.flex_us.value + (scans ? exchange.hybridep_us.value : 0);
  return {latency + std::max(near, far), latency};
}

double tensor_parallel_copy_us(const Accelerator& a, const Framework& framework, const Collective& work) {
  const auto own = framework.element_bytes.find("tensor_parallel_copy");
  if (own == framework.element_bytes.end() || work.kind == CollectiveKind::all_reduce) return 0;
  const double bytes_per_us = value_of(framework.hbm_share, a.hbm_share) * a.hbm_GBps.value * 1e3;
  return own->second.value * double(work.elements) / bytes_per_us + value_of(framework.kernel_us, a.kernel_us);
}

GroupTime message_time(const Accelerator& a, double bytes, const GroupSpan& span) {
  const bool crosses_nodes = span.nodes > 1;
  const double latency = (crosses_nodes ? a.network : a.nvlink).latency_us.value;
  return {latency + bytes / ((crosses_nodes ? a.card_GBps(span.leaving_by_message) : a.nvlink.GBps.value) * 1e3),
          latency};
}

}  // namespace stretto::sim
