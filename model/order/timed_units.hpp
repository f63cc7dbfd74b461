#pragma once
#include <cstdint>
#include <vector>

#include "model/order/pipeline_order.hpp"

namespace stretto {

// A unit of a table whose units are all one tick long.
struct TimedUnit {
  std::int64_t tick = 0;  // tick in which it begins
  PipelineUnit unit;
};
using TimedOrders = std::vector<std::vector<TimedUnit>>;  // [stage], in the order of ticks

// Returns [stage] units with messages between them. A message stands after the unit of its sender's tick, on both
// sides; within a tick a stage's sends come first. So messages that block cannot deadlock, and they cost nothing on the
// ideal machine while all units have one length.
std::vector<std::vector<PipelineItem>> with_messages(const StageMap& map, const TimedOrders& orders);  // [stage]

// Returns the ticks of units whose order is given for each stage: each unit begins as soon as its inputs exist. The
// order must have no cycles, which is asserted.
TimedOrders timed(const StageMap& map, const std::vector<std::vector<PipelineUnit>>& orders);

// Knows which units are done, and so which can begin: F of a model chunk needs F of the previous chunk; B needs its own
// F and B of the next chunk; W needs its own B.
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
