#include <algorithm>
#include <variant>

#include "model/passes/passes.hpp"
#include "model/passes/share_context.hpp"
#include "model/passes/tape.hpp"

namespace stretto::passes {
namespace {

// Works that no forward graph has before it is differentiated.
template <class W>
concept WithoutAdjoint = std::is_same_v<W, MoveBias> || std::is_same_v<W, Fill> || std::is_same_v<W, ScaledCast> ||
    std::is_same_v<W, LocalReduce> || std::is_same_v<W, SumSquares> || std::is_same_v<W, AdamW> ||
    std::is_same_v<W, JoinQkv> || std::is_same_v<W, MeanCounts> || OfLowPrecision<W>;

// The adjoint of each work: the nodes that add to the gradients of what it reads. A work without a function here does
// not compile.
struct Adjoint {
  const Node& node;
  Tape& tape;

  const Slice& operand(std::size_t i) const { return node.operands[i].slice; }

  // dx = dy · W, and dW += dyᵀ · x, db += Σ dy.
  void operator()(const Gemm&) const {
    const Slice &x = operand(0), &w = operand(1), dy = factor(tape.gradient(node.result()));
    tape.emit(node, "dgrad", Phase::dgrad, Gemm{}, {reads(dy), reads(w), tape.into(x)});
    Gemm product;
    product.trans_a = true;
    tape.emit(node, "wgrad", Phase::wgrad, product, {reads(dy), reads(x), tape.into_parameter(w)}).is_deferrable =
        node.is_deferrable;
    const bool has_bias = std::get<Gemm>(node.work).bias;
    if (!has_bias && !node.late_bias) return;
    const Slice bias = has_bias ? operand(2) : *node.late_bias;
    tape.emit(node, "bgrad", Phase::wgrad, Elementwise{ElementwiseFn::column_sum},
              {reads(has_bias ? dy : tape.of_late_bias.at(bias.value)), tape.into_parameter(bias)})
        .is_deferrable = true;
  }
  // Factors of products have the type of the step.
  Slice factor(const Slice& dy) const {
    Value rounded = tape.graphs().of(dy);
    if (rounded.kind != ValueKind::statistics || !tape.layout().rounds_statistics) return dy;
    rounded.name += ".rounded";
    rounded.kind = ValueKind::activation;
    const Slice to = dy.of(tape.graphs().add(std::move(rounded)));
    tape.emit(node, "round_dgrad", Phase::dgrad, Cast{}, {reads(dy), writes(to)});
    return to;
  }

  template <class Norm>
  void norm(Norm work) const {
    const std::size_t weights = node.operands.size() - 3;
    const Slice &x = operand(0), &stats = operand(weights + 2), dy = tape.gradient(operand(weights + 1));
    const std::vector<Operand> in = {reads(dy), reads(x), reads(stats)};
    std::vector<Operand> operands = in;
    for (std::size_t i = 1; i <= weights; ++i) operands.push_back(tape.into_parameter(operand(i)));
    work.pass = Pass::wgrad;
    tape.emit(node, "wgrad", Phase::wgrad, work, std::move(operands));
    operands = in;
    operands.push_back(reads(operand(1)));
    operands.push_back(tape.into(x));
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }
  void operator()(const LayerNorm& work) const { norm(work); }
  void operator()(const RmsNorm& work) const { norm(work); }

