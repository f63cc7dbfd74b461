#include "model/order/pipeline_order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace stretto {
namespace {

PipelineOrder order_of(const PipelineShape& shape, std::int64_t stage) {
  return pipeline_orders(shape)[static_cast<std::size_t>(stage)];
}

// Returns "F0b": forward of micro-batch 0, the second chunk. The letter is left out with one chunk.
std::string text_of(const PipelineShape& shape, const PipelineUnit& unit) {
  return std::string(1, "FBW"[static_cast<int>(unit.kind)]) + std::to_string(unit.micro_batch) +
         (shape.chunks > 1 ? std::string(1, static_cast<char>('a' + unit.chunk)) : "");
}

// Returns "F0 [sF0 rB0]": compute, then an exchange of messages.
std::string text_of(const PipelineShape& shape, std::int64_t stage) {
  std::string text;
  for (const PipelineItem& item : order_of(shape, stage).items) {
    text += text.empty() ? "" : " ";
    if (item.is_compute) {
      text += text_of(shape, item.unit);
      continue;
    }
    text += "[";
    for (const PipelineMessage& message : item.messages)
      text += (text.back() == '[' ? "" : " ") + std::string(message.is_send ? "s" : "r") + text_of(shape, message.unit);
    text += "]";
  }
  return text;
}

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (const std::int64_t stages : {1, 2, 3, 4, 5})
    for (const std::int64_t chunks : {1, 2, 3})
      for (std::int64_t count = 1; count <= 9; ++count)
        for (std::int64_t group = stages; group <= std::max(stages, count); ++group)
          for (const int overlap : {0, 1, 2}) {
            if (chunks == 1 && group > stages) continue;
            const std::int64_t rest = count % group;
            if (chunks > 1 && (stages < 2 || group > count || (rest != 0 && rest < stages))) continue;
            shapes.push_back({stages, chunks, count, group, overlap > 0, overlap > 1});
          }
  for (const std::int64_t stages : {2, 3, 4, 5})
    for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 8, 12, 13})
      for (const bool overlap : {false, true})
        for (const PipelineSchedule schedule :
             {PipelineSchedule::zb_h1, PipelineSchedule::zb_v, PipelineSchedule::dualpipe_v})
          if (schedule != PipelineSchedule::dualpipe_v || count >= 2 * stages)
            shapes.push_back({stages, lies_in_v(schedule) ? 2 : 1, count, 1, overlap, false, 0, schedule});
  return shapes;
}

std::string name_of(const PipelineShape& shape) {
  return std::to_string(shape.stages) + " stages, " + std::to_string(shape.chunks) + " chunks, " +
         std::to_string(shape.micro_batches) + " micro-batches in groups of " + std::to_string(shape.group) +
         (shape.overlap ? ", overlap" : "") + (shape.overlap_warmup_flush ? ", warm-up too" : "") + ", " +
         stretto::name_of(shape.schedule);
}

}  // namespace

TEST_CASE("1F1B as a table", "[pipeline]") {
  const PipelineShape two{2, 1, 3};
  CHECK(text_of(two, 0) == "F0 [sF0] F1 [sF1 rB0] B0 F2 [sF2 rB1] B1 [rB2] B2");
  CHECK(text_of(two, 1) == "[rF0] F0 B0 [sB0 rF1] F1 B1 [sB1 rF2] F2 B2 [sB2]");
  const PipelineShape three{3, 1, 3};
  CHECK(text_of(three, 1) == "[rF0] F0 [sF0] [rF1] F1 [sF1 rB0] B0 [sB0 rF2] F2 [sF2 rB1] B1 [sB1] [rB2] B2 [sB2]");
  // With fewer micro-batches than stages the first stage has no steady state.
  CHECK(text_of({3, 1, 1}, 0) == "F0 [sF0] [rB0] B0");
  CHECK(text_of({1, 1, 2}, 0) == "F0 B0 F1 B1");
  // The last model chunk defers its weight gradients.
  const PipelineShape deferring{2, 1, 3, 1, false, false, 2};
  CHECK(text_of(deferring, 0) == text_of(two, 0));
  CHECK(text_of(deferring, 1) == text_of(two, 1) + " W0 W1");
}

