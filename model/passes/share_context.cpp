#include "model/passes/share_context.hpp"

#include <iterator>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

// Attention of one layer under context parallelism (docs/overlap.md). Of the ranks that share a sequence, `exchange`
// neighbours swap tokens for heads (DeepSpeed-Ulysses, arXiv 2309.14509), and `ring` such groups send keys and values
// round a ring (ring attention, arXiv 2310.01889) or gather all of them. Forward, n groups, rank r: send_i, recv_i =
// kv(i) to r + 1, kv(i + 1) from r − 1; A_i = attention of the rank's queries with kv(i); merge Backward begins with
// the kv that arrived last, of group (r + 1 + i) mod n, and goes the other way, so that a rank's own dkv arrives when
// it is needed: send_i, recv_i = kv(i) and, from i = 1 on, the sum of its dkv so far, to r − 1, and those of kv(i + 1)
// from r + 1; D_i = gradients of q and kv(i); sum_i = received sum + this rank's dkv, i ≥ 1; at the last step packed
// with Σ dq
class ContextParallelism {
 public:
  ContextParallelism(LayerGraphs& graphs, const Layout& layout, const Attention& work)
      : graphs_(graphs),
        layout_(layout),
        cut_(layout.context),
        work_(work),
        rows_(layout.tokens * cut_.exchange),
        heads_(work.heads / cut_.exchange),
        kv_heads_(work.kv_heads / cut_.exchange),
        q_(heads_ * work.head_dim),
        kv_(2 * kv_heads_ * work.head_dim) {}

  std::vector<Node> forward(const Node& fused) {
    like_ = fused;
    const Slice qkv = fused.operands[0].slice, out = fused.operands[1].slice;
    extra_.assign(fused.operands.begin() + 3, fused.operands.end());
    if (cut_.exchange > 1)  // a rank attends with its share of the heads, which have their own sinks
      for (Operand& extra : extra_)
        if (graphs_.of(extra.slice).kind == ValueKind::parameter) {
          extra.slice.cols = heads_;
          extra.slice.offset = cut_.exchange_place * Expr(own(heads_));
        }
    if (cut_.exchange == 1) {
      core(qkv, out);
      return std::move(nodes_);
    }
    graphs_.of(qkv).is_family = true;
    const Slice sent = in_pool(value("attention.sent", "d_qkv.received", rows_, q_ + kv_), 0, 3);
    const Slice heads = in_pool(value("attention.qkv", "d_qkv.heads", rows_, q_ + kv_), -1, 2);
    const Slice made = in_pool(value("attention.out_heads", "d_attention.heads", rows_, q_), -1, 1);
    const Slice received = in_pool(value("attention.received", "d_attention.sent", rows_, q_), 1, 0);
    split("split_qkv", Pass::forward, kv_heads_, qkv, sent);
    swap("all_to_all_qkv", sent, heads);
    core(heads, made);
    swap("all_to_all_out", made, received);
    split("join_out", Pass::backward, 0, received, out);
    return std::move(nodes_);
  }

