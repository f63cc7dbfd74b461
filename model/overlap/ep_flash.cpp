// ep_flash_overlap: rows of experts travel as messages, and experts compute them in shards: first those of the nearest
// ranks, a rank's own among them, while the others are on the way, and finished shards go back while the next one is
// computed. No framework has it; it is the decomposition of arXiv 2604.24013 (Flash-Overlap) for experts. With padding
// sizes of messages are known, and every rank has the rows of one source in one place; ep_slots.cpp has it without.
//
// Rank r of n, Q rows from each of them to each. Slot i of what came has the rows of rank (r - i) mod n. Shard k of m
// has slots [k n/m, (k+1) n/m).
// Nodes:   send_i = rows for rank r + i, recv_i = slot i;  M_k = both products of the experts for shard k, between
// sorts
//          where a shard has several ranks' rows for several experts;  back_i = results of slot i to rank r - i
// Edges:   recv_i -> M_k -> back_i, i of shard k.   Backward the same with gradients, and W_k, the shard's weight
//          gradients, after the products that M_k consists of then; zero-bubble schedules call all W_k later.
// Time:    with Tc of a message, Tm of the experts for the rows of one rank, and m = n, forward
//          max(n Tm + Tc, Tm + n Tc, 2 (n - 1) Tc);  backward the last weight gradients run during the last message
//          (tests/closed_forms_experts_test.cpp)
// Numbers: results and losses have the bits of the plain schedule where products of fewer rows do; the copies of a
// token
//          are added up in the order of experts. A weight gradient is a sum over shards, in their order.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/expert_slots.hpp"
#include "model/overlap/block_editor.hpp"
#include "model/overlap/ep_messages.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "ep_flash_overlap";

class EpFlash : public EpMessages {
 public:
  EpFlash(Lowered& lowered, std::int64_t shards) : EpMessages(lowered), shards_(std::min(shards, n_)) {}

  void run() {
    rewrite_layers([&](BlockEditor& block, const std::string& again) { forward(block, again); },
                   [&](BlockEditor& block) { backward(block); }, [&](BlockEditor& block) { weight_gradients(block); });
  }

 private:
  using Operations = std::vector<Operation>;

  std::int64_t first(std::int64_t shard) const { return shard * n_ / shards_; }
  std::int64_t size(std::int64_t shard) const { return first(shard + 1) - first(shard); }
  View of_shard(const View& whole, std::int64_t shard) const { return rows_at(whole, first(shard), size(shard)); }

  // Rows of one kind (activations, or probabilities) on their way to the experts or back, as the plain schedule has it:
  // one exchange, and a sort of what came by expert where a rank has several.
  struct Way {
    Operation exchange;
    bool sorts = false;
    Operation sort;  // where it sorts
    // at the rank of the tokens, by the rank of the expert; at that of the experts by slot, and by shard and expert
    View of_ranks, by_slot, by_expert;
  };
  // Takes the plain operations of a way from the block. `to_experts`: it is the way there.
  Way take(BlockEditor& block, const std::string& exchange, const std::string& sort, bool to_experts) const {
    Way way;
    way.exchange = block.operation(exchange);
    const std::vector<Access>& moved = way.exchange.accesses;
    way.of_ranks = moved[to_experts ? 0 : 1].view;
    way.by_slot = way.by_expert = moved[to_experts ? 1 : 0].view;
    if (block.has(sort)) {
      way.sorts = true;
      way.sort = block.operation(sort);
      way.by_expert = way.sort.accesses[to_experts ? 1 : 0].view;
      block.remove(sort);
      // Rows of one rank are sorted by expert already.
      if (shards_ == n_) way.sorts = false, way.by_slot = way.by_expert;
    }
    block.remove(exchange);
    return way;
  }
  // The rows that came lie by expert where a shard is one rank.
  View slot_of(const Way& way, std::int64_t shard, std::int64_t slot) const {
    return rows_at(size(shard) == 1 ? way.by_expert : way.by_slot, slot);
  }

