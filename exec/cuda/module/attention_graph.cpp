// The graphs are those that cuDNN's documentation of fused attention describes, in the form of cudnn-frontend's
// composite nodes, by which engines recognise attention. With S = scale · Q · Kᵀ, masked:
//   forward   O = exp(S − max) / Σ · V,  stats = max + log Σ
//   gradient  P = exp(S − stats), dV = Pᵀ · dO, dS = P ∘ (dO · Vᵀ − Σ dO ∘ O) · scale, dQ = dS · K, dK = dSᵀ · Q
// Dropout of probability p, with a mask D of zeros and ones and c = 1 / (1 − p), replaces P by c · D ∘ P in O and dV,
// and dS = P ∘ (D ∘ (dO · Vᵀ) − (1 − p) · Σ dO ∘ O) · c · scale. Grouped queries: a product of h heads with hk of K or
// V uses each of those for h / hk consecutive heads (as cuDNN's own frontend describes it), and dK and dV of all heads,
// between two operations, are reduced to hk.
#include "exec/cuda/module/attention_graph.hpp"

namespace stretto::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;
using Id = AttentionTensor;
constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;

std::int64_t number(Id id) { return static_cast<std::int64_t>(id); }

struct Builder {
  CudnnGraph& g;
  const AttentionShape& s;

  CudnnDims rows() const { return {s.b, s.h, s.queries, s.d}; }
  CudnnDims kv_rows() const { return {s.b, s.hk, s.keys, s.d}; }
  CudnnDims all_kv_rows() const { return {s.b, s.h, s.keys, s.d}; }  // one for each query head
  CudnnDims kv_columns() const { return {s.b, s.hk, s.d, s.keys}; }  // of a transposed view
  CudnnDims scores() const { return {s.b, s.h, s.queries, s.keys}; }
  CudnnDims turned_scores() const { return {s.b, s.h, s.keys, s.queries}; }
  CudnnDims of_rows() const { return {s.b, s.h, s.queries, 1}; }
  // Strides of a head in rows, and of its transpose.
  CudnnDims strides(const AttentionStrides& of) const { return {of.sequence, s.d, of.ld, 1}; }
  CudnnDims transposed(const AttentionStrides& of) const { return {of.sequence, s.d, 1, of.ld}; }

  Tensor in_rows(Id id, const AttentionStrides& of) { return g.tensor(number(id), rows(), strides(of), kBf16); }
  Tensor in_kv_rows(Id id, const AttentionStrides& of) { return g.tensor(number(id), kv_rows(), strides(of), kBf16); }
  Tensor in_kv_columns(Id id) { return g.tensor(number(id), kv_columns(), transposed(s.kv), kBf16); }
  Tensor one_of_a_row(Id id) {
    return g.tensor(number(id), of_rows(), {s.h * s.queries, s.queries, 1, 1}, CUDNN_DATA_FLOAT);
  }
  Tensor scalar(Id id) { return g.scalar(number(id)); }

  Tensor times(Tensor x, Tensor factor, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    Tensor y = g.between(scores(), type);
    g.pointwise(CUDNN_POINTWISE_MUL, x, y, factor);
    return y;
  }
  // row + keys − queries ≥ column ? x : −∞; x itself where every query sees every key.
  Tensor masked(Tensor x) {
    if (!s.is_causal) return x;
    Tensor row = g.between(scores(), CUDNN_DATA_INT32), column = g.between(scores(), CUDNN_DATA_INT32),
           sees = g.between(scores(), CUDNN_DATA_BOOLEAN), y = g.between(scores());
    g.pointwise(CUDNN_POINTWISE_GEN_INDEX, x, row, nullptr, nullptr, 2);
    g.pointwise(CUDNN_POINTWISE_GEN_INDEX, x, column, nullptr, nullptr, 3);
    // Engines recognise this sum and difference, in this order.
    if (s.is_shifted()) {
      Tensor more = g.between(scores(), CUDNN_DATA_INT32), shifted = g.between(scores(), CUDNN_DATA_INT32);
      g.pointwise(CUDNN_POINTWISE_ADD, row, more, g.scalar(number(Id::keys), CUDNN_DATA_INT32), nullptr, 3, true);
      g.pointwise(CUDNN_POINTWISE_SUB, more, shifted, g.scalar(number(Id::queries), CUDNN_DATA_INT32), nullptr, 3,
                  true);
      row = shifted;
    }
    g.pointwise(CUDNN_POINTWISE_CMP_GE, row, sees, column);
    g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, y, scalar(Id::hidden), sees);
    return y;
  }
  // D, equal in the forward pass and the gradient; only with dropout.
  Tensor kept() {
    Tensor y = g.between(scores());
    g.bernoulli(1 - s.dropout, g.device_integer(number(Id::seed)), g.device_integer(number(Id::offset)), y);
    return y;
  }

  void forward();
  void gradient();
};