  // `merge`: outs R, lses R, out W, lse W. Its first pass over keys says which qkv it was.
  void ring_backward(const Node& merge, Tape& tape) {
    begin_backward(merge);
    const std::int64_t n = cut_.ring;
    const Node& step = find_forward([&](const Node& n) { return std::holds_alternative<Attention>(n.work); });
    const Slice qkv = step.operands[0].slice, out = merge.operands[2].slice, lse = merge.operands[3].slice;
    extra_.assign(step.operands.begin() + 4, step.operands.end());
    // The keys of the last step are kept.
    Slice last;
    for (const Node& node : graphs_.forward)
      if (std::holds_alternative<Attention>(node.work)) last = node.operands[1].slice;
    const Slice d_out = tape.gradient(out),
                slots[2] = {in_pool(in_slot("d_attention.kv", 2 * rows_, 0), gradients_after_exchange()),
                            in_pool(in_slot("d_attention.kv", 2 * rows_, 1), gradients_after_exchange())};
    const Slice dqs = in_pool(gradient_value("d_attention.dqs", n * rows_, q_), gradients_after_exchange() + 3),
                own = in_pool(gradient_value("d_attention.dkv", rows_, kv_), gradients_after_exchange() + 2);
    const auto half = [&](std::int64_t i, bool is_gradient) {
      Slice part = slots[i % 2];
      part.first_row = is_gradient ? rows_ : 0;
      part.rows = rows_;
      return part;
    };
    const auto kv_at = [&](std::int64_t i) { return i == 0 ? last : half(i, false); };
    for (std::int64_t i = 0; i < n; ++i) {
      const std::string number = "." + std::to_string(i);
      const bool is_first = i == 0, is_last = i + 1 == n;
      message("dkv", number, -1,
              is_first  ? kv_at(0)
              : is_last ? half(i, true)
                        : slots[i % 2],
              is_first  ? kv_at(1)
              : is_last ? half(i + 1, true)
                        : slots[(i + 1) % 2]);
      const Slice summed = half(i + 1, true);
      attend("dgrad" + number, Pass::dgrad, group(Expr(1 + i)) * Expr(cut_.exchange), cut_.exchange,
             {reads(qkv), reads(kv_at(i)), reads(out), reads(lse), reads(d_out), writes(part_of(dqs, i)),
              writes(is_first ? summed : own)});
      if (is_last)
        join(dqs, {summed, own}, tape.into(qkv));
      else if (!is_first)
        emit("sum_dkv" + number, Elementwise{ElementwiseFn::accumulate}, {reads(own), adds(summed)});
    }
    end_backward();
  }

  // `attention`: qkv R, kv of all R, out W, lse W.
  void gathered_backward(const Node& attention, Tape& tape) {
    begin_backward(attention);
    const Slice qkv = attention.operands[0].slice, whole = attention.operands[1].slice,
                out = attention.operands[2].slice, lse = attention.operands[3].slice;
    extra_.assign(attention.operands.begin() + 4, attention.operands.end());
    const int place = gradients_after_exchange();
    const Slice all = in_pool(gradient_value("d_attention.kv_all", cut_.ring * rows_, kv_), place),
                own = in_pool(gradient_value("d_attention.dkv", rows_, kv_), place + 1),
                dq = in_pool(gradient_value("d_attention.dqs", rows_, q_), place + 2);
    gather_keys(qkv, whole, ".dgrad");
    attend("dgrad", Pass::dgrad, 0, layout_.parts.of,
           {reads(qkv), reads(whole), reads(out), reads(lse), reads(tape.gradient(out)), writes(dq), writes(all)});
    emit("reduce_scatter_dkv", Collective{.kind = CollectiveKind::reduce_scatter}, {reads(all), writes(own)}).ranks =
        Ranks::ring;
    join(dq, {own}, tape.into(qkv));
    end_backward();
  }

 private:
  // Values have the model's heads in their columns, and this rank's rows.
  Slice value(const std::string& name, const std::string& gradient, std::int64_t rows, std::int64_t cols) {
    return graphs_.whole(graphs_.add(
        {.name = named(name), .gradient = named(gradient), .rows = {Dim::none, rows}, .cols = {Dim::heads, cols}}));
  }
  // "attention.a2a.sent" of "attention.sent"
  std::string named(std::string name) const {
    const std::size_t end = name.find('.');
    return end == std::string::npos ? name : name.insert(end, cut_.suffix);
  }
  Slice in_pool(Slice of, int place, int gradient_place = -1) {
    graphs_.of(of).pool_place = place;
    graphs_.of(of).gradient_pool_place = gradient_place;
    return of;
  }
  // Places of the ring's or the gather's workspaces follow those of an exchange.
  int after_exchange() const { return cut_.exchange > 1 ? 2 : 0; }
  int gradients_after_exchange() const { return cut_.exchange > 1 ? 4 : 0; }
  Slice gradient_value(const std::string& name, std::int64_t rows, std::int64_t cols) {
    const Slice made = value(name, "", rows, cols);
    graphs_.of(made).is_gradient = true;
    return made;
  }
  // One of two buffers of a workspace.
  Slice in_slot(const std::string& name, std::int64_t rows, std::int64_t slot) {
    const Slice made = gradient_value(name, rows, kv_);
    graphs_.of(made).slots = 2;
    graphs_.of(made).slot = slot;
    return made;
  }
  Slice statistics(const std::string& name, std::int64_t parts) {
    return graphs_.whole(graphs_.add({.name = named(name),
                                      .gradient = {},
                                      .rows = {Dim::heads, parts * work_.batch * heads_},
                                      .cols = {Dim::none, rows_ / work_.batch},
                                      .kind = ValueKind::statistics}));
  }
  // Rows of part number `part` of a value that has `cut_.ring` of them.
  Slice part_of(Slice parts, std::int64_t part) const {
    parts.rows = graphs_.of(parts).rows.size / cut_.ring;
    parts.first_row = part * parts.rows;
    return parts;
  }
  template <class Test>
  const Node& find_forward(const Test& test) const {
    for (const Node& node : graphs_.forward)
      if (test(node)) return node;
    return graphs_.forward.front();
  }

