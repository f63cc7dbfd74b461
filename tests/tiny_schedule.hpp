#pragma once
#include <string>
#include <utility>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// For tests only: schedules of a few operations, built by hand. Two compute lanes (0 "compute", 1 "side") and two
// communication lanes (2 "dp", 3 "dp2") with a communicator each ("dp" on both: 0 and 1). The program has the
// operations in the order in which they are added. Sizes are in elements.
class TinySchedule {
 public:
  explicit TinySchedule(std::int64_t dp = 2, std::int64_t ranks_per_device = 1) {
    schedule.name = "tiny";
    schedule.mesh = Mesh({{Coord::dp, dp}});
    schedule.placement.ranks_per_device = ranks_per_device;
    schedule.lanes = {{"compute", LaneKind::compute, 0},
                      {"side", LaneKind::compute, 0},
                      {"dp", LaneKind::communication, 0},
                      {"dp2", LaneKind::communication, 0}};
    schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, dp},
                              {"dp2", {Coord::dp}, CommEngine::nic, 1, dp}};
    schedule.programs = {{"rank", {}}};
  }

  TensorId tensor(const std::string& name, std::int64_t rows, std::int64_t cols,
                  BufferKind kind = BufferKind::activation, Dtype dtype = Dtype::f32) {
    const auto storage = static_cast<StorageId>(schedule.storages.size());
    schedule.storages.push_back({name, dtype, kind, rows * cols});
    schedule.tensors.push_back({name, rows, cols, 1, 1, {{storage, 0}}});
    return static_cast<TensorId>(schedule.tensors.size() - 1);
  }

  View whole(TensorId id) const {
    const Tensor& t = schedule.tensors[id];
    return {id, 0, 0, 0, t.rows, t.cols, t.cols};
  }

  OpId op(const std::string& name, LaneId lane, Work work, std::vector<Access> accesses, std::vector<Edge> waits = {}) {
    const auto id = static_cast<OpId>(schedule.operations.size());
    schedule.operations.push_back({name, std::move(work), lane, Phase::forward, std::move(accesses)});
    schedule.blocks.push_back({name, {id}});
    call(id, 0, std::move(waits));
    return id;
  }

  // Calls the operation again, as another micro-batch.
  void call(OpId id, std::int64_t micro_batch, std::vector<Edge> waits = {}) {
    schedule.programs[0].order.push_back({id, 0, micro_batch, 0, 0, 1, std::move(waits)});
  }

  OpId fill(const std::string& name, LaneId lane, View dst, std::vector<Edge> waits = {}) {
    return op(name, lane, Fill{dst.rows * dst.cols, 0}, {{AccessMode::write, dst}}, std::move(waits));
  }
  OpId fill(const std::string& name, LaneId lane, TensorId dst, std::vector<Edge> waits = {}) {
    return fill(name, lane, whole(dst), std::move(waits));
  }

  // dst = gelu(src)
  OpId map(const std::string& name, LaneId lane, View src, View dst, std::vector<Edge> waits = {}) {
    return op(name, lane, Elementwise{ElementwiseFn::gelu, dst.rows, dst.cols},
              {{AccessMode::read, src}, {AccessMode::write, dst}}, std::move(waits));
  }
  OpId map(const std::string& name, LaneId lane, TensorId src, TensorId dst, std::vector<Edge> waits = {}) {
    return map(name, lane, whole(src), whole(dst), std::move(waits));
  }

  // Adds an all-reduce on communicator 0 (lane 2) or 1 (lane 3) unless given.
  OpId all_reduce(const std::string& name, LaneId lane, TensorId buffer, std::vector<Edge> waits = {},
                  int communicator = -1) {
    const auto c = static_cast<std::uint32_t>(communicator >= 0 ? communicator : lane - 2);
    return op(name, lane, Collective{CollectiveKind::all_reduce, c, schedule.tensors[buffer].elements()},
              {{AccessMode::accumulate, whole(buffer)}}, std::move(waits));
  }

  std::vector<Edge>& waits_of(OpId id) {
    for (Call& call : schedule.programs[0].order)
      if (call.block == id) return call.waits;
    return schedule.programs[0].order.at(0).waits;
  }

  Schedule schedule;
};

inline Edge finish_of(OpId op, int steps_ago = 0) { return {EdgeKind::finish_start, {op, 0, 0, 0, steps_ago}}; }
inline Edge start_of(OpId op, int steps_ago = 0) { return {EdgeKind::start_start, {op, 0, 0, 0, steps_ago}}; }

}  // namespace stretto