void Builder::forward() {
  Tensor q = in_rows(Id::q, s.q), k = in_kv_columns(Id::k), v = in_kv_rows(Id::v, s.kv), o = in_rows(Id::o, s.out),
         stats = one_of_a_row(Id::stats);
  Tensor product = g.between(scores());
  g.matmul(q, k, product);
  Tensor score = masked(times(product, scalar(Id::scale)));
  Tensor top = g.between(of_rows()), shifted = g.between(scores()), e = g.between(scores()), sum = g.between(of_rows()),
         log = g.between(of_rows());
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, score, top);
  g.pointwise(CUDNN_POINTWISE_SUB, score, shifted, top);
  g.pointwise(CUDNN_POINTWISE_EXP, shifted, e);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, log);
  g.pointwise(CUDNN_POINTWISE_ADD, top, stats, log);
  const bool drops = s.dropout > 0;
  Tensor p = g.between(scores(), drops ? CUDNN_DATA_FLOAT : kBf16);
  g.pointwise(CUDNN_POINTWISE_DIV, e, p, sum);
  if (drops) p = times(times(p, kept()), scalar(Id::drop_scale), kBf16);
  g.matmul(p, v, o);
}

void Builder::gradient() {
  const bool drops = s.dropout > 0;
  // a · b for every head, added up over the heads that share one of K and V.
  const auto matmul_of_group = [&](Tensor a, Tensor b, Tensor c) {
    if (s.h == s.hk) return g.matmul(a, b, c);
    Tensor of_heads = g.between(all_kv_rows(), kBf16);
    g.matmul(a, b, of_heads);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, c);
  };
  const CudnnDims turned = {s.h * s.queries * s.keys, s.queries * s.keys, 1, s.keys};
  const auto turn = [&](Tensor x) {
    Tensor y = g.between(turned_scores(), turned, kBf16);
    g.reshape(x, y);
    return y;
  };
  Tensor q = in_rows(Id::q, s.q), k = in_kv_columns(Id::k), v = in_kv_columns(Id::v), o = in_rows(Id::o, s.out),
         d_o = in_rows(Id::d_o, s.out), dq = in_rows(Id::dq, s.dq), dk = in_kv_rows(Id::dk, s.dkv),
         dv = in_kv_rows(Id::dv, s.dkv), stats = one_of_a_row(Id::stats), mean = one_of_a_row(Id::row_sums);
  Tensor dq_sums =
      g.tensor(number(Id::dq_sums), rows(), {s.h * s.queries * s.d, s.queries * s.d, s.d, 1}, CUDNN_DATA_FLOAT);
  Tensor scale = scalar(Id::scale), kept_mask = drops ? kept() : nullptr,
         drop_scale = drops ? scalar(Id::drop_scale) : nullptr;

  Tensor oo = g.between(rows()), row_sum = g.between(of_rows());
  g.pointwise(CUDNN_POINTWISE_MUL, d_o, oo, o);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, oo, row_sum);
  g.pointwise(CUDNN_POINTWISE_MUL, row_sum, mean, scalar(Id::kept_share));

  Tensor product = g.between(scores()), shifted = g.between(scores()), p = g.between(scores(), kBf16);
  g.matmul(q, k, product);
  // Masking after or before the shift gives equal results, because exp(−∞) is 0.
  g.pointwise(CUDNN_POINTWISE_SUB, times(product, scale), shifted, stats);
  g.pointwise(CUDNN_POINTWISE_EXP, masked(shifted), p);
  matmul_of_group(turn(drops ? times(times(p, kept_mask), drop_scale, kBf16) : p), d_o, dv);

  Tensor dp = g.between(scores()), centred = g.between(scores());
  g.matmul(d_o, v, dp);
  g.pointwise(CUDNN_POINTWISE_SUB, drops ? times(dp, kept_mask) : dp, centred, mean);
  Tensor weighted = times(centred, p);
  if (drops) weighted = times(weighted, drop_scale);
  Tensor ds = times(weighted, scale, kBf16);
  matmul_of_group(turn(ds), q, dk);
  Tensor k_rows = g.between(kv_rows(), strides(s.kv), kBf16);
  g.reshape(k, k_rows);
  g.matmul(ds, k_rows, dq_sums);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sums, dq);
}

}  // namespace

void add_attention(CudnnGraph& graph, const AttentionShape& shape, bool is_forward) {
  Builder builder{graph, shape};
  is_forward ? builder.forward() : builder.gradient();
}

}  // namespace stretto::cuda