TEST_CASE("interleaved 1F1B as a table", "[pipeline]") {
  const PipelineShape shape{2, 2, 2, 2};
  CHECK(text_of(shape, 0) ==
        "F0a [sF0a] F1a [sF1a rF0b] F0b [sF0b rF1b] F1b [sF1b] [rB0b] B0b [sB0b rB1b] B1b [sB1b rB0a] B0a [rB1a] B1a");
  CHECK(text_of(shape, 1) ==
        "[rF0a] F0a [sF0a rF1a] F1a [sF1a rF0b] F0b B0b [rF1b sB0b] F1b B1b [sB1b rB0a] B0a [sB0a rB1a] B1a [sB1a]");
}

TEST_CASE("overlapped: what is needed next is under way during compute", "[pipeline]") {
  CHECK(text_of({2, 1, 3, 1, true}, 1) == "[rF0] F0 [rF1] B0 [sB0] F1 [rF2] B1 [sB1] F2 B2 [sB2]");
}

TEST_CASE("every micro-batch of every chunk goes forward, then backward, once", "[pipeline]") {
  for (const PipelineShape& shape : all_shapes())
    for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
      INFO(name_of(shape) << ", stage " << stage);
      std::set<std::pair<std::int64_t, std::int64_t>> done[3];  // [kind]
      bool is_ordered = true;
      for (const PipelineItem& item : order_of(shape, stage).items) {
        if (!item.is_compute) continue;
        const std::pair unit{item.unit.chunk, item.unit.micro_batch};
        const int kind = static_cast<int>(item.unit.kind);
        is_ordered = is_ordered && done[kind].insert(unit).second && (kind == 0 || done[kind - 1].contains(unit));
      }
      CHECK(is_ordered);
      CHECK(static_cast<std::int64_t>(done[1].size()) == shape.chunks * shape.micro_batches);
      CHECK(done[0] == done[1]);
      CHECK(done[2].size() == (is_zero_bubble(shape.schedule) ? done[1].size() : 0));
    }
}

TEST_CASE("what a stage sends is what its neighbour receives, in that order", "[pipeline]") {
  for (const PipelineShape& shape : all_shapes()) {
    INFO(name_of(shape));
    // [direction, from, to] → (model chunk that needs it, micro-batch)
    using Key = std::tuple<UnitKind, std::int64_t, std::int64_t>;
    std::map<Key, std::vector<std::pair<std::int64_t, std::int64_t>>> sent, received;
    for (std::int64_t stage = 0; stage < shape.stages; ++stage)
      for (const PipelineItem& item : order_of(shape, stage).items)
        for (const PipelineMessage& message : item.messages) {
          const StageMap map = shape.map();
          const std::int64_t way = message.unit.kind == UnitKind::forward ? 1 : -1,
                             here = map.piece_of(stage, message.unit.chunk);
          const std::int64_t to = here + (message.is_send ? way : 0);
          const Key key{message.unit.kind, map.stage_of(to - way), map.stage_of(to)};
          (message.is_send ? sent : received)[key].emplace_back(to, message.unit.micro_batch);
          // The block that a message is called from determines its destination.
          const std::int64_t other = map.stage_of(message.is_send ? to : here - way);
          CHECK(other ==
                (stage + (message.is_send ? way : -way) * map.way(message.unit.chunk) + shape.stages) % shape.stages);
        }
    CHECK(sent == received);
    std::size_t messages = 0;
    for (const auto& [key, list] : sent) messages += list.size();
    const std::int64_t turns = shape.map().in_v ? 1 : 0;
    CHECK(static_cast<std::int64_t>(messages) == 2 * shape.micro_batches * (shape.stages * shape.chunks - 1 - turns));
  }
}

TEST_CASE("what a unit needs has been received before it, what it sends was made before", "[pipeline]") {
  for (const PipelineShape& shape : all_shapes())
    for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
      INFO(name_of(shape) << ", stage " << stage);
      std::set<std::tuple<UnitKind, std::int64_t, std::int64_t>> received, made;
      bool is_ordered = true;
      for (const PipelineItem& item : order_of(shape, stage).items) {
        CHECK(item.is_compute == item.messages.empty());
        const auto key = [](const PipelineUnit& unit) { return std::tuple(unit.kind, unit.chunk, unit.micro_batch); };
        if (item.is_compute) {
          const StageMap map = shape.map();
          const std::int64_t before =
              map.piece_of(stage, item.unit.chunk) + (item.unit.kind == UnitKind::forward ? -1 : 1);
          const bool needs = item.unit.kind != UnitKind::weights && before >= 0 && before < map.pieces();
          const bool is_here = needs && map.stage_of(before) == stage && shape.stages > 1;
          PipelineUnit maker = item.unit;
          if (is_here) maker.chunk = map.chunk_of(before);
          is_ordered = is_ordered && (!needs || (is_here ? made : received).contains(key(maker)));
          made.insert(key(item.unit));
        }
        for (const PipelineMessage& message : item.messages) {
          if (!message.is_send) received.insert(key(message.unit));
          is_ordered = is_ordered && (!message.is_send || made.contains(key(message.unit)));
        }
      }
      CHECK(is_ordered);
    }
}

