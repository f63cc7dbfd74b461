#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;

// Bundles of this pass follow those of layers.
constexpr std::uint8_t kExchange = 101, kSort = 102, kSlots = 103;

// Rows of this rank's experts. `tokens`: those whose copies it sorts. `each`: with padding, the rows of these for every
// expert. `rows`: copies of the tokens, with padding; or where their number varies, the rows of this rank's experts
// when all have equally many, with room for `capacity`. In slots each pair of ranks that share experts has a part of
// the room (model/expert_slots.hpp): a slot has rows by expert, and offsets and positions of its own.
struct Sizes {
  bool pads = false, sorts_own = false, varies = false;
  std::int64_t part = 0, tokens = 0, each = 0, rows = 0, capacity = 0, slots = 1;
  std::int64_t slot_room() const { return capacity / slots; }
  std::int64_t slot_mean() const { return (rows + slots - 1) / slots; }
};

Sizes sizes_of(const Layout& layout) {
  const ExpertCut& cut = layout.experts;
  const std::int64_t experts = layout.model.experts.num_moe_experts, topk = layout.model.experts.moe_router_topk;
  Sizes s;
  s.pads = cut.capacity > 0;
  s.sorts_own = cut.local < experts && !cut.exchanges;
  s.varies = cut.local < experts && !s.pads;
  s.part = layout.sequence_parallel ? layout.tokens / layout.tp : layout.tokens;
  s.tokens = s.part * cut.gathering;
  // get_capacity() of Megatron-LM
  s.each = static_cast<std::int64_t>(std::ceil(double(s.part * topk) / double(experts) * cut.capacity)) * cut.gathering;
  s.rows = s.pads        ? (s.sorts_own ? cut.local : experts) * s.each
           : s.sorts_own ? s.tokens * topk * cut.local / experts
                         : s.tokens * topk;
  // All ranks' tokens may go to these experts.
  const std::int64_t most = (cut.exchanges ? cut.ranks : 1) * s.tokens * std::min(topk, cut.local);
  const auto room = [&](double mean) { return static_cast<std::int64_t>(std::ceil(mean * cut.rank_capacity)); };
  s.slots = cut.in_slots ? cut.ranks : 1;
  s.capacity = !s.varies                ? s.rows
               : cut.in_slots           ? s.slots * std::min(most / s.slots, room(double(s.rows) / double(s.slots)))
               : cut.rank_capacity == 0 ? most
                                        : std::min(most, room(double(s.rows)));
  return s;
}

// Ranks gather the tokens that each of them sorts, indices and probabilities included, and the sums of copies are
// scattered (the all-gather dispatcher). Or they exchange rows, perhaps as well, and sort by expert those that come
// (the all-to-all dispatcher).
class ShareExperts {
 public:
  ShareExperts(LayerGraphs& graphs, const Layout& layout)
      : graphs_(graphs),
        layout_(layout),
        cut_(layout.experts),
        size_(sizes_of(layout)),
        experts_(layout.model.experts.num_moe_experts),
        topk_(layout.model.experts.moe_router_topk) {}

  void run() {
    resize();
    Nodes before = std::move(graphs_.forward);
    graphs_.forward.clear();
    for (std::size_t i = 0; i < before.size(); ++i) {
      Node& node = before[i];
      for (Operand& operand : node.operands)
        if (const auto to = replaced_.find(operand.slice.value); to != replaced_.end())
          operand.slice.value = to->second;
      if (std::holds_alternative<Route>(node.work)) {
        routed_ = {node.operands[node.operands.size() - 2].slice, node.result()};
        router_ = node;
      }
      if (std::holds_alternative<SortTokens>(node.work)) {
        sort(node);
        continue;
      }
      if (const auto* work = std::get_if<Permute>(&node.work)) {
        const bool is_last = i + 1 == before.size() || !std::holds_alternative<Permute>(before[i + 1].work);
        work->pass == Pass::forward ? permute(node, is_last) : unpermute(node);
        continue;
      }
      if (std::holds_alternative<GroupedGemm>(node.work)) multiply(node);
      if (std::holds_alternative<WeightedActivation>(node.work)) activate(node);
      if (std::holds_alternative<GroupedGemm>(node.work) || std::holds_alternative<WeightedActivation>(node.work))
        put_rows(node, false);
      else
        put(node);
      if (std::holds_alternative<BalanceLoss>(node.work)) sum_counts(node);
    }
  }