  void operator()(Attention work) const {
    if (work.kv_apart) {  // the gradient of a ring is that of its merge
      if (tape.layout().context.gathers) gathered_gradient(node, tape);
      return;
    }
    const Slice &qkv = operand(0), &out = operand(1), &lse = operand(2);
    std::vector<Operand> operands = {reads(qkv), reads(out), reads(lse), reads(tape.gradient(out)), tape.into(qkv)};
    for (std::size_t i = 3; i < node.operands.size(); ++i) {
      operands.push_back(node.operands[i]);
      if (tape.graphs().of(operand(i)).kind == ValueKind::parameter)
        operands.push_back(tape.into_parameter(operand(i)));
    }
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  void operator()(const AttentionMerge&) const { ring_gradient(node, tape); }
  void operator()(const PackKv&) const {}
  void operator()(const PointToPoint&) const {}
  // The way back of heads and tokens.
  void operator()(SplitHeads work) const {
    const bool splits = work.pass == Pass::forward;
    const std::string what = node.what.substr(std::string(splits ? "split_" : "join_").size());
    work.pass = splits ? Pass::backward : Pass::forward;
    tape.emit(node, (splits ? "join_d" : "split_d") + what, Phase::dgrad, work,
              {reads(tape.gradient(operand(1))), tape.into(operand(0))});
  }

  // Unfused attention: scores = q · kᵀ, out = P · v. q, k and v are columns of one operand.
  void operator()(const AttentionProduct& work) const {
    const std::int64_t q = work.heads * work.head_dim, kv = work.kv_heads * work.head_dim;
    const auto emit = [&](const char* what, AttentionFactor factor, std::vector<Operand> operands) {
      AttentionProduct product = work;
      product.product = factor;
      tape.emit(node, std::string(what) + ".dgrad", Phase::dgrad, product, std::move(operands));
    };
    const auto columns = [](const Slice& qkv, std::int64_t first, std::int64_t cols) {
      return Slice{qkv.value, qkv.first + first, cols};
    };
    if (work.product == AttentionFactor::context) {
      const Slice &p = operand(0), &qkv = operand(1), dout = tape.gradient(operand(2));
      emit("dv", AttentionFactor::dv, {reads(p), reads(dout), tape.into(columns(qkv, q + kv, kv))});
      emit("dp", AttentionFactor::dp, {reads(dout), reads(qkv), tape.into(p)});
      return;
    }
    const Slice &qkv = operand(0), ds = tape.gradient(operand(1));
    emit("dq", AttentionFactor::dq, {reads(ds), reads(qkv), tape.into(columns(qkv, 0, q))});
    emit("dk", AttentionFactor::dk, {reads(ds), reads(qkv), tape.into(columns(qkv, q, kv))});
  }

  // In place: the gradient of the probabilities becomes that of the scores.
  void operator()(Softmax work) const {
    const Slice &scores = operand(0), &p = operand(1), g = tape.gradient(p);
    tape.set_gradient(scores.value, g.value);
    work.pass = Pass::dgrad;
    work.by_document = false;
    work.heads = 1;
    tape.emit(node, "dgrad", Phase::dgrad, work, {reads(p), adds(g)});
  }

  // In place: positions turn the gradient back.
  void operator()(Rope work) const {
    std::vector<Operand> operands = node.operands;
    operands[0] = adds(tape.gradient(operand(0)));
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  void operator()(const Elementwise& work) const {
    if (work.fn == ElementwiseFn::accumulate) return accumulation();  // a fork has no operands
    const Slice &result = node.result(), &first = operand(0);
    switch (work.fn) {
      case ElementwiseFn::gelu:
      case ElementwiseFn::swiglu: {
        const bool is_gated = work.fn == ElementwiseFn::swiglu;
        std::vector<Operand> operands = {reads(tape.gradient(result)), reads(first)};
        if (is_gated) operands.push_back(reads(operand(1)));
        operands.push_back(tape.into({first.value, first.first, first.cols * (is_gated ? 2 : 1)}));
        tape.emit(node, "dgrad", Phase::dgrad,
                  Elementwise{is_gated ? ElementwiseFn::swiglu_backward : ElementwiseFn::gelu_backward},
                  std::move(operands));
        return;
      }
      case ElementwiseFn::add:
      case ElementwiseFn::bias_add:
        return addition(result);
      case ElementwiseFn::accumulate:
      case ElementwiseFn::gelu_backward:
      case ElementwiseFn::swiglu_backward:
      case ElementwiseFn::column_sum:
        return;
    }
  }
  // The gradient of c = a + b is that of a, which is accumulated in place, and without dropout that of b.
  void addition(const Slice& c) const {
    const Slice dc = tape.gradient(c);
    tape.set_gradient(operand(0).value, dc.value);
    tape.note_written(dc);
    const auto* dropout = std::get_if<Dropout>(&node.work);
    if (dropout == nullptr) tape.set_gradient(operand(1).value, dc.value);
    if (dropout != nullptr ? dropout->bias : std::get<Elementwise>(node.work).fn == ElementwiseFn::bias_add)
      tape.of_late_bias[operand(2).value] = tape.gradient(operand(1));
  }

  // b += a: both have the gradient of the sum. Without operands: a fork.
  void accumulation() const {
    if (node.operands.empty())
      tape.emit(node, "dgrad", Phase::dgrad, node.work, {reads(tape.gradient(node.to)), tape.into(node.from)});
    else
      tape.set_gradient(operand(0).value, tape.gradient(operand(1)).value);
  }

  void operator()(Dropout work) const {
    const bool is_of_attention = work.site == DropoutSite::attention;
    const std::size_t b = work.residual ? 1 : 0, key = b + (work.bias ? 2 : 1);
    const Slice& c = operand(key + 1);
    if (work.residual) addition(c);
    std::vector<Operand> operands = {reads(tape.gradient(c)), reads(operand(is_of_attention ? key + 2 : key)),
                                     tape.into(operand(b))};
    work.pass = Pass::dgrad;
    work.residual = work.bias = false;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  void operator()(LatentHeads work) const {
    const Slice &up = operand(0), &key = operand(1), &q = operand(2), &kv = operand(3);
    std::vector<Operand> operands = {reads(tape.gradient(kv)), adds(tape.gradient(q)), tape.into(up), tape.into(key)};
    operands.insert(operands.end(), node.operands.begin() + 4, node.operands.end());
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  void operator()(const Cast&) const {
    tape.emit(node, "dgrad", Phase::dgrad, Cast{}, {reads(tape.gradient(operand(1))), tape.into(operand(0))});
  }

  void operator()(Embedding work) const {
    const std::size_t tables = work.positions ? 2 : 1;
    std::vector<Operand> operands = {node.operands[0], reads(tape.gradient(operand(1 + tables)))};
    for (std::size_t i = 1; i <= tables; ++i) operands.push_back(tape.into_parameter(operand(i)));
    operands.insert(operands.end(), node.operands.begin() + static_cast<std::ptrdiff_t>(tables) + 2,
                    node.operands.end());
    work.pass = Pass::wgrad;
    tape.emit(node, "wgrad", Phase::wgrad, work, std::move(operands));
  }

  // Forward leaves the gradient in the logits.
  void operator()(const CrossEntropy&) const { tape.set_gradient(operand(0).value, operand(0).value); }
  void operator()(const VocabStats&) const {}

  void operator()(const Collective& work) const {
    const bool is_of_integers = !node.operands.empty() && tape.graphs().of(node.result()).kind == ValueKind::integers;
    if (is_of_integers) return;
    if (work.kind == CollectiveKind::all_to_all) return swap_back(work);
    if (work.kind == CollectiveKind::dispatch || work.kind == CollectiveKind::combine) return move_back(work);
    switch (node.move) {
      case Move::leave:
        return gather_gradient();
      case Move::enter:
        return sum_gradient();
      case Move::none:
      case Move::sum:
      case Move::gather:
        return;
    }
  }
  void swap_back(const Collective& work) const {
    const std::string what = node.what.substr(std::string("all_to_all_").size());
    tape.emit(node, "all_to_all_d" + what, Phase::dgrad, work,
              {reads(tape.gradient(operand(1))), tape.into(operand(0))})
        .ranks = node.ranks;
  }
  // The gradient of a term is that of the sum; a rank may have only its rows of it.
  void gather_gradient() const {
    if (node.from == node.to) return;
    const Slice dy = tape.gradient(node.to);
    const Value& terms = tape.graphs().of(node.from);
    Value all = tape.graphs().of(dy);
    all.is_gathered = node.ranks == Ranks::tensor;
    all.name = all.is_gathered ? "gathered" : terms.gradient;
    all.rows = terms.rows;
    all.role = TensorRole::none;
    all.kind = ValueKind::activation;
    all.given = Given::none;
    all.is_whole = true;
    all.gradient_of = node.from.value;
    const Slice whole = tape.graphs().whole(tape.graphs().add(std::move(all)));
    tape.set_gradient(node.from.value, whole.value);
    // A lookup has a gradient only for its table.
    const auto producer = std::find_if(tape.graphs().forward.begin(), tape.graphs().forward.end(), [&](const Node& n) {
      return n.id != node.id && n.writes_value(node.from.value);
    });
    const bool is_of_weights = std::holds_alternative<Embedding>(producer->work);
    Node& gather = tape.emit(node, is_of_weights ? "all_gather_wgrad" : "all_gather_dgrad",
                             is_of_weights ? Phase::wgrad : Phase::dgrad,
                             Collective{.kind = CollectiveKind::all_gather}, {reads(dy), writes(whole)});
    gather.move = Move::gather;
    gather.ranks = node.ranks;
  }
  // The sum comes right after the last of its terms: weight gradients do not hold it up.
  void sum_gradient() const {
    const Slice terms = tape.gradient(node.to);
    Node sum = tape.node(node, "dgrad.all_reduce", Phase::dgrad, Collective{.kind = CollectiveKind::all_reduce},
                         {adds(terms)});
    const bool is_alias = node.from != node.to && tape.graphs().of(node.to).alias_of.has_value();
    if (is_alias) {  // its gradient is no part of the other's, and is copied there
      Node copy = tape.node(node, "dgrad", Phase::dgrad, Cast{}, {reads(terms), tape.into(node.from)});
      tape.insert_after_writer(terms.value, std::move(copy));
    } else if (node.from != node.to) {
      sum.what = tape.graphs().of(node.from).kind == ValueKind::statistics ? "reduce_scatter" : "dgrad.reduce_scatter";
      sum.work = Collective{.kind = CollectiveKind::reduce_scatter};
      sum.operands = {reads(terms), tape.into(node.from)};
    }
    sum.move = Move::sum;
    sum.ranks = node.ranks;
    tape.insert_after_writer(terms.value, std::move(sum));
  }

  // ---- experts ----

  // "permute.dgrad" of "permute.fprop"
  std::string dgrad(const std::string& what) const {
    return what.substr(0, what.size() - std::string("fprop").size()) + "dgrad";
  }
  static Pass flipped(Pass pass) { return pass == Pass::forward ? Pass::backward : Pass::forward; }

  void operator()(Route work) const {
    const Slice &logits = operand(0), &indices = operand(node.operands.size() - 2), &p = node.result();
    work.pass = Pass::dgrad;
    // The mean over the tokens of the global batch.
    work.z_scale = tape.layout().model.experts.moe_z_loss_coeff * tape.layout().loss_scale;
    tape.emit(node, dgrad(node.what), Phase::dgrad, work,
              {reads(logits), reads(indices), reads(tape.gradient(p)), tape.into(logits)});
  }

  // Switch Transformer's loss coeff · E/(topk·n²) · Σ_e (Σ_t p[t,e]) · count[e] of the n tokens of a micro-batch, of
  // each sequence, or of a micro-batch in all replicas; the mean of them all counts. Megatron-LM's global_aux_loss has
  // this loss divided by the number of replicas: each divides by n, and gradients are averaged once more.
  void operator()(BalanceLoss work) const {
    const Layout& layout = tape.layout();
    const Experts& experts = layout.model.experts;
    const Slice &logits = operand(0), &counts = operand(1);
    const bool balances_replicas = experts.balances_replicas();
    if (balances_replicas) {  // a tally is of the backward passes, which recomputation does not repeat
      if (layout.experts.sums_balance)
        tape.emit(node, "count.all_reduce", Phase::dgrad, Collective{.kind = CollectiveKind::all_reduce},
                  {adds(counts)})
            .ranks = Ranks::balance;
      Value tally = tape.graphs().of(counts);
      tally.name = node.base + ".tally";
      tally.kind = ValueKind::parameter;
      tally.is_gradient = true;
      tape.emit(node, "mean_counts", Phase::dgrad, MeanCounts{work.experts},
                {adds(counts), adds(tape.graphs().whole(tape.graphs().add(std::move(tally))))});
    }
    const double of_micro_batch = double(layout.data.micro_batch_size * layout.model.seq_length),
                 of_replicas = 1 / (layout.loss_scale * double(layout.micro_batches)),
                 n = experts.moe_router_load_balancing_type == LoadBalancing::seq_aux_loss
                         ? double(layout.model.seq_length)
                     : balances_replicas ? of_replicas
                                         : of_micro_batch;
    work.pass = Pass::dgrad;
    work.scale = experts.moe_aux_loss_coeff * double(work.experts) / (double(work.topk) * n) * layout.loss_scale;
    tape.emit(node, dgrad(node.what), Phase::dgrad, work, {reads(logits), reads(counts), adds(tape.gradient(logits))});
  }

  // Loads are counted in the backward pass, which recomputation does not repeat.
  void operator()(const CountLoads& work) const {
    tape.emit(node, node.what, Phase::wgrad, work, {reads(node.from), tape.into_parameter(node.to)});
  }
  void operator()(const SortTokens&) const {}
  void operator()(const CountRows&) const {}

  // Copies of tokens, or the sum of copies: positions R, from R, to W.
  void operator()(Permute work) const {
    work.pass = flipped(work.pass);
    const Slice &from = operand(1), &to = operand(2);
    tape.emit(node, dgrad(node.what), Phase::dgrad, work,
              {node.operands[0], reads(tape.gradient(to)), tape.into(from)});
  }
  void operator()(SortByExpert work) const {
    std::vector<Operand> operands = node.operands;
    const std::size_t from = operands.size() - 2, to = operands.size() - 1;
    operands[from] = reads(tape.gradient(operand(to)));
    operands[to] = tape.into(operand(from));
    work.pass = flipped(work.pass);
    tape.emit(node, work.pass == Pass::forward ? "sort_by_expert.dgrad" : "sort_by_rank.dgrad", Phase::dgrad, work,
              std::move(operands));
  }
  void move_back(Collective work) const {
    std::vector<Operand> operands = node.operands;
    operands.front() = reads(tape.gradient(node.result()));
    operands.back() = tape.into(operand(0));
    const bool combines = work.kind == CollectiveKind::dispatch;
    work.kind = combines ? CollectiveKind::combine : CollectiveKind::dispatch;
    tape.emit(node, combines ? "combine.dgrad" : "dispatch.dgrad", Phase::dgrad, work, std::move(operands)).ranks =
        node.ranks;
  }

  void operator()(GroupedGemm work) const {
    const Slice &a = operand(0), &w = operand(1), dy = tape.gradient(node.result());
    const std::vector<Operand> offsets(node.operands.begin() + 2, node.operands.end() - 1);
    const auto emit = [&](const char* what, Phase phase, std::vector<Operand> operands,
                          const Operand& result) -> Node& {
      operands.insert(operands.end(), offsets.begin(), offsets.end());
      operands.push_back(result);
      return tape.emit(node, what, phase, work, std::move(operands));
    };
    work.pass = Pass::dgrad;
    emit("dgrad", Phase::dgrad, {reads(dy), reads(w)}, tape.into(a));
    work.pass = Pass::wgrad;
    emit("wgrad", Phase::wgrad, {reads(dy), reads(a)}, tape.into_parameter(w)).is_deferrable = node.is_deferrable;
  }

  // (offsets R), x R, probabilities R, y W
  void operator()(WeightedActivation work) const {
    const std::size_t x = node.operands.size() - 3;
    std::vector<Operand> operands(node.operands.begin(), node.operands.begin() + static_cast<std::ptrdiff_t>(x));
    operands.insert(operands.end(), {reads(tape.gradient(node.result())), reads(operand(x)), reads(operand(x + 1)),
                                     tape.into(operand(x)), tape.into(operand(x + 1))});
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  void operator()(GateRows work) const {
    const Slice &x = operand(0), &gate = operand(1);
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work,
              {reads(tape.gradient(operand(2))), reads(x), reads(gate), tape.into(x), tape.into(gate)});
  }

  // ---- linear attention ----

  // x R, weight R, (bias R), y W
  void operator()(ShortConv work) const {
    const Slice &x = operand(0), dy = tape.gradient(node.result());
    const std::vector<Operand> weights(node.operands.begin() + 1, node.operands.end() - 1);
    std::vector<Operand> operands = {reads(dy), reads(x)};
    operands.insert(operands.end(), weights.begin(), weights.end());
    std::vector<Operand> of_weights = operands;
    for (const Operand& weight : weights) of_weights.push_back(tape.into_parameter(weight.slice));
    work.pass = Pass::wgrad;
    tape.emit(node, "wgrad", Phase::wgrad, work, std::move(of_weights));
    operands.push_back(tape.into(x));
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  // (raw_rate R), raw_decay R, a_log R, dt_bias R, rate W, decay W
  void operator()(LinearGates work) const {
    const std::size_t decay = work.own_rate ? 1 : 0;
    std::vector<Operand> operands = {reads(tape.gradient(operand(decay + 3))),
                                     reads(tape.gradient(operand(decay + 4)))};
    std::vector<Operand> of_weights = operands;
    operands.insert(operands.end(), node.operands.begin(), node.operands.begin() + 3 + std::ptrdiff_t(decay));
    of_weights.insert(of_weights.end(), node.operands.begin() + std::ptrdiff_t(decay),
                      node.operands.begin() + 3 + std::ptrdiff_t(decay));
    for (const std::size_t weight : {decay + 1, decay + 2}) of_weights.push_back(tape.into_parameter(operand(weight)));
    work.pass = Pass::wgrad;
    tape.emit(node, "wgrad", Phase::wgrad, work, std::move(of_weights));
    for (std::size_t raw = 0; raw <= decay; ++raw) operands.push_back(tape.into(operand(raw)));
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  // q R, k R, v R, rate R, decay R, (skip R), o W
  void operator()(LinearAttention work) const {
    const Slice d_out = tape.gradient(node.result());
    if (work.skip) {
      work.pass = Pass::wgrad;
      tape.emit(node, "wgrad", Phase::wgrad, work, {reads(operand(2)), reads(d_out), tape.into_parameter(operand(5))});
    }
    std::vector<Operand> operands(node.operands.begin(), node.operands.end() - 1);
    operands.push_back(reads(d_out));
    for (std::size_t i = 0; i < 5; ++i) operands.push_back(tape.into(operand(i)));
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work, std::move(operands));
  }

  // x R, z R, weight R, y W
  void operator()(GatedNorm work) const {
    const Slice dy = tape.gradient(node.result());
    work.pass = Pass::wgrad;
    tape.emit(node, "wgrad", Phase::wgrad, work,
              {reads(dy), reads(operand(0)), reads(operand(1)), tape.into_parameter(operand(2))});
    work.pass = Pass::dgrad;
    tape.emit(node, "dgrad", Phase::dgrad, work,
              {reads(dy), reads(operand(0)), reads(operand(1)), reads(operand(2)), tape.into(operand(0)),
               tape.into(operand(1))});
  }

  template <WithoutAdjoint W>
  void operator()(const W&) const {}
};

// The reverse of the forward order, but branches one after the other, each in reverse, and bundles in their own order.
std::vector<std::size_t> backward_order(const std::vector<Node>& forward) {
  std::vector<std::size_t> order;
  for (std::size_t end = forward.size(); end > 0;) {
    std::size_t begin = end - 1;
    if (const std::uint8_t bundle = forward[begin].bundle; bundle > 0) {
      while (begin > 0 && forward[begin - 1].bundle == bundle) --begin;
      for (std::size_t i = begin; i < end; ++i) order.push_back(i);
      end = begin;
      continue;
    }
    if (forward[begin].branch > 0)
      while (begin > 0 && forward[begin - 1].branch > 0) --begin;
    std::vector<std::size_t> group;
    for (std::size_t i = end; i-- > begin;) group.push_back(i);
    std::stable_sort(group.begin(), group.end(),
                     [&](std::size_t a, std::size_t b) { return forward[a].branch < forward[b].branch; });
    order.insert(order.end(), group.begin(), group.end());
    end = begin;
  }
  return order;
}

}  // namespace

void differentiate(LayerGraphs& graphs, const Layout& layout) {
  Tape tape(graphs, layout);
  for (const std::size_t i : backward_order(graphs.forward)) {
    const Node& node = graphs.forward[i];
    std::visit(Adjoint{node, tape}, node.work);
  }
  for (std::vector<Node>* nodes : {&graphs.forward, &graphs.backward})
    for (Node& node : *nodes)
      for (Operand& operand : node.operands)
        if (const std::optional<Slice> of = graphs.of(operand.slice).alias_of; of) operand.slice = *of;
}

}  // namespace stretto::passes