// Returns the pool of a chunk's slots: one number for all chunks that share a pool, a number of its own for any other
// chunk.
std::int64_t pool_of(const PipelineShape& shape, std::int64_t stage, std::int64_t chunk) {
  const bool lends = !is_zero_bubble(shape.schedule) && !shape.map().is_last(stage, chunk);
  return lends ? -1 : chunk;
}

TEST_CASE("a slot is of one micro-batch from its input to the end of its last pass", "[pipeline]") {
  for (const PipelineShape& shape : all_shapes())
    for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
      INFO(name_of(shape) << ", stage " << stage);
      const PipelineOrder order = order_of(shape, stage);
      REQUIRE(static_cast<std::int64_t>(order.slots.size()) == shape.chunks);
      using Unit = std::pair<std::int64_t, std::int64_t>;           // (chunk, micro-batch)
      std::map<std::pair<std::int64_t, std::int64_t>, Unit> owner;  // (pool, slot) → unit
      std::map<std::int64_t, std::size_t> most_alive;               // [pool]
      std::map<std::int64_t, std::set<std::int64_t>> slots;         // [pool]
      bool is_own = true;
      const auto use = [&](const PipelineUnit& unit) {
        const std::vector<std::int64_t>& of_chunk = order.slots[static_cast<std::size_t>(unit.chunk)];
        const std::int64_t pool = pool_of(shape, stage, unit.chunk);
        const Unit owns{unit.chunk, unit.micro_batch};
        is_own = is_own && std::binary_search(of_chunk.begin(), of_chunk.end(), unit.slot);
        is_own = is_own && owner.try_emplace({pool, unit.slot}, owns).first->second == owns;
        slots[pool].insert(unit.slot);
        std::size_t alive = 0;
        for (const auto& [at, _] : owner) alive += at.first == pool ? 1 : 0;
        most_alive[pool] = std::max(most_alive[pool], alive);
      };
      for (const PipelineItem& item : order.items) {
        if (item.is_compute) {
          use(item.unit);
          if (item.unit.kind == UnitKind::forward && shape.map().turns_after(stage, item.unit.chunk))
            use({UnitKind::forward, item.unit.chunk + 1, item.unit.micro_batch, item.unit.buffer});
          const UnitKind last = is_zero_bubble(shape.schedule) ? UnitKind::weights : UnitKind::backward;
          if (item.unit.kind == last) owner.erase({pool_of(shape, stage, item.unit.chunk), item.unit.slot});
        }
        for (const PipelineMessage& message : item.messages)
          if (message.unit.kind == UnitKind::forward && !message.is_send) use(message.unit);
      }
      CHECK(is_own);
      CHECK(owner.empty());
      if (!is_zero_bubble(shape.schedule)) {
        // A stage has no more slots than live (chunk, micro-batch) pairs.
        for (const auto& [pool, of_pool] : slots) CHECK(of_pool.size() == most_alive[pool]);
        // 1F1B keeps as many micro-batches as there are stages from this one to the last (PipeDream); interleaved 1F1B
        // keeps on the first stage those of its warm-up and one more (Narayanan et al., arXiv 2104.04473). On other
        // stages, and in larger groups, inputs arrive before their turn.
        const std::int64_t after = shape.stages - 1 - stage;
        const std::int64_t warmup = shape.chunks == 1 ? after : 2 * after + (shape.chunks - 1) * shape.group;
        std::int64_t all = 0;
        for (const auto& [pool, of_pool] : slots) all += std::ssize(of_pool);
        if (!shape.overlap && (shape.chunks == 1 || (stage == 0 && shape.group == shape.stages)))
          CHECK(all == std::min(warmup + 1, shape.micro_batches * shape.chunks));
      }
      const auto count = [&](std::size_t chunk) { return std::ssize(order.slots[chunk]); };
      // Zero-bubble schedules keep P micro-batches of a stage everywhere, and the gradients that B makes for W need one
      // more.
      if (shape.schedule == PipelineSchedule::zb_h1) CHECK(count(0) == std::min(shape.stages, shape.micro_batches) + 1);
      if (shape.schedule == PipelineSchedule::zb_v && shape.micro_batches >= 2 * shape.stages) {
        CHECK(count(0) == 2 * shape.stages - stage + 1);
        CHECK(count(1) == std::min(stage + 2, shape.stages) + 1);  // one arrives early, except at the turn
      }
      if (shape.schedule == PipelineSchedule::dualpipe_v) {
        CHECK(count(0) == std::min(2 * shape.stages - stage + 2, 2 * shape.stages + 1));
        CHECK(count(1) == stage + 3);
      }
    }
}