  // Sends all rows of the ways, and receives those for this rank's experts, shard by shard.
  void send_there(const std::vector<Way>& ways, Operations& out) const {
    for (const Way& way : ways) out.push_back(copy(way.exchange, rows_at(way.of_ranks, place_), slot_of(way, 0, 0)));
    for (std::int64_t shard = 0; shard < shards_; ++shard)
      for (const Way& way : ways)
        for (std::int64_t i = std::max<std::int64_t>(1, first(shard)); i < first(shard + 1); ++i) {
          out.push_back(message(way.exchange, ".send", i, true, i, rows_at(way.of_ranks, rank_after(i))));
          out.push_back(message(way.exchange, ".recv", i, false, -i, slot_of(way, shard, i)));
        }
  }
  void send_back(const Way& way, std::int64_t shard, Operations& out) const {
    if (shard == 0) out.push_back(copy(way.exchange, slot_of(way, 0, 0), rows_at(way.of_ranks, place_)));
    for (std::int64_t i = std::max<std::int64_t>(1, first(shard)); i < first(shard + 1); ++i) {
      out.push_back(message(way.exchange, ".send", i, true, -i, slot_of(way, shard, i)));
      out.push_back(message(way.exchange, ".recv", i, false, i, rows_at(way.of_ranks, rank_after(i))));
    }
  }
  // Sorts a shard's rows by expert, or back.
  void sort(const Way& way, std::int64_t shard, Operations& out) const {
    if (!way.sorts || size(shard) == 1) return;
    Operation piece = way.sort;
    auto& work = std::get<SortByExpert>(piece.work);
    work.ranks = size(shard);
    work.experts = work.ranks * work.local;
    work.rows = work.capacity = work.experts * work.each;
    work.first = 0;
    for (Access& access : piece.accesses) access.view = of_shard(access.view, shard);
    piece.name += "." + std::to_string(shard);
    out.push_back(std::move(piece));
  }

  // Returns an operation of the experts for a shard's rows: its operands are cut, but not the weight or its gradient.
  Operation of_rows(const Operation& whole, std::int64_t shard) const {
    Operation piece = whole;
    piece.name += "." + std::to_string(shard);
    std::size_t weight = piece.accesses.size();
    if (auto* product = std::get_if<GroupedGemm>(&piece.work)) {
      weight = product->pass == Pass::wgrad ? 2 : 1;
      product->rows = product->rows / n_ * size(shard);
    } else {
      auto& activation = std::get<WeightedActivation>(piece.work);
      activation.rows = activation.rows / n_ * size(shard);
    }
    for (std::size_t i = 0; i < piece.accesses.size(); ++i)
      if (i != weight) piece.accesses[i].view = of_shard(piece.accesses[i].view, shard);
    return piece;
  }
  // Cuts weight gradients in a block of their own: their rows lie shard by shard. With one expert any order will do.
  void weight_gradients(BlockEditor& block) const {
    for (const char* name : {"experts.fc2.wgrad", "experts.fc1.wgrad"}) {
      if (!block.has(name)) continue;
      const Operation whole = block.operation(name);
      if (std::get<GroupedGemm>(whole.work).groups == 1) continue;
      Operations pieces;
      for (std::int64_t shard = 0; shard < shards_; ++shard) pieces.push_back(of_rows(whole, shard));
      block.replace(name, std::move(pieces));
    }
  }
  static Operation removed(BlockEditor& block, const std::string& name) {
    Operation operation = block.operation(name);
    block.remove(name);
    return operation;
  }

  // In a recomputed layer the second product and the way back come last, and the block may be called without them. A
  // backward pass that repeats them for itself may have none.
  void forward(BlockEditor& block, const std::string& again) {
    const auto named = [&](const char* name) { return name + again; };
    const std::vector<Way> there = {
        take(block, named("experts.dispatch.fprop"), named("experts.sort_by_expert.fprop"), true),
        take(block, named("experts.weights.dispatch.fprop"), named("experts.weights.sort_by_expert.fprop"), true)};
    const std::string fc1 = named("experts.fc1.fprop"), fc2 = named("experts.fc2.fprop");
    const Operation up = block.operation(fc1), activation = removed(block, named("experts.act.fprop"));
    const bool has_second = block.has(fc2);
    Way back;
    Operation down;
    if (has_second) {
      back = take(block, named("experts.combine.fprop"), named("experts.sort_by_rank.fprop"), false);
      down = block.operation(fc2);
    }
    Operations first, second;
    Operations& after = again.empty() ? first : second;
    send_there(there, first);
    for (std::int64_t shard = 0; shard < shards_; ++shard) {
      for (const Way& way : there) sort(way, shard, first);
      first.push_back(of_rows(up, shard));
      first.push_back(of_rows(activation, shard));
      if (!has_second) continue;
      after.push_back(of_rows(down, shard));
      sort(back, shard, after);
      send_back(back, shard, after);
    }
    block.replace(fc1, std::move(first));
    if (has_second) block.replace(fc2, std::move(second));
  }