 private:
  // Sizes of experts' values become the rank's.
  void resize() {
    const auto resize_extent = [&](Extent& extent) {
      if (extent.dim == Dim::expert_rows)
        extent = {Dim::none, size_.capacity};
      else if (extent.dim == Dim::expert_width)
        extent = {Dim::none, extent.size / cut_.width_ranks};
      else if (extent.dim == Dim::experts)
        extent = {Dim::none, extent.size / experts_ * cut_.local};
    };
    // A weight is cut as the columns of its product are.
    for (const Node& node : graphs_.forward)
      if (std::holds_alternative<GroupedGemm>(node.work)) {
        Value& weight = graphs_.of(node.operands[1].slice);
        if (graphs_.of(node.result()).cols.dim == Dim::expert_width) weight.rows.size /= cut_.width_ranks;
        if (graphs_.of(node.operands[0].slice).cols.dim == Dim::expert_width) weight.cols.size /= cut_.width_ranks;
      }
    for (ValueId id = 0; id < graphs_.values.size(); ++id) {
      Value& value = graphs_.values[id];
      if (value.rows.dim == Dim::expert_rows && size_.varies) value.filled_rows = size_.rows;
      if (value.rows.dim == Dim::expert_rows) in_slots_.insert(id);
      resize_extent(value.rows);
      resize_extent(value.cols);
    }
    for (Node& node : graphs_.forward)
      for (Operand& operand : node.operands)
        if (operand.slice.cols > graphs_.of(operand.slice).cols.size)
          operand.slice.cols = graphs_.of(operand.slice).cols.size;
  }

  void put(Node node) { graphs_.forward.push_back(std::move(node)); }
  // Puts a node for each slot, from the rank's own one on, in the order in which rows are sent or come. Operands of one
  // row for each row or slot are cut.
  void put_slots(const Node& node, bool sends) {
    for (std::int64_t i = 0; i < size_.slots; ++i) {
      Node one = node;
      one.id = i == 0 ? node.id : graphs_.next++;
      one.slot = i;
      if (one.bundle == 0) one.bundle = static_cast<std::uint8_t>(kSlots + slot_groups_);
      const Expr rank = mod(cut_.place + Expr(sends ? i : -i), Expr(cut_.ranks));
      if (auto* sort = std::get_if<SortTokens>(&one.work)) sort->first = rank * Expr(cut_.local);
      for (Operand& operand : one.operands) {
        const Value& value = graphs_.of(operand.slice);
        if (value.kind == ValueKind::parameter || !in_slots_.contains(operand.slice.value)) continue;
        operand.slice.rows = value.rows.size / size_.slots;
        operand.slice.offset = Expr(0) + rank * Expr(operand.slice.rows * value.cols.size);
      }
      // Copies of a token are added up, the first of them written.
      if (i > 0 && !in_slots_.contains(one.result().value)) one.operands.back().mode = AccessMode::accumulate;
      put(std::move(one));
    }
    ++slot_groups_;
  }
  Slice in_slots(const Slice& of) {
    in_slots_.insert(of.value);
    return of;
  }
  Node like(const Node& node, const std::string& base, const std::string& what, Work work,
            std::vector<Operand> operands) {
    Node made;
    made.work = std::move(work);
    made.operands = std::move(operands);
    made.base = base;
    made.what = what;
    made.module = node.module;
    made.section = node.section;
    made.id = graphs_.next++;
    return made;
  }
  Slice add(const std::string& name, std::int64_t rows, std::int64_t cols, ValueKind kind) {
    Value value{.name = name, .gradient = "d_" + name, .rows = {Dim::none, rows}, .cols = {Dim::none, cols}};
    value.kind = kind;
    return graphs_.whole(graphs_.add(std::move(value)));
  }
  Ranks gathering_ranks() const { return cut_.gathers_over_tensor ? Ranks::tensor : Ranks::expert_tokens; }
  bool gathers() const { return cut_.gathering > 1; }

