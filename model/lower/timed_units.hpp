#pragma once
#include <cstdint>
#include <vector>

#include "model/lower/pipeline_order.hpp"

namespace stretto {

// A unit of a table whose units are all one tick long.
struct TimedUnit {
  std::int64_t tick = 0;  // it begins then
  PipelineUnit unit;
};
using TimedOrders = std::vector<std::vector<TimedUnit>>;  // [stage], in the order of ticks

// Puts messages between the units. A message stands behind the unit of its sender's tick, on both sides; of one tick
// what a stage sends comes first. So messages that block cannot deadlock, and cost nothing on the ideal machine while
// all units are as long.
std::vector<std::vector<PipelineItem>> with_messages(const StageMap& map, const TimedOrders& orders);  // [stage]

// When units begin whose order is given for each stage: each as soon as what it needs is there. Needs an order without
// cycles; asserts so.
TimedOrders timed(const StageMap& map, const std::vector<std::vector<PipelineUnit>>& orders);

// Which units are done, and so which can begin: F of a piece needs that of the piece before; B needs the F of its own,
// and B of the piece behind; W its own B.
class UnitsDone {
 public:
  UnitsDone(const StageMap& map, std::int64_t micro_batches);
  bool is_ready(std::int64_t stage, const PipelineUnit& unit) const;
  void finish(std::int64_t stage, const PipelineUnit& unit);

 private:
  std::size_t index(std::int64_t piece, std::int64_t micro_batch) const {
    return static_cast<std::size_t>(piece * micro_batches_ + micro_batch);
  }
  StageMap map_;
  std::int64_t micro_batches_;
  std::vector<bool> done_[2];  // [F, B][index]
};

}  // namespace stretto