  Node& emit(const std::string& what, Work work, std::vector<Operand> operands) {
    Node node = like_;
    node.id = graphs_.next++;
    node.of = like_.id;
    node.base = "attention" + cut_.suffix;
    node.what = what;
    node.phase = is_backward_ ? Phase::dgrad : Phase::forward;
    node.work = std::move(work);
    node.operands = std::move(operands);
    nodes_.push_back(std::move(node));
    return nodes_.back();
  }
  void begin_backward(const Node& of) {
    like_ = of;
    like_.function = Recomputed::none;
    is_backward_ = true;
  }
  void end_backward() {
    std::move(nodes_.begin(), nodes_.end(), std::back_inserter(graphs_.backward));
    nodes_.clear();
  }

  // This rank's heads; those of attention itself after an exchange.
  std::int64_t own(std::int64_t heads) const { return heads / layout_.ways(Dim::heads); }
  void split(const char* what, Pass pass, std::int64_t kv_heads, const Slice& from, const Slice& to) {
    emit(what,
         SplitHeads{pass, cut_.exchange, layout_.tokens, own(heads_) * cut_.exchange, own(kv_heads) * cut_.exchange,
                    work_.head_dim},
         {reads(from), writes(to)});
  }
  void swap(const char* what, const Slice& from, const Slice& to) {
    emit(what, Collective{.kind = CollectiveKind::all_to_all}, {reads(from), writes(to)}).ranks = Ranks::exchange;
  }
  void message(const std::string& name, const std::string& number, int offset, const Slice& sent, const Slice& came) {
    emit(name + ".send" + number, PointToPoint{true, 0, offset, 0}, {reads(sent)}).ranks = Ranks::ring;
    Node& receive = emit(name + ".recv" + number, PointToPoint{false, 0, -offset, 0}, {writes(came)});
    receive.ranks = Ranks::ring;
    receive.is_concurrent = true;
  }
  void pack(const std::string& what, const Slice& qkv, const Slice& kv) {
    emit(what, PackKv{rows_, own(heads_), own(kv_heads_), work_.head_dim}, {reads(qkv), writes(kv)});
  }
  void join(const Slice& dq, const std::vector<Slice>& dkvs, const Operand& into) {
    std::vector<Operand> operands = {reads(dq)};
    for (const Slice& dkv : dkvs) operands.push_back(reads(dkv));
    operands.push_back(into);
    emit(
        "sum_dqkv",
        JoinQkv{graphs_.of(dq).rows.size / rows_, std::ssize(dkvs), rows_, own(heads_), own(kv_heads_), work_.head_dim},
        std::move(operands));
  }
  void attend(const std::string& what, Pass pass, const Expr& first_key, std::int64_t keys,
              std::vector<Operand> operands) {
    Attention work = work_;
    work.pass = pass;
    work.heads = heads_;
    work.kv_heads = kv_heads_;
    const std::int64_t of = layout_.parts.of;
    work.first_head = layout_.tp_place * Expr(own(heads_) * cut_.exchange) + cut_.exchange_place * Expr(own(heads_));
    work.queries = {of, cut_.ring_place * Expr(cut_.exchange), cut_.exchange};
    work.keys = {of, first_key, keys};
    work.kv_apart = cut_.ring > 1;
    operands.insert(operands.end(), extra_.begin(), extra_.end());
    emit(what, std::move(work), std::move(operands));
  }
  Expr group(const Expr& distance) const { return mod(cut_.ring_place + distance, Expr(cut_.ring)); }