  // Gathers what the router says of tokens.
  void gather_routed(const Slice& part) {
    Value all = graphs_.of(part);
    const std::string& own = graphs_.of(part).name;
    const std::size_t after = own.find('.') + 1;
    all.name = own.substr(0, after) + "all_" + own.substr(after);
    all.rows = {Dim::none, size_.tokens};
    if (!all.gradient.empty()) graphs_.of(part).gradient = "d_" + own;
    Node gather = like(router_, own, "all_gather", Collective{.kind = CollectiveKind::all_gather}, {});
    const Slice to = graphs_.whole(graphs_.add(std::move(all)));
    gather.operands = {reads(part), writes(to)};
    gather.ranks = gathering_ranks();
    gather.move = Move::enter;
    gather.from = part;
    gather.to = to;
    put(gather);
    replaced_[part.value] = to.value;
  }

  void sort(Node& node) {
    if (gathers()) {
      gather_routed(routed_.first);
      gather_routed(routed_.second);
      node.operands[0].slice = graphs_.whole(replaced_.at(routed_.first.value));
    }
    auto& work = std::get<SortTokens>(node.work);
    work.rows = size_.tokens;
    work.each = size_.each;
    if (size_.sorts_own) {
      work.local = cut_.local;
      work.capacity = size_.varies ? size_.capacity : 0;
      work.first = cut_.first;
    }
    const Slice offsets = node.operands[1].slice, positions = node.operands[2].slice;
    Value& first_rows = graphs_.of(offsets);
    graphs_.of(positions).rows = {Dim::none, size_.tokens};
    if (size_.pads) {
      node.operands.erase(node.operands.begin() + 1);
      return put(node);
    }
    first_rows.cols.size = cut_.local + 1;
    node.operands[1].slice = graphs_.whole(offsets.value);
    if (!cut_.exchanges) return put(node);
    const std::string name = node.base;
    if (cut_.in_slots) return sort_into_slots(node);
    const Slice own = add(name + ".own_offsets", 1, experts_ + 1, ValueKind::integers);
    all_offsets_ = add(name + ".all_offsets", cut_.ranks, experts_ + 1, ValueKind::integers);
    node.operands[1].slice = own;
    put(node);
    Node gather = like(node, node.base, "offsets.all_gather", Collective{.kind = CollectiveKind::all_gather},
                       {reads(own), writes(all_offsets_)});
    gather.ranks = Ranks::expert_counts;
    put(gather);
    put(like(node, node.base, "count.fprop", CountRows{cut_.ranks, experts_, cut_.local, size_.capacity, cut_.first},
             {reads(all_offsets_), writes(graphs_.whole(offsets.value))}));
  }

  // The copies that go to each rank are sorted by themselves, and ranks exchange how many rows of each expert slots
  // have.
  void sort_into_slots(Node& node) {
    const Slice offsets = in_slots(node.operands[1].slice), positions = in_slots(node.operands[2].slice);
    const Slice own = in_slots(add(node.base + ".own_offsets", size_.slots, cut_.local + 1, ValueKind::integers)),
                all = in_slots(add(node.base + ".all_offsets", size_.slots, cut_.local + 1, ValueKind::integers));
    graphs_.of(offsets).rows.size = size_.slots;
    graphs_.of(positions).rows.size = size_.slots * size_.tokens;
    auto& work = std::get<SortTokens>(node.work);
    work.each = 0;
    work.local = cut_.local;
    work.capacity = size_.slot_room();
    node.operands[1].slice = own;
    put_slots(node, true);
    Node swap = like(node, node.base, "offsets.all_to_all", Collective{.kind = CollectiveKind::all_to_all},
                     {reads(own), writes(all)});
    swap.ranks = Ranks::expert_counts;
    put(swap);
    put_slots(like(node, node.base, "count.fprop", CountRows{1, cut_.local, cut_.local, size_.slot_room(), 0},
                   {reads(all), writes(offsets)}),
              false);
  }

  Permute sized(Permute work, std::int64_t cols) const {
    work.tokens = size_.tokens;
    work.cols = cols;
    work.in_transport = cut_.in_transport;
    if (cut_.in_slots) {
      work.rows = size_.slot_mean();
      work.capacity = size_.slot_room();
    } else if (size_.pads || size_.sorts_own) {
      work.rows = size_.rows;
      work.capacity = size_.varies ? size_.capacity : 0;
      work.padded = size_.pads;
    }
    return work;
  }

