// ep_flash_overlap without padding: the rows of each pair of ranks have a slot, with the room that
// moe_expert_rank_capacity_factor leaves, and offsets that say how many rows of each expert it has. Lowering sorts,
// permutes and multiplies slot by slot, and exchanges the counts of all slots before (model/passes/share_experts). Each
// rank's slot is a shard: slots go as messages, and are computed in the order in which they come, a rank's own first.
//
// Rank r of n. Nodes: send_i = the slot for rank r + i, recv_i = the slot from rank r - i; M_i = products of the
//          experts for the slot from r - i; back_i = its results to r - i
// Edges:   recv_i -> M_i -> back_i.   Backward the same with gradients, and the slot's weight gradients after them
// Numbers: no expert and no token has padding, so products have as many rows as without slots; all of a slot's room
//          moves. The copies of a token are added up in the order of slots, those of a slot in that of experts.
#include <string>
#include <utility>
#include <vector>

#include "model/overlap/block_editor.hpp"
#include "model/overlap/ep_messages.hpp"

namespace stretto {
namespace {

class EpSlots : public EpMessages {
 public:
  explicit EpSlots(Lowered& lowered) : EpMessages(lowered) {}

  void run() {
    rewrite_layers([&](BlockEditor& block, const std::string& again) { forward(block, again); },
                   [&](BlockEditor& block) { backward(block); },
                   [](BlockEditor&) {});  // lowering has written them slot by slot
  }

 private:
  using Operations = std::vector<Operation>;

  // An exchange of slots of one kind, and its buffers: by the rank that tokens go to, and by the rank they come from.
  struct Way {
    Operation exchange;
    View of_tokens, of_experts;
  };
  static Operation taken(BlockEditor& block, const std::string& name) {
    Operation operation = block.operation(name);
    block.remove(name);
    return operation;
  }
  static Way way_of(Operation exchange, bool to_experts) {
    const std::vector<Access>& moved = exchange.accesses;
    View of_tokens = moved[to_experts ? 0 : 1].view, of_experts = moved[to_experts ? 1 : 0].view;
    return {std::move(exchange), std::move(of_tokens), std::move(of_experts)};
  }

  void send_there(const std::vector<Way>& ways, Operations& out) const {
    for (const Way& way : ways)
      out.push_back(copy(way.exchange, rows_at(way.of_tokens, place_), rows_at(way.of_experts, place_)));
    for (std::int64_t i = 1; i < n_; ++i)
      for (const Way& way : ways) {
        out.push_back(message(way.exchange, ".send", i, true, i, rows_at(way.of_tokens, rank_after(i))));
        out.push_back(message(way.exchange, ".recv", i, false, -i, rows_at(way.of_experts, rank_after(-i))));
      }
  }
  void send_back(const Way& way, std::int64_t i, Operations& out) const {
    if (i == 0) {
      out.push_back(copy(way.exchange, rows_at(way.of_experts, place_), rows_at(way.of_tokens, place_)));
      return;
    }
    out.push_back(message(way.exchange, ".send", i, true, -i, rows_at(way.of_experts, rank_after(-i))));
    out.push_back(message(way.exchange, ".recv", i, false, i, rows_at(way.of_tokens, rank_after(i))));
  }

  // Takes the operations of all slots, [slot], and gives them the names that pieces of other shards have.
  Operations slots(BlockEditor& block, const std::string& name, const std::string& again, bool keeps_first = false) {
    Operations all;
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::string one = name + ".slot" + std::to_string(i) + again;
      all.push_back(i == 0 && keeps_first ? block.operation(one) : taken(block, one));
      all.back().name = name + again + "." + std::to_string(i);
    }
    return all;
  }
  static std::string first_slot(const std::string& name, const std::string& again) { return name + ".slot0" + again; }

  // In a recomputed layer the second product and the way back come last, and the block may be called without them.
  void forward(BlockEditor& block, const std::string& again) {
    const std::string dispatch = "experts.dispatch.fprop" + again, fc1 = "experts.fc1.fprop", fc2 = "experts.fc2.fprop";
    Operations there, first, second;
    send_there(
        {way_of(block.operation(dispatch), true), way_of(taken(block, "experts.weights.dispatch.fprop" + again), true)},
        there);
    block.replace(dispatch, std::move(there));
    const bool has_second = block.has(first_slot(fc2, again)), is_apart = !again.empty();
    const Operations up = slots(block, fc1, again, true), activation = slots(block, "experts.act.fprop", again);
    Operations down;
    Way back;
    if (has_second) {
      down = slots(block, fc2, again, is_apart);
      back = way_of(taken(block, "experts.combine.fprop" + again), false);
    }
    for (std::size_t i = 0; i < up.size(); ++i) {
      first.push_back(up[i]);
      first.push_back(activation[i]);
      if (!has_second) continue;
      Operations& after = is_apart ? second : first;
      after.push_back(down[i]);
      send_back(back, std::int64_t(i), after);
    }
    block.replace(first_slot(fc1, again), std::move(first));
    if (has_second && is_apart) block.replace(first_slot(fc2, again), std::move(second));
  }

  void backward(BlockEditor& block) {
    const std::string dispatch = "experts.dispatch.dgrad", fc2 = "experts.fc2.dgrad";
    Operations there, pieces;
    send_there({way_of(block.operation(dispatch), true)}, there);
    block.replace(dispatch, std::move(there));
    const std::vector<Way> back = {way_of(taken(block, "experts.combine.dgrad"), false),
                                   way_of(taken(block, "experts.weights.combine.dgrad"), false)};
    std::vector<Operations> products = {slots(block, fc2, "", true)}, weights;
    const auto add = [&](const std::string& name, const std::string& again, std::vector<Operations>& to) {
      if (block.has(first_slot(name, again))) to.push_back(slots(block, name, again));
    };
    add("experts.act.fprop", ".recompute", products);
    add("experts.act.dgrad", "", products);
    add("experts.fc1.dgrad", "", products);
    add("experts.fc2.wgrad", "", weights);
    add("experts.fc1.wgrad", "", weights);
    for (std::int64_t i = 0; i < n_; ++i) {
      for (const Operations& product : products) pieces.push_back(product[std::size_t(i)]);
      for (const Way& way : back) send_back(way, i, pieces);
      for (const Operations& weight : weights) pieces.push_back(weight[std::size_t(i)]);
    }
    block.replace(first_slot(fc2, ""), std::move(pieces));
  }
};

}  // namespace

void exchange_slots(Lowered& lowered) { EpSlots(lowered).run(); }

}  // namespace stretto
