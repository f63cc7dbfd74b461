#include "model/order/dualpipe_v.hpp"

#include <cassert>
#include <deque>
#include <utility>

#include "model/order/timed_units.hpp"

namespace stretto {
namespace {

class Table {
 public:
  std::vector<PipelineUnit> of_stage(const PipelineShape& s, std::int64_t stage) {
    const std::int64_t after = s.stages - stage - 1, ends = stage + 1;
    repeat(2 * after, [&](std::int64_t) { forward(kA); });
    repeat(ends, [&](std::int64_t) {
      forward(kA);
      forward(kB);
    });
    repeat(after, [&](std::int64_t) {
      backward(kB);
      oldest_weights();
      forward(kB);
    });
    repeat(s.micro_batches - 2 * s.stages + ends, [&](std::int64_t) {
      forward(kA);
      backward_and_weights(kB);
      forward(kB);
      backward_and_weights(kA);
    });
    repeat(after, [&](std::int64_t) {
      backward_and_weights(kB);
      forward(kB);
      backward_and_weights(kA);
    });
    // Half of these W are deferred to the end.
    repeat(2 * ends, [&](std::int64_t i) {
      const std::int64_t chunk = i % 2 == 0 ? kB : kA;
      if (i < ends)
        backward_and_weights(chunk);
      else
        backward(chunk);
    });
    repeat(after, [&](std::int64_t) {
      oldest_weights();
      backward(kA);
    });
    repeat(ends, [&](std::int64_t) { oldest_weights(); });
    assert(waiting_.empty());
    return std::move(units_);
  }

 private:
  static constexpr std::int64_t kA = 0, kB = 1;

  template <class Action>
  static void repeat(std::int64_t times, Action action) {
    for (std::int64_t i = 0; i < times; ++i) action(i);
  }
  void forward(std::int64_t chunk) { units_.push_back({UnitKind::forward, chunk, next_[0][chunk]++}); }
  void backward(std::int64_t chunk) {
    units_.push_back({UnitKind::backward, chunk, next_[1][chunk]++});
    waiting_.push_back({UnitKind::weights, chunk, units_.back().micro_batch});
  }
  void backward_and_weights(std::int64_t chunk) {
    backward(chunk);
    units_.push_back(waiting_.back());
    waiting_.pop_back();
  }
  void oldest_weights() {
    units_.push_back(waiting_.front());
    waiting_.pop_front();
  }

  std::vector<PipelineUnit> units_;
  std::deque<PipelineUnit> waiting_;  // W whose B is done
  std::int64_t next_[2][2] = {};      // [F, B][chunk] micro-batch
};

}  // namespace

std::vector<std::vector<PipelineItem>> dualpipe_v_items(const PipelineShape& shape) {
  assert(shape.stages > 1 && shape.map().in_v && shape.micro_batches >= 2 * shape.stages);
  std::vector<std::vector<PipelineUnit>> orders;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) orders.push_back(Table().of_stage(shape, stage));
  return with_messages(shape.map(), timed(shape.map(), orders));
}

}  // namespace stretto