  // The tokens of all ranks that gather, or the sum's terms from them.
  Value of_all_tokens(const Value& part, const std::string& name) const {
    Value all = part;
    all.name = name;
    all.role = TensorRole::none;
    all.rows = {Dim::none, size_.tokens};
    return all;
  }

  void permute(Node& node, bool is_last) {
    auto& work = std::get<Permute>(node.work);
    if (gathers() && !work.apart) gather_tokens(node);
    const Slice rows = node.result();
    work = sized(work, graphs_.of(rows).cols.size);
    if (!cut_.exchanges) return put(node);
    const std::string end = work.apart ? "_weights" : "";
    const Slice sent = add_sent(node.base + ".sent" + end, rows);
    node.operands.back().slice = sent;
    moved_.push_back({node.base + (work.apart ? ".weights" : ""), sent, rows});
    const Slice came = add(node.base + ".received" + end, size_.capacity, work.cols, graphs_.of(rows).kind);
    graphs_.of(came).filled_rows = graphs_.of(rows).filled_rows;
    moved_.back().came = sorts_rows() ? came : rows;
    put_rows(node, true);
    if (!is_last) return;
    for (const Moved& one : moved_) exchange(node, one, true);
    for (const Moved& one : moved_) sort_rows(node, one, true);
    moved_.clear();
  }

  void unpermute(Node& node) {
    auto& work = std::get<Permute>(node.work);
    const Slice rows = node.operands[1].slice, total = node.result();
    work = sized(work, graphs_.of(rows).cols.size);
    if (cut_.exchanges) {
      const Slice sent = add_sent(node.base + ".sent", rows);
      const Slice came = add(node.base + ".received", size_.capacity, work.cols, ValueKind::activation);
      graphs_.of(came).filled_rows = graphs_.of(rows).filled_rows;
      const Moved moved{node.base, sent, rows, sorts_rows() ? came : rows};
      sort_rows(node, moved, false);
      exchange(node, moved, false);
      node.operands[1].slice = sent;
    }
    if (!gathers()) return put_rows(node, true);
    const std::string name = graphs_.of(total).name;
    Value terms = of_all_tokens(graphs_.of(total), name);
    graphs_.of(total).name = node.base + ".part";
    terms.is_whole = true;
    terms.gradient = (layout_.concurrent_passes ? "d_" : "") + node.base + ".tokens";
    const Slice all = graphs_.whole(graphs_.add(std::move(terms)));
    node.operands.back().slice = all;
    put_rows(node, true);
    Node sum = like(node, node.base, "reduce_scatter", Collective{.kind = CollectiveKind::reduce_scatter},
                    {reads(all), writes(total)});
    sum.ranks = gathering_ranks();
    sum.move = Move::leave;
    sum.from = all;
    sum.to = total;
    put(sum);
  }

  void gather_tokens(Node& node) {
    const Slice x = node.operands[1].slice;
    Value tokens = of_all_tokens(graphs_.of(x), node.base + ".tokens");
    tokens.is_whole = true;
    if (cut_.gathers_over_tensor) {
      tokens.name = "gathered";
      tokens.is_gathered = true;
    } else {
      tokens.gradient = (layout_.concurrent_passes ? "d_" : "") + node.base + ".sum";
      tokens.gradient_role = TensorRole::none;
    }
    const Slice all = graphs_.whole(graphs_.add(std::move(tokens)));
    Node gather =
        like(node, node.base, "all_gather", Collective{.kind = CollectiveKind::all_gather}, {reads(x), writes(all)});
    gather.module = Module::experts;
    gather.ranks = gathering_ranks();
    gather.move = Move::enter;
    gather.from = x;
    gather.to = all;
    put(gather);
    node.operands[1].slice = all;
  }

  bool sorts_rows() const { return cut_.local > 1 && !cut_.in_slots; }
  Slice add_sent(const std::string& name, const Slice& rows) {
    const std::int64_t cols = graphs_.of(rows).cols.size;
    if (!cut_.in_slots) return add(name, size_.rows, cols, graphs_.of(rows).kind);
    const Slice sent = in_slots(add(name, size_.capacity, cols, graphs_.of(rows).kind));
    graphs_.of(sent).filled_rows = size_.rows;
    return sent;
  }
  void put_rows(const Node& node, bool sends) { cut_.in_slots ? put_slots(node, sends) : put(node); }

