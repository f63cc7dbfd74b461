#include "model/graph/fit.hpp"

namespace stretto {
namespace {

// Works that no layer has.
template <class W>
concept OutsideOfLayers = std::is_same_v<W, Fill> || std::is_same_v<W, ScaledCast> || std::is_same_v<W, LocalReduce> ||
    std::is_same_v<W, SumSquares> || std::is_same_v<W, AdamW>;
// Works that passes write in sizes of the rank.
template <class W>
concept Fitted = std::is_same_v<W, AttentionMerge> || std::is_same_v<W, SplitHeads> || std::is_same_v<W, PackKv> ||
    std::is_same_v<W, JoinQkv> || OfExperts<W> || OfLowPrecision<W>;

struct Fit {
  const Node& node;
  const LayerGraphs& graphs;
  const Layout& layout;

  std::int64_t rows(std::size_t operand) const { return layout.rows_of(graphs, node.operands[operand].slice); }
  std::int64_t cols(std::size_t operand) const { return layout.cols_of(graphs, node.operands[operand].slice); }
  std::size_t last() const { return node.operands.size() - 1; }
  std::int64_t heads(std::int64_t of_model) const { return of_model / layout.ways(Dim::heads); }

  Work operator()(Gemm g) const {
    const std::size_t c = last();
    g.m = rows(c);
    g.n = cols(c);
    if (g.scaling_a == Scaling::none) g.k = g.trans_a ? rows(0) : cols(0);  // codes have other sizes
    return g;
  }
  Work operator()(Attention a) const {
    a.heads = heads(a.heads);
    a.kv_heads = heads(a.kv_heads);
    if (a.queries.of == 1) a.first_head = layout.tp_place * Expr(a.heads);
    return a;
  }
  Work operator()(AttentionProduct a) const {
    a.heads = heads(a.heads);
    a.kv_heads = heads(a.kv_heads);
    return a;
  }
  Work operator()(Softmax s) const {
    s.rows = rows(0);
    if (s.by_document) s.heads = heads(s.heads);
    return s;
  }
  Work operator()(Rope r) const {
    r.rows = rows(0);
    r.heads = heads(r.heads);
    r.kv_heads = heads(r.kv_heads);
    r.parts = layout.parts;
    return r;
  }
  Work operator()(LatentHeads h) const {
    h.rows = layout.tokens;
    h.heads = heads(h.heads);
    return h;
  }
  template <class Norm>
  Work norm(Norm n) const {
    const std::size_t x = n.pass == Pass::forward ? 0 : 1;
    if (n.heads > 1) n.heads /= layout.ways(graphs.of(node.operands[x].slice).cols.dim);
    n.rows = rows(x);
    n.cols = cols(x) / n.heads;
    return n;
  }
  Work operator()(const LayerNorm& n) const { return norm(n); }
  Work operator()(const RmsNorm& n) const { return norm(n); }
  Work operator()(Elementwise e) const {
    const bool by_first = e.fn == ElementwiseFn::column_sum || e.fn == ElementwiseFn::accumulate ||
                          e.fn == ElementwiseFn::gelu_backward || e.fn == ElementwiseFn::swiglu_backward;
    e.rows = rows(by_first ? 0 : last());
    e.cols = cols(by_first ? 0 : last());
    return e;
  }
  Work operator()(Dropout d) const {
    d.rows = rows(0);
    d.cols = cols(0);
    if (d.keeps_mask) {  // of attention's probabilities: `seq` are the rows of a sample
      d.seq = heads(d.seq);
      d.rows_before = layout.tp_place * Expr(d.seq);
      return d;
    }
    d.first_row = layout.sequence_parallel ? layout.tp_place * Expr(d.rows) : Expr(0);
    d.parts = layout.parts;
    return d;
  }
  Work operator()(Embedding e) const {
    e.rows = layout.tokens;
    e.shards = layout.tp;
    e.shard = layout.tp_place;
    e.parts = layout.parts;
    return e;
  }
  Work operator()(CrossEntropy c) const {
    c.rows = rows(0);
    c.cols = cols(0);
    c.scale = layout.loss_scale;
    c.shards = layout.tp;
    c.first_class = layout.tp_place * Expr(c.cols);
    return c;
  }
  Work operator()(VocabStats v) const {
    v.rows = rows(0);
    v.cols = cols(0);
    v.first_class = layout.tp_place * Expr(v.cols);
    return v;
  }
  Work operator()(PointToPoint p) const {
    p.elements = rows(0) * cols(0);
    return p;
  }
  Work operator()(Route r) const {
    r.rows = rows(0);
    return r;
  }
  Work operator()(BalanceLoss b) const {
    b.rows = rows(0);
    b.first_row = layout.sequence_parallel ? layout.tp_place * Expr(b.rows) : Expr(0);
    b.parts = layout.parts;
    return b;
  }
  Work operator()(CountLoads c) const {
    c.rows = rows(0);
    return c;
  }
  Work operator()(GateRows g) const {
    g.rows = rows(0);
    g.cols = cols(0);
    return g;
  }
  Work operator()(ShortConv c) const {
    c.rows = rows(0);
    c.channels = cols(0);
    return c;
  }
  Work operator()(LinearGates g) const {
    g.rows = rows(0);
    g.heads = heads(g.heads);
    return g;
  }
  Work operator()(LinearAttention a) const {
    a.heads = heads(a.heads);
    a.key_heads = heads(a.key_heads);
    return a;
  }
  Work operator()(GatedNorm n) const {
    n.rows = rows(0);
    n.groups = heads(n.groups);
    return n;
  }
  Work operator()(const Cast&) const { return Cast{rows(0) * cols(0)}; }
  Work operator()(Collective c) const {
    if (c.kind == CollectiveKind::dispatch || c.kind == CollectiveKind::combine) return c;
    const std::size_t whole = c.kind == CollectiveKind::all_gather ? last() : 0;
    c.elements = rows(whole) * cols(whole);
    return c;
  }
  template <Fitted W>
  Work operator()(const W& work) const {
    return work;
  }
  template <OutsideOfLayers W>
  Work operator()(const W& work) const {
    return work;
  }
};

}  // namespace

Work fit(const Node& node, const LayerGraphs& graphs, const Layout& layout) {
  return std::visit(Fit{node, graphs, layout}, node.work);
}

}  // namespace stretto