  void gather_keys(const Slice& qkv, const Slice& whole, const std::string& suffix) {
    Slice own_part = whole;
    own_part.rows = rows_;
    own_part.offset = cut_.ring_place * Expr(rows_ * own(kv_));
    pack("pack_kv" + suffix, qkv, own_part);
    emit("all_gather_kv" + suffix, Collective{.kind = CollectiveKind::all_gather}, {reads(own_part), writes(whole)})
        .ranks = Ranks::ring;
  }

  void core(const Slice& qkv, const Slice& out) {
    const Slice lse = statistics("attention.lse", 1);
    if (cut_.ring == 1)
      return attend("fprop", Pass::forward, 0, layout_.parts.of, {reads(qkv), writes(out), writes(lse)});
    if (!cut_.gathers) return ring_forward(qkv, out, lse);
    const Slice whole = in_pool(value("attention.kv_all", "", cut_.ring * rows_, kv_), after_exchange());
    gather_keys(qkv, whole, "");
    attend("fprop", Pass::forward, 0, layout_.parts.of, {reads(qkv), reads(whole), writes(out), writes(lse)});
  }

  void ring_forward(const Slice& qkv, const Slice& out, const Slice& lse) {
    const std::int64_t n = cut_.ring;
    const Slice last = value("attention.kv_last", "", rows_, kv_);
    const Slice slots[2] = {in_pool(in_slot("attention.kv", rows_, 0), after_exchange()),
                            in_pool(in_slot("attention.kv", rows_, 1), after_exchange())};
    for (const Slice& slot : slots) graphs_.of(slot).is_gradient = false;
    const Slice outs = in_pool(value("attention.outs", "", n * rows_, q_), after_exchange() + 2),
                lses = statistics("attention.lses", n);
    const auto kv_at = [&](std::int64_t i) { return i + 1 == n ? last : slots[i % 2]; };
    pack("pack_kv", qkv, kv_at(0));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::string number = "." + std::to_string(i);
      if (i + 1 < n) message("kv", number, 1, kv_at(i), kv_at(i + 1));
      const Expr from = mod(cut_.ring_place - Expr(i), Expr(n));
      attend("fprop" + number, Pass::forward, from * Expr(cut_.exchange), cut_.exchange,
             {reads(qkv), reads(kv_at(i)), writes(part_of(outs, i)), writes(part_of(lses, i))});
    }
    emit("merge", AttentionMerge{n, work_.batch, own(heads_), rows_ / work_.batch, work_.head_dim, cut_.exchange},
         {reads(outs), reads(lses), writes(out), writes(lse)});
  }

  LayerGraphs& graphs_;
  const Layout& layout_;
  const ContextCut& cut_;
  const Attention work_;  // of the whole model, before it is cut
  // rows of attention itself; heads and columns of all tp ranks, after an exchange
  const std::int64_t rows_, heads_, kv_heads_, q_, kv_;
  Node like_;
  std::vector<Operand> extra_;  // the dropout key, documents
  bool is_backward_ = false;
  std::vector<Node> nodes_;
};

// Returns the attention of the whole model from one of the passes over keys that stand for it.
Attention uncut(const Layout& layout, Attention work) {
  work.heads *= layout.context.exchange;
  work.kv_heads *= layout.context.exchange;
  return work;
}

}  // namespace

void share_context(LayerGraphs& graphs, const Layout& layout) {
  if (layout.parts.of == 1) return;
  std::vector<Node> forward;
  for (Node& node : graphs.forward) {
    if (!std::holds_alternative<Attention>(node.work)) {
      forward.push_back(std::move(node));
      continue;
    }
    std::vector<Node> nodes = ContextParallelism(graphs, layout, std::get<Attention>(node.work)).forward(node);
    std::move(nodes.begin(), nodes.end(), std::back_inserter(forward));
  }
  graphs.forward = std::move(forward);
}

void ring_gradient(const Node& merge, Tape& tape) {
  const auto& forward = tape.graphs().forward;
  for (const Node& node : forward)
    if (const auto* work = std::get_if<Attention>(&node.work))
      return ContextParallelism(tape.graphs(), tape.layout(), uncut(tape.layout(), *work)).ring_backward(merge, tape);
}

void gathered_gradient(const Node& attention, Tape& tape) {
  ContextParallelism(tape.graphs(), tape.layout(), uncut(tape.layout(), std::get<Attention>(attention.work)))
      .gathered_backward(attention, tape);
}

}  // namespace stretto::passes