  // `rows` by expert; `sent` at the tokens' rank; and `came` at the experts' rank, by rank and then by expert.
  struct Moved {
    std::string base;
    Slice sent, rows, came = {};
  };
  std::vector<Operand> moving(const Slice& from, const Slice& to, bool offsets_first) const {
    std::vector<Operand> operands = {reads(from), writes(to)};
    if (!size_.pads && !cut_.in_slots) operands.insert(operands.begin() + (offsets_first ? 0 : 1), reads(all_offsets_));
    return operands;
  }
  void exchange(const Node& node, const Moved& moved, bool to_experts) {
    const std::int64_t cols = graphs_.of(moved.rows).cols.size;
    Collective work{.kind = to_experts ? CollectiveKind::dispatch : CollectiveKind::combine};
    work.elements = (cut_.in_slots ? size_.capacity : size_.rows) * cols;
    work.experts = size_.pads || cut_.in_slots ? 0 : experts_;
    work.cols = cols;
    work.capacity = size_.capacity * cols;
    work.copies = topk_;
    Node made = like(node, moved.base, to_experts ? "dispatch.fprop" : "combine.fprop", work,
                     to_experts ? moving(moved.sent, moved.came, false) : moving(moved.came, moved.sent, false));
    made.module = Module::experts;
    made.ranks = Ranks::experts;
    made.bundle = kExchange;
    put(made);
  }
  void sort_rows(const Node& node, const Moved& moved, bool to_experts) {
    if (!sorts_rows()) return;
    const SortByExpert work{to_experts ? Pass::forward : Pass::backward,
                            cut_.ranks,
                            experts_,
                            cut_.local,
                            size_.rows,
                            size_.capacity,
                            graphs_.of(moved.rows).cols.size,
                            cut_.first,
                            cut_.in_transport,
                            size_.each};
    Node made = like(node, moved.base, to_experts ? "sort_by_expert.fprop" : "sort_by_rank.fprop", work,
                     to_experts ? moving(moved.came, moved.rows, true) : moving(moved.rows, moved.came, true));
    made.module = Module::experts;
    made.bundle = kSort;
    put(made);
  }

  void multiply(Node& node) {
    auto& work = std::get<GroupedGemm>(node.work);
    work.groups = cut_.local;
    work.rows = cut_.in_slots ? size_.slot_mean() : size_.rows;
    work.n = graphs_.of(node.result()).cols.size;
    work.k = graphs_.of(node.operands[0].slice).cols.size;
    work.capacity = size_.varies ? size_.slot_room() : 0;
    work.equal = size_.pads;
    offsets_ = node.operands[2].slice;
    offsets_.cols = cut_.local + 1;
    node.operands[2].slice = offsets_;
    if (size_.pads) node.operands.erase(node.operands.begin() + 2);
  }
  void activate(Node& node) {
    auto& work = std::get<WeightedActivation>(node.work);
    work.rows = cut_.in_slots ? size_.slot_mean() : size_.rows;
    work.cols = graphs_.of(node.result()).cols.size;
    if (!size_.varies) return;
    work.groups = cut_.local;
    work.capacity = size_.slot_room();
    node.operands.insert(node.operands.begin(), reads(offsets_));
  }

  void sum_counts(const Node& node) {
    if (!cut_.sums_balance || layout_.model.experts.balances_replicas()) return;
    Node sum = like(node, node.base, "count.all_reduce", Collective{.kind = CollectiveKind::all_reduce},
                    {adds(node.result())});
    sum.ranks = Ranks::balance;
    sum.bundle = node.bundle;
    put(sum);
  }

  LayerGraphs& graphs_;
  const Layout& layout_;
  const ExpertCut& cut_;
  const Sizes size_;
  const std::int64_t experts_, topk_;
  std::map<ValueId, ValueId> replaced_;
  std::pair<Slice, Slice> routed_;
  Node router_;
  Slice offsets_, all_offsets_;
  std::vector<Moved> moved_;
  std::set<ValueId> in_slots_;  // of these each slot has a part
  int slot_groups_ = 0;
};

}  // namespace

void share_experts(LayerGraphs& graphs, const Layout& layout) {
  if (std::any_of(graphs.forward.begin(), graphs.forward.end(),
                  [](const Node& n) { return std::holds_alternative<Route>(n.work); }))
    ShareExperts(graphs, layout).run();
}

}  // namespace stretto::passes