TEST_CASE("a buffer is not used again before it has been sent", "[pipeline]") {
  for (const PipelineShape& shape : all_shapes())
    for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
      INFO(name_of(shape) << ", stage " << stage);
      const PipelineOrder order = order_of(shape, stage);
      const std::int64_t last_piece = shape.stages * shape.chunks - 1;
      std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> outputs;  // buffer → chunk and micro-batch
      bool is_free = true;
      for (const PipelineItem& item : order.items) {
        const auto unit_of = [](const PipelineUnit& unit) { return std::pair(unit.chunk, unit.micro_batch); };
        if (item.is_compute && item.unit.kind == UnitKind::forward &&
            shape.map().piece_of(stage, item.unit.chunk) != last_piece &&
            !shape.map().turns_after(stage, item.unit.chunk)) {
          is_free = is_free && item.unit.buffer < order.output_buffers;
          is_free = is_free && outputs.try_emplace(item.unit.buffer, unit_of(item.unit)).second;
        }
        for (const PipelineMessage& message : item.messages)
          if (message.is_send && message.unit.kind == UnitKind::forward) {
            is_free = is_free && outputs.contains(message.unit.buffer) &&
                      outputs.at(message.unit.buffer) == unit_of(message.unit);
            outputs.erase(message.unit.buffer);
          }
      }
      CHECK(is_free);
      CHECK(outputs.empty());
      if (!shape.overlap && !(shape.map().in_v && stage + 1 == shape.stages)) CHECK(order.output_buffers == 1);
    }
}

TEST_CASE("micro-batches take slots in turn when W is apart", "[pipeline]") {
  for (const PipelineShape& shape : all_shapes())
    for (std::int64_t stage = 0; stage < shape.stages && is_zero_bubble(shape.schedule); ++stage) {
      INFO(name_of(shape) << ", stage " << stage);
      const PipelineOrder order = order_of(shape, stage);
      bool in_turn = true, is_own = true;
      // (chunk, slot) → the micro-batch whose B has written the gradient that its W reads there
      std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> kept;
      for (const PipelineItem& item : order.items) {
        const std::int64_t slots = std::ssize(order.slots[static_cast<std::size_t>(item.unit.chunk)]);
        const auto [kind, chunk, mb, slot, buffer] = item.unit;
        const std::pair before{chunk, (slot + slots - 1) % slots};
        if (item.is_compute) in_turn = in_turn && slot == mb % slots;
        if (item.is_compute && kind == UnitKind::backward) is_own = is_own && kept.try_emplace(before, mb).second;
        if (item.is_compute && kind == UnitKind::weights) is_own = is_own && kept.erase(before) == 1;
        // No other unit takes the slot meanwhile: neither a receive nor the unit that makes its input.
        for (const PipelineMessage& message : item.messages)
          if (message.unit.kind == UnitKind::forward && !message.is_send)
            is_own = is_own && !kept.contains({message.unit.chunk, message.unit.slot});
        if (item.is_compute && kind == UnitKind::forward) is_own = is_own && !kept.contains({chunk, slot});
        if (item.is_compute && kind == UnitKind::forward && shape.map().turns_after(stage, chunk))
          is_own = is_own && !kept.contains({chunk + 1, buffer});
      }
      CHECK(in_turn);
      CHECK(is_own);
      CHECK(kept.empty());
    }
}

}  // namespace stretto