  void backward(BlockEditor& block) {
    const std::vector<Way> there = {take(block, "experts.dispatch.dgrad", "experts.sort_by_expert.dgrad", true)};
    const std::vector<Way> back = {
        take(block, "experts.combine.dgrad", "experts.sort_by_rank.dgrad", false),
        take(block, "experts.weights.combine.dgrad", "experts.weights.sort_by_rank.dgrad", false)};
    const std::string fc2 = "experts.fc2.dgrad";
    Operations products = {block.operation(fc2)}, weights, pieces;
    for (const char* name : {"experts.act.fprop.recompute", "experts.act.dgrad", "experts.fc1.dgrad"})
      if (block.has(name)) products.push_back(removed(block, name));
    for (const char* name : {"experts.fc2.wgrad", "experts.fc1.wgrad"})
      if (block.has(name)) weights.push_back(removed(block, name));
    send_there(there, pieces);
    for (std::int64_t shard = 0; shard < shards_; ++shard) {
      for (const Way& way : there) sort(way, shard, pieces);
      for (const Operation& product : products) pieces.push_back(of_rows(product, shard));
      for (const Way& way : back) sort(way, shard, pieces);
      for (const Way& way : back) send_back(way, shard, pieces);
      for (const Operation& weight : weights) pieces.push_back(of_rows(weight, shard));
    }
    block.replace(fc2, std::move(pieces));
  }

  const std::int64_t shards_;
};

std::string word_of(bool value) { return value ? "true" : "false"; }

void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& p = scenario.parallel;
  const Overlap& o = scenario.overlap;
  const bool asked = o.ep_flash_overlap;
  gates.above_one(kKnob, asked, "expert_model_parallel_size", p.expert_model_parallel_size);
  const auto off = [&](const char* needs, bool open, const std::string& why) {
    gates.add({.knob = kKnob, .needs = needs, .source = kOwnGate, .asked = asked, .open = open, .why = why});
  };
  off("moe_token_dispatcher_type alltoall", p.moe_token_dispatcher_type == TokenDispatcher::alltoall,
      std::string("moe_token_dispatcher_type is \"") + name_of(p.moe_token_dispatcher_type) +
          "\", whose kernels move all rows at once");
  off("rows of experts that are padded, or moe_expert_rank_capacity_factor above 0",
      p.moe_expert_capacity_factor > 0 || p.moe_expert_rank_capacity_factor > 0,
      "neither moe_pad_expert_input_to_capacity nor moe_expert_rank_capacity_factor says how large a message may be");
  off("products of numbers (no fp8_format, no fp4_format)", !scenario.training.low_precision.is_on(),
      "products are of codes, which all rows of an expert make together");
  for (const auto& [key, is_on] :
       {std::pair{"overlap_moe_expert_parallel_comm", o.overlap_moe_expert_parallel_comm},
        std::pair{"overlap_dispatch_backward_with_experts_wgrad", o.overlap_dispatch_backward_with_experts_wgrad},
        std::pair{"moe_shared_expert_overlap", o.moe_shared_expert_overlap}})
    gates.add({.knob = kKnob,
               .needs = std::string(key) + " = false",
               .kind = GateKind::error,
               .source = kOwnGate,
               .asked = asked,
               .open = !is_on,
               .got = word_of(is_on),
               .why = "both hide the same exchanges"});
}

void rewrite(Lowered& lowered, const Scenario& scenario, const Gates&) {
  if (exchanges_in_slots(scenario)) return exchange_slots(lowered);
  EpFlash(lowered, scenario.overlap.ep_flash_shards).run();
}

}  // namespace

OverlapMode ep_flash_overlap_mode() {
  return {.name = kKnob,
          .meaning = "experts compute the rows of some ranks while those of others, and finished ones, are on the way",
          .memory = "gradients of experts' inputs",
          .knob = kKnob,
          .on = &Overlap::ep_flash_overlap,
          .applies =
              [](const Parallel& p) {
                return p.expert_model_parallel_size > 1 && p.moe_token_dispatcher_type == TokenDispatcher::alltoall &&
                       (p.moe_expert_capacity_factor > 0 || p.moe_expert_rank_capacity_factor > 0);
              },
          .gates = add_gates,
          .rewrite = rewrite};
}

}  // namespace stretto
