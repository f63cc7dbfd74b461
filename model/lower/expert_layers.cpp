#include "model/lower/expert_layers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/lower/quantised_linears.hpp"

namespace stretto {

namespace {

// Returns the rows that an expert has of `tokens` with padding, or 0 without (get_capacity() of Megatron-LM).
std::int64_t rows_of_each(const BlockShape& shape, std::int64_t tokens) {
  const Experts& experts = shape.model.experts;
  return static_cast<std::int64_t>(
      std::ceil(double(tokens * experts.moe_router_topk) / double(experts.num_moe_experts) * shape.expert_capacity));
}

}  // namespace

ExpertLayers::ExpertLayers(Schedule& schedule, BlockWriter& writer, const BlockShape& shape,
                           const std::vector<bool>& layers)
    : schedule_(schedule),
      w_(writer),
      shape_(shape),
      model_(shape.model.experts),
      layers_(layers),
      experts_(model_.num_moe_experts),
      topk_(model_.moe_router_topk),
      hidden_(shape.model.hidden_size),
      local_(shape.local_experts),
      tokens_(writer.residual_rows() * (gathers() ? gathering().size : 1)),
      each_(rows_of_each(shape, writer.residual_rows()) * (tokens_ / writer.residual_rows())),
      rows_(pads()        ? (sorts_own() ? local_ : experts_) * each_
            : sorts_own() ? tokens_ * topk_ * local_ / experts_
                          : tokens_ * topk_),
      capacity_(room()) {
  add_experts();
  if (model_.has_shared()) add_shared();
}

TensorId ExpertLayers::kept(const std::string& name, std::int64_t rows, std::int64_t cols,
                            BlockWriter::Role role) const {
  role.layers = layers_;
  role.is_again = role.is_again || repeats_all();
  return w_.recomputable(name, rows, cols, shape_.model.num_layers, std::move(role));
}

TensorId ExpertLayers::workspace(const std::string& name, std::int64_t rows, std::int64_t cols, Dtype dtype) const {
  return add_tensor(schedule_, name, dtype, BufferKind::workspace, rows, cols);
}

// Returns the rows of buffers for the rows of a rank's experts: what the key leaves room for, and at most as many as
// may come, when all ranks' tokens go to these experts.
std::int64_t ExpertLayers::room() const {
  if (!varies()) return rows_;
  const std::int64_t most = shape_.ep.size * tokens_ * std::min(topk_, local_);
  if (in_slots()) {
    const double mean = double(rows_) / double(slots());
    return slots() * std::min(most / slots(), static_cast<std::int64_t>(std::ceil(mean * shape_.rank_capacity)));
  }
  if (shape_.rank_capacity == 0) return most;
  return std::min(most, static_cast<std::int64_t>(std::ceil(double(rows_) * shape_.rank_capacity)));
}

// The rank's experts get rows_ of the capacity_ rows when all experts have equally many.
void ExpertLayers::leave_room(TensorId tensor) {
  if (!varies()) return;
  for (const TensorId of_pass : {tensor, w_.in_backward(tensor)})
    for (const TensorPlace& place : schedule_.tensors[of_pass].places)
      schedule_.storages[place.storage].filled = rows_ * schedule_.tensors[tensor].cols;
}

void ExpertLayers::add_experts() {
  const std::int64_t part = w_.residual_rows();
  const Dtype wide = w_.statistics_type();
  const BlockWriter::Role statistics{.is_statistics = true}, integers{.is_mask = true};
  mlp_.width = shape_.model.expert_size() / shape_.expert_tp;
  mlp_.fc1 = shape_.model.rows_of_fc1(mlp_.width);
  logits_ = kept("router.out", part, experts_, statistics);
  indices_ = kept("router.indices", part, topk_, integers);
  if (model_.has_balance_loss())
    counts_ = kept("router.counts", balance(Pass::forward).sequences, experts_, statistics);
  if (!pads()) offsets_ = kept("experts.offsets", slots(), local_ + 1, integers);
  positions_ = kept("experts.positions", slots() * tokens_, topk_, integers);
  // Codes are kept in place of what they were made of.
  const std::vector<bool> passing = shape_.low.is_on() ? shape_.in_codes : std::vector<bool>{};
  if (!sends_codes(Phase::forward))
    sorted_ = kept("experts.in", capacity_, hidden_, {.passing = passing, .role = TensorRole::experts_in});
  weights_ = kept("experts.weights", capacity_, 1, statistics);
  mlp_.fc1_out = kept("experts.fc1.out", capacity_, mlp_.fc1, {.role = TensorRole::experts_fc1_out});
  const bool act_again = shape_.recompute.repeats(Recompute::Module::moe_act);
  mlp_.act = kept(
      "experts.act", capacity_, mlp_.width,
      {.is_again = act_again, .passing = act_again ? std::vector<bool>{} : passing, .role = TensorRole::experts_act});
  probabilities_ = workspace("router.probabilities", part, topk_, wide);
  if (gathers()) {
    all_indices_ = workspace("router.all_indices", tokens_, topk_, Dtype::i32);
    all_probabilities_ = workspace("router.all_probabilities", tokens_, topk_, wide);
  }
  if (shape_.expert_tokens.exists()) all_tokens_ = d_all_tokens_ = w_.workspace("experts.tokens", tokens_, hidden_);
  fc2_out_ = w_.workspace("experts.fc2.out", capacity_, hidden_);
  sum_ = d_sum_ = w_.workspace("experts.sum", tokens_, hidden_);
  if (shape_.expert_tokens.exists() && shape_.pairs_passes) {
    d_all_tokens_ = w_.workspace("d_experts.tokens", tokens_, hidden_);
    d_sum_ = w_.workspace("d_experts.sum", tokens_, hidden_);
  }
  if (gathers()) part_ = w_.workspace("experts.part", part, hidden_);
  const bool sends_gradients = sends_codes(Phase::dgrad);
  // Its shape is that of fc1's input alone, which fc1's weight gradient reads.
  d_sorted_ = shape_.weights_in_units && !sends_gradients
                  ? kept("d_experts.in", capacity_, hidden_, {.passing = passing})
                  : w_.workspace("d_experts.in", capacity_, hidden_);
  d_in_ = weights_come_late() && !sends_gradients ? w_.workspace("d_experts.fc1.in", capacity_, hidden_) : d_sorted_;
  mlp_.d_act = w_.workspace("d_experts.act", capacity_, mlp_.width);
  mlp_.d_fc1 = w_.output_gradient("d_experts.fc1", mlp_.fc1_out, layers_);
  d_weights_ = workspace("d_experts.weights", capacity_, 1, wide);
  d_all_probabilities_ = workspace("d_router.all_probabilities", tokens_, topk_, wide);
  if (gathers()) d_probabilities_ = workspace("d_router.probabilities", part, topk_, wide);
  d_logits_ = workspace("d_router", part, experts_, wide);
  d_router_ = wide == schedule_.compute_dtype ? d_logits_ : w_.workspace("d_router.rounded", part, experts_);
  for (const TensorId tensor :
       {weights_, mlp_.fc1_out, mlp_.act, fc2_out_, d_sorted_, d_in_, mlp_.d_act, mlp_.d_fc1, d_weights_})
    leave_room(tensor);
  if (!sends_codes(Phase::forward)) leave_room(sorted_);
  if (!exchanges()) return;
  if (in_slots()) {
    all_offsets_ = workspace("experts.all_offsets", slots(), local_ + 1, Dtype::i32);
    own_offsets_ = workspace("experts.own_offsets", slots(), local_ + 1, Dtype::i32);
  } else if (!pads()) {
    all_offsets_ = kept("experts.all_offsets", shape_.ep.size, experts_ + 1, integers);
    own_offsets_ = workspace("experts.own_offsets", 1, experts_ + 1, Dtype::i32);
  }
  for (const auto& [prefix, way] : {std::pair{"experts.", &way_}, {"d_experts.", &d_way_}}) {
    const std::string name = prefix;
    way->sent = w_.workspace(name + "sent", in_slots() ? capacity_ : rows_, hidden_);
    way->sent_weights = workspace(name + "sent_weights", in_slots() ? capacity_ : rows_, 1, wide);
    if (in_slots()) {
      leave_room(way->sent);
      leave_room(way->sent_weights);
    }
    if (local_ == 1 || in_slots()) continue;
    way->received = w_.workspace(name + "received", capacity_, hidden_);
    way->received_weights = workspace(name + "received_weights", capacity_, 1, wide);
    leave_room(way->received);
    leave_room(way->received_weights);
  }
  add_codes_on_the_way("experts.", Phase::forward);
  add_codes_on_the_way("d_experts.", Phase::dgrad);
}

void ExpertLayers::add_codes_on_the_way(const char* prefix, Phase phase) {
  if (!sends_codes(phase)) return;
  OnTheWay& way = phase == Phase::forward ? way_ : d_way_;
  if (phase != Phase::forward && sends_codes(Phase::forward) && !shape_.pairs_passes) {  // one pass after the other
    way.codes = way_.codes;
    way.sent_codes = way_.sent_codes;
    way.sorted_codes = way_.sorted_codes;
    way.received_codes = way_.received_codes;
    return;
  }
  const auto codes = [&](const char* name, std::int64_t rows) {
    return workspace(std::string(prefix) + name + ".codes", rows, code_cols(), Dtype::e4m3);
  };
  way.codes = codes("tokens", tokens_);
  way.sent_codes = codes("sent", rows_);
  way.sorted_codes = codes("in", capacity_);
  leave_room(way.sorted_codes);
  if (local_ == 1) return;
  way.received_codes = codes("received", capacity_);
  leave_room(way.received_codes);
}

View ExpertLayers::codes_to_send(const char* layer, Phase phase, const View& tokens) {
  const bool is_forward = phase == Phase::forward;
  const View codes = w_.work((is_forward ? way_ : d_way_).codes);
  const Quantise work{.rows = tokens.rows,
                      .cols = hidden_,
                      .format = Dtype::e4m3,
                      .scaling = Scaling::mx,
                      .layer = is_forward ? QuantisedLayer::experts_fc1 : QuantisedLayer::experts_fc2};
  w_.op(std::string(layer) + (is_forward ? ".quantise_sent_x" : ".quantise_sent_dy"), phase, work,
        {read(tokens), write(codes)});
  return codes;
}

View ExpertLayers::gathered(const std::string& name, const View& part, TensorId whole) {
  if (!gathers()) return part;
  const View all = w_.work(whole);
  w_.communicate(name, Phase::forward, gathering(), CollectiveKind::all_gather, all.rows * all.cols,
                 {read(part), write(all)});
  return all;
}

View ExpertLayers::gathered_tokens(const std::string& name, Phase phase, const View& part) {
  if (!shape_.expert_tokens.exists()) return gathers() ? w_.gathered(name, phase, part) : part;
  const View all = w_.work(phase == Phase::forward ? all_tokens_ : d_all_tokens_);
  w_.communicate(name, phase, shape_.expert_tokens, CollectiveKind::all_gather, all.rows * all.cols,
                 {read(part), write(all)});
  return all;
}

View ExpertLayers::summed(const std::string& name, Phase phase, const View& all, const View& part) {
  if (!shape_.expert_tokens.exists()) return gathers() || !cuts_tokens() ? w_.summed(name, phase, all, part) : all;
  w_.communicate(name + ".reduce_scatter", phase, shape_.expert_tokens, CollectiveKind::reduce_scatter,
                 all.rows * all.cols, {read(all), write(part)});
  return part;
}

View ExpertLayers::pass_forward(const View& x, bool is_again) {
  View shared = x;
  if (model_.has_shared() && !shared_is_beside()) {
    shared_up(x);
    shared = shared_down(x, is_again);
  }
  w_.set_module(Module::router);
  const std::int64_t part = w_.residual_rows();
  const View logits = of_layer(logits_), indices = of_layer(indices_), probabilities = w_.work(probabilities_);
  w_.op("router.fprop", Phase::forward, Gemm{part, experts_, hidden_, false, true, false},
        {read(x), read(weight("router.weight")), write(logits)});
  std::vector<Access> routed = {read(logits), write(indices), write(probabilities)};
  if (model_.moe_router_enable_expert_bias) routed.insert(routed.begin() + 1, read(weight("router.bias")));
  w_.op("router.route.fprop", Phase::forward, route(Pass::forward), std::move(routed));
  if (model_.has_balance_loss()) {
    const View counts = of_layer(counts_);
    w_.op("router.count.fprop", Phase::forward, balance(Pass::forward), {read(logits), write(counts)});
    if (!model_.balances_replicas()) share_counts(Phase::forward);
  }

  const View all_indices = gathered("router.indices.all_gather", indices, all_indices_),
             all_probabilities = gathered("router.probabilities.all_gather", probabilities, all_probabilities_);
  w_.set_module(Module::experts);
  const bool in_codes = sends_codes(Phase::forward);
  const View positions = of_layer(positions_), sorted = in_codes ? w_.work(way_.sorted_codes) : of_layer(sorted_),
             weights = of_layer(weights_), fc1 = of_layer(mlp_.fc1_out), act = of_layer(mlp_.act);
  sort_tokens(all_indices, positions);
  const View numbers = gathered_tokens("experts.all_gather", Phase::forward, x),
             tokens = in_codes ? codes_to_send("experts.fc1", Phase::forward, numbers) : numbers;
  const View rows = in_codes      ? w_.work(way_.sent_codes)
                    : exchanges() ? w_.work(way_.sent)
                                  : sorted,
             of_rows = exchanges() ? w_.work(way_.sent_weights) : weights;
  permute_rows("experts.permute.fprop", Phase::forward, Pass::forward, false, tokens, rows);
  permute_rows("experts.permute_weights.fprop", Phase::forward, Pass::forward, true, all_probabilities, of_rows);
  dispatch(Phase::forward,
           {{"experts", rows, came(in_codes ? way_.received_codes : way_.received, sorted), sorted},
            {"experts.weights", of_rows, came(way_.received_weights, weights), weights}},
           [&] {
             if (shared_is_beside()) shared_up(x);
           });

  multiply("experts.fc1", Pass::forward, mlp_.fc1, hidden_, sorted, fc1);
  activate("experts.act.fprop", Pass::forward, {read(fc1), read(weights), write(act)});
  if (is_again && !shape_.recompute.whole_layers) {
    // Weight gradients of fc2 need the codes of its input.
    if (w_.in_codes()) w_.codes().quantise_rows("experts.fc2", act, offsets());
    if (shared_is_beside()) shared_down(x, is_again);
    return x;
  }
  const View results = w_.work(fc2_out_);
  multiply("experts.fc2", Pass::forward, hidden_, mlp_.width, act, results);
  const View back = exchanges() ? w_.work(way_.sent) : results;
  combine(Phase::forward, {{"experts", back, came(way_.received, results), results}});
  if (shared_is_beside()) shared = shared_down(x, is_again);
  permute_rows("experts.unpermute.fprop", Phase::forward, Pass::backward, false, w_.work(sum_), back);
  const View out = summed("experts", Phase::forward, w_.work(sum_), w_.work(gathers() ? part_ : sum_));
  const BlockWriter::Within addition(w_, Module::shared_experts);
  if (model_.has_shared())
    w_.op("shared.add.fprop", Phase::forward, Elementwise{ElementwiseFn::accumulate, part, hidden_},
          {read(shared), accumulate(out)});
  return out;
}

// Sorts copies by expert, and says where rows of this rank's experts begin.
void ExpertLayers::sort_tokens(const View& indices, const View& positions) {
  const BlockWriter::Within sort(w_, Module::token_sort);
  SortTokens work{tokens_, topk_, experts_, each_};
  if (sorts_own()) {
    work.local = local_;
    work.capacity = varies() ? capacity_ : 0;
    work.first = shape_.first_expert;
  }
  if (pads()) {
    w_.op("experts.sort.fprop", Phase::forward, work, {read(indices), write(positions)});
    return;
  }
  if (in_slots()) return sort_into_slots(indices, positions);
  const View offsets = of_layer(offsets_), own_offsets = exchanges() ? w_.work(own_offsets_) : offsets;
  w_.op("experts.sort.fprop", Phase::forward, work, {read(indices), write(own_offsets), write(positions)});
  if (!exchanges()) return;
  const View all = of_layer(all_offsets_);
  w_.communicate("experts.offsets.all_gather", Phase::forward, shape_.ep_counts, CollectiveKind::all_gather,
                 all.rows * all.cols, {read(own_offsets), write(all)});
  w_.op("experts.count.fprop", Phase::forward,
        CountRows{shape_.ep.size, experts_, local_, capacity_, shape_.first_expert}, {read(all), write(offsets)});
}

View ExpertLayers::slot_of(View all, const Expr& rank) const {
  const std::int64_t rows = all.rows / slots();
  all.offset = all.offset + rank * Expr(rows * all.ld);
  all.rows = rows;
  return all;
}

// The copies that go to each rank are sorted by themselves, and ranks exchange how many rows of each expert slots have.
void ExpertLayers::sort_into_slots(const View& indices, const View& positions) {
  const View own = w_.work(own_offsets_), all = w_.work(all_offsets_);
  for (std::int64_t i = 0; i < slots(); ++i) {
    const Expr rank = rank_after(i);
    w_.op(slot_name("experts.sort.fprop", i), Phase::forward,
          SortTokens{tokens_, topk_, experts_, 0, local_, slot_room(), rank * Expr(local_)},
          {read(indices), write(slot_of(own, rank)), write(slot_of(positions, rank))});
  }
  w_.communicate("experts.offsets.all_to_all", Phase::forward, shape_.ep_counts, CollectiveKind::all_to_all,
                 all.rows * all.cols, {read(own), write(all)});
  for (std::int64_t i = 0; i < slots(); ++i) {
    const Expr rank = rank_after(-i);
    w_.op(slot_name("experts.count.fprop", i), Phase::forward, CountRows{1, local_, local_, slot_room(), 0},
          {read(slot_of(all, rank)), write(slot_of(of_layer(offsets_), rank))});
  }
}

void ExpertLayers::permute_rows(const std::string& name, Phase phase, Pass pass, bool apart, const View& x,
                                const View& rows) {
  const auto accesses = [&](const View& positions, const View& part, bool is_first) {
    if (pass == Pass::forward) return std::vector<Access>{read(positions), read(x), write(part)};
    return std::vector<Access>{read(positions), read(part), is_first ? write(x) : accumulate(x)};
  };
  // The rows that come back are added up after the last exchange.
  const bool is_of_results = (pass == Pass::forward) != (phase == Phase::forward);
  const BlockWriter::Within part(w_, is_of_results && !apart ? Module::experts : Module::token_sort);
  const View positions = of_layer(positions_);
  Permute work = permute(pass, rows.cols, apart);
  if (!in_slots()) return w_.op(name, phase, work, accesses(positions, rows, true));
  work.rows = slot_mean();
  work.capacity = slot_room();
  for (std::int64_t i = 0; i < slots(); ++i)
    w_.op(slot_name(name, i), phase, work,
          accesses(slot_of(positions, rank_after(i)), slot_of(rows, rank_after(i)), i == 0));
}

Permute ExpertLayers::permute(Pass pass, std::int64_t cols, bool apart) const {
  Permute work{pass, tokens_, topk_, cols, apart, transport() != TokenTransport::nccl};
  if (pads() || sorts_own()) {
    work.rows = rows_;
    work.capacity = varies() ? capacity_ : 0;
    work.padded = pads();
  }
  return work;
}

std::vector<Access> ExpertLayers::of_product(const View& a, const View& b) const {
  std::vector<Access> reads = {read(a), read(b)};
  if (!pads()) reads.push_back(read(of_layer(offsets_)));
  return reads;
}

GroupedGemm ExpertLayers::product_of_slot(Pass pass, std::int64_t n, std::int64_t k) const {
  return {pass, local_, slot_mean(), n, k, slot_room()};
}

void ExpertLayers::multiply(const std::string& name, Pass pass, std::int64_t n, std::int64_t k, const View& a,
                            const View& c) {
  const bool is_forward = pass == Pass::forward;
  if (w_.in_codes())
    return is_forward ? w_.codes().grouped_forward(name, a, offsets(), c)
                      : w_.codes().grouped_dgrad(name, a, offsets(), c);
  const std::string label = w_.label(name) + (is_forward ? ".fprop" : ".dgrad");
  const Phase phase = is_forward ? Phase::forward : Phase::dgrad;
  const View of_weights = w_.parameter(name + ".weight", Coord::layer);
  if (in_slots()) {
    for (std::int64_t i = 0; i < slots(); ++i) {
      const Expr from = rank_after(-i);
      w_.op(
          slot_name(label, i), phase, product_of_slot(pass, n, k),
          {read(slot_of(a, from)), read(of_weights), read(slot_of(of_layer(offsets_), from)), write(slot_of(c, from))});
    }
    return;
  }
  std::vector<Access> accesses = of_product(a, of_weights);
  accesses.push_back(write(c));
  w_.op(label, phase, product(pass, n, k), std::move(accesses));
}

void ExpertLayers::weight_gradient(const std::string& name, std::int64_t n, std::int64_t k, const View& dy,
                                   const View& x) {
  if (w_.in_codes()) return w_.codes().grouped_wgrad(name, offsets());
  if (in_slots()) {
    for (std::int64_t i = 0; i < slots(); ++i) {
      const Expr from = rank_after(-i);
      w_.weight_gradient(slot_name(w_.label(name) + ".wgrad", i), product_of_slot(Pass::wgrad, n, k),
                         {read(slot_of(dy, from)), read(slot_of(x, from)), read(slot_of(of_layer(offsets_), from))},
                         name + ".weight");
    }
    return;
  }
  w_.weight_gradient(w_.label(name) + ".wgrad", product(Pass::wgrad, n, k), of_product(dy, x), name + ".weight");
}

void ExpertLayers::activate(const std::string& name, Pass pass, std::vector<Access> accesses) {
  WeightedActivation work{pass, rows_, mlp_.width, shape_.model.swiglu};
  const Phase phase = pass == Pass::forward ? Phase::forward : Phase::dgrad;
  if (in_slots()) {
    work = {pass, slot_mean(), mlp_.width, shape_.model.swiglu, local_, slot_room()};
    accesses.insert(accesses.begin(), read(of_layer(offsets_)));
    for (std::int64_t i = 0; i < slots(); ++i) {
      std::vector<Access> of_slot = accesses;
      for (Access& access : of_slot) access.view = slot_of(access.view, rank_after(-i));
      w_.op(slot_name(name, i), phase, work, std::move(of_slot));
    }
    return;
  }
  if (varies()) {
    work.groups = local_;
    work.capacity = capacity_;
    accesses.insert(accesses.begin(), read(of_layer(offsets_)));
  }
  w_.op(name, phase, work, std::move(accesses));
}

SortByExpert ExpertLayers::sort(Pass pass, std::int64_t cols) const {
  return {pass,
          shape_.ep.size,
          experts_,
          local_,
          rows_,
          capacity_,
          cols,
          shape_.first_expert,
          transport() != TokenTransport::nccl,
          each_};
}

// `from` and `to`, with the offsets of all ranks' rows where data says how much goes where.
std::vector<Access> ExpertLayers::with_offsets(const View& from, const View& to, bool first) const {
  std::vector<Access> accesses = {read(from), write(to)};
  if (!pads() && !in_slots()) accesses.insert(accesses.begin() + (first ? 0 : 1), read(of_layer(all_offsets_)));
  return accesses;
}

void ExpertLayers::exchange(const std::string& name, Phase phase, CollectiveKind kind, const View& from,
                            const View& to) {
  Operation operation = collective_operation(name, shape_.ep, kind, (in_slots() ? capacity_ : rows_) * from.cols, phase,
                                             with_offsets(from, to, false));
  auto& collective = std::get<Collective>(operation.work);
  if (!pads() && !in_slots()) collective.experts = experts_;
  collective.cols = from.cols;
  collective.capacity = capacity_ * from.cols;
  collective.copies = topk_;
  w_.communicate(std::move(operation));
}

void ExpertLayers::dispatch(Phase phase, const std::vector<Exchanged>& all, const std::function<void()>& beside) {
  if (!exchanges()) return;
  const char* pass = phase == Phase::forward ? ".fprop" : ".dgrad";
  for (const Exchanged& one : all) {
    exchange(one.name + ".dispatch" + pass, phase, CollectiveKind::dispatch, one.rows, one.came);
    if (&one == all.data()) beside();
  }
  if (local_ == 1 || in_slots()) return;
  for (const Exchanged& one : all)
    w_.op(one.name + ".sort_by_expert" + pass, phase, sort(Pass::forward, one.rows.cols),
          with_offsets(one.came, one.sorted, true));
}

void ExpertLayers::combine(Phase phase, const std::vector<Exchanged>& all) {
  if (!exchanges()) return;
  const char* pass = phase == Phase::forward ? ".fprop" : ".dgrad";
  if (local_ > 1 && !in_slots())
    for (const Exchanged& one : all)
      w_.op(one.name + ".sort_by_rank" + pass, phase, sort(Pass::backward, one.rows.cols),
            with_offsets(one.sorted, one.came, true));
  for (const Exchanged& one : all)
    exchange(one.name + ".combine" + pass, phase, CollectiveKind::combine, one.came, one.rows);
}

void ExpertLayers::add_to_gradient(const std::string& name, const Work& work, std::vector<Access> read_by_it,
                                   const char* weight) {
  if (shape_.frozen_base) return;
  read_by_it.push_back(accumulate(w_.gradient(weight, Coord::layer)));
  w_.op(name, Phase::wgrad, work, std::move(read_by_it));
}

View ExpertLayers::backward(const View& dy, const View& x, const View& all, const View& part) {
  if (repeats_all()) w_.again(Recomputed::moe, [&] { pass_forward(x, true); });
  const bool in_codes = sends_codes(Phase::dgrad);
  const View sorted = sends_codes(Phase::forward) ? w_.work(way_.sorted_codes) : of_layer(sorted_),
             d_sorted = in_codes ? w_.work(d_way_.sorted_codes) : w_.read_by_weights(d_sorted_), d_in = w_.work(d_in_),
             d_act = w_.work(mlp_.d_act), d_fc1 = w_.read_by_weights(mlp_.d_fc1);
  const auto fc2_weight_gradient = [&] {
    weight_gradient("experts.fc2", hidden_, mlp_.width, d_sorted, of_layer(mlp_.act));
  };
  const auto fc1_weight_gradient = [&] { weight_gradient("experts.fc1", mlp_.fc1, hidden_, d_fc1, sorted); };
  w_.set_module(Module::experts);
  const View d_numbers = gathered_tokens("experts.all_gather_dgrad", Phase::dgrad, dy),
             d_tokens = in_codes ? codes_to_send("experts.fc2", Phase::dgrad, d_numbers) : d_numbers;
  const View d_rows = in_codes      ? w_.work(d_way_.sent_codes)
                      : exchanges() ? w_.work(d_way_.sent)
                                    : d_sorted,
             d_back = exchanges() ? w_.work(d_way_.sent) : d_in;
  permute_rows("experts.unpermute.dgrad", Phase::dgrad, Pass::forward, false, d_tokens, d_rows);
  const View d_came = came(in_codes ? d_way_.received_codes : d_way_.received, d_sorted);
  dispatch(Phase::dgrad, {{"experts", d_rows, d_came, d_sorted}}, [&] {
    if (shared_is_beside()) shared_down_backward(dy, x);
  });
  multiply("experts.fc2", Pass::dgrad, hidden_, mlp_.width, d_sorted, d_act);
  if (shape_.recompute.repeats(Recompute::Module::moe_act))
    w_.again(Recomputed::moe_act, [&] {
      activate("experts.act.fprop", Pass::forward,
               {read(of_layer(mlp_.fc1_out)), read(of_layer(weights_)), write(of_layer(mlp_.act))});
      if (w_.in_codes()) w_.codes().quantise_input("experts.fc2", of_layer(mlp_.act), offsets());
    });
  if (!weights_come_late()) fc2_weight_gradient();
  activate(
      "experts.act.dgrad", Pass::dgrad,
      {read(d_act), read(of_layer(mlp_.fc1_out)), read(of_layer(weights_)), write(d_fc1), write(w_.work(d_weights_))});
  multiply("experts.fc1", Pass::dgrad, mlp_.fc1, hidden_, d_fc1, d_in);
  if (!weights_come_late()) fc1_weight_gradient();
  const View d_weights = w_.work(d_weights_);
  combine(Phase::dgrad, {{"experts", d_back, came(d_way_.received, d_in), d_in},
                         {"experts.weights", exchanges() ? w_.work(d_way_.sent_weights) : d_weights,
                          came(d_way_.received_weights, d_weights), d_weights}});
  if (weights_come_late()) {
    fc2_weight_gradient();
    fc1_weight_gradient();
  }
  if (model_.has_shared()) {
    if (!shared_is_beside()) shared_down_backward(dy, x);
    shared_up_backward(x);
  }
  const View own = cuts_tokens() ? part : all;
  const View sum = shape_.expert_tokens.exists() ? w_.work(d_sum_) : gathers() ? all : own;
  permute_rows("experts.permute.dgrad", Phase::dgrad, Pass::backward, false, sum, d_back);
  const View dx = summed("experts.dgrad", Phase::dgrad, sum, own);
  router_backward(x, dx);
  const BlockWriter::Within addition(w_, Module::shared_experts);
  if (model_.has_shared())
    w_.op("shared.add.dgrad", Phase::dgrad, Elementwise{ElementwiseFn::accumulate, x.rows, hidden_},
          {read(w_.work(d_shared_part_)), accumulate(dx)});
  return dx;
}

}  // namespace stretto
