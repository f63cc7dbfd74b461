#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/lower/builder.hpp"
#include "model/overlap/block_editor.hpp"
#include "model/overlap/mode.hpp"

namespace stretto {

// Messages among the ranks that share experts, for ep_flash_overlap: rows of experts to and from each of them. A rank
// sends to all others on one lane and receives from them on another, so that both directions of a link are in use, and
// the order of the messages is the same on all ranks: the i-th goes to the rank i places after the sender.
class EpMessages {
 public:
  // Adds to the schedule a communicator for the messages, because on that of the collectives they would wait for
  // collectives, and two lanes. `lowered` has ranks that share experts, and outlives this object.
  explicit EpMessages(Lowered& lowered)
      : schedule_(lowered.schedule),
        compute_(lowered.compute),
        n_(lowered.ep.size),
        place_(lowered.ep.place),
        lowered_(lowered) {
    Communicator own = schedule_.communicators[lowered.ep.communicator];
    own.name = "ep.flash";
    schedule_.communicators.push_back(own);
    communicator_ = static_cast<std::uint32_t>(schedule_.communicators.size() - 1);
    lane_send_ = add_lane("ep.send");
    lane_recv_ = add_lane("ep.recv");
  }

 protected:
  // Rewrites the blocks of all layers with experts: forward(block, suffix) for each of their forward passes (the suffix
  // of names is "" or ".recompute"), backward(block), and weights(block) for weight gradients in a block of their own
  // (zero-bubble schedules), which read the rows in the order in which the other two leave them.
  template <class Forward, class Backward, class Weights>
  void rewrite_layers(const Forward& forward, const Backward& backward, const Weights& weights) {
    for (const BlockId id : lowered_.layer_blocks) {
      BlockEditor block(lowered_, id);
      for (const std::string again : {"", ".recompute"})
        if (block.has("experts.dispatch.fprop" + again)) forward(block, again);
      if (block.has("experts.dispatch.dgrad"))
        backward(block);
      else
        weights(block);
      block.commit();
    }
  }

  // The place of the rank that is a number of places after this one, in a ring.
  Expr rank_after(std::int64_t distance) const { return mod(place_ + Expr(distance), Expr(n_)); }
  // Returns the rows of `count` places, from place `at` on, of a matrix that has a place for each rank.
  View rows_at(View whole, const Expr& at, std::int64_t count = 1) const {
    const std::int64_t rows = whole.rows / n_;
    whole.offset = whole.offset + at * Expr(rows * whole.ld);
    whole.rows = rows * count;
    return whole;
  }
  // The message of `slot`, whose peer is `offset` places after this rank.
  Operation message(const Operation& like, const char* what, std::int64_t slot, bool is_send, std::int64_t offset,
                    View view) const {
    const PointToPoint work{is_send, communicator_, offset, view.rows * view.cols};
    return {like.name + what + std::to_string(slot),
            work,
            is_send ? lane_send_ : lane_recv_,
            like.phase,
            {is_send ? read(std::move(view)) : write(std::move(view))}};
  }
  // A rank's own rows stay.
  Operation copy(const Operation& like, const View& from, const View& to) const {
    return {like.name + ".copy", Cast{from.rows * from.cols}, compute_, like.phase, {read(from), write(to)}};
  }

  Schedule& schedule_;
  const LaneId compute_;
  const std::int64_t n_;  // ranks that share experts
  const Expr place_;      // of this rank among them

 private:
  LaneId add_lane(const std::string& name) {
    schedule_.lanes.push_back({name, LaneKind::communication, 0});
    return static_cast<LaneId>(schedule_.lanes.size() - 1);
  }
  Lowered& lowered_;
  LaneId lane_send_ = 0, lane_recv_ = 0;
  std::uint32_t communicator_ = 0;
};

// Exchanges slots of rows without padding in messages (model/expert_slots.hpp).
void exchange_slots(Lowered& lowered);

}  // namespace stretto
