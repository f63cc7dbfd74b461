#pragma once
#include <catch2/catch.hpp>
#include <initializer_list>
#include <string>
#include <vector>

#include "model/schedule/schedule.hpp"
#include "tests/simulate.hpp"

namespace stretto::sim {

constexpr Picoseconds us = kPicosecondsPerMicrosecond;

// Small hand-made schedules with hand-made costs, for tests: each template has one call, each call one operation.
struct Toy {
  Schedule schedule;
  Costs costs;

  // `dp` ranks, `ranks_per_device` of them on a device; lanes "compute" (0), "dp" (1), "dp2" (2); communicator 0 over
  // dp.
  explicit Toy(std::int64_t dp = 1, std::int64_t ranks_per_device = 1) {
    schedule.name = "toy";
    schedule.mesh = Mesh({{Coord::dp, dp}});
    schedule.placement.ranks_per_device = ranks_per_device;
    schedule.lanes = {
        {"compute", LaneKind::compute, 0}, {"dp", LaneKind::communication, 0}, {"dp2", LaneKind::communication, 0}};
    schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, dp}};
    schedule.programs.push_back({"rank", {}});
    costs.link_bytes_per_s = 1e9;
  }

  OpId compute(const std::string& name, Picoseconds alone, std::vector<Edge> waits = {}, int cores = 0,
               DemandClass cls = DemandClass::gemm, LaneId lane = 0) {
    const OpId id = add(name, Fill{}, lane, std::move(waits));
    costs.compute[id] = {alone, cores, cls};
    return id;
  }

  OpId collective(const std::string& name, const CollectiveCost& cost, std::vector<Edge> waits = {}, LaneId lane = 1,
                  std::uint32_t communicator = 0) {
    const OpId id = add(name, Collective{CollectiveKind::all_reduce, communicator, 1}, lane, std::move(waits));
    costs.collective[id] = cost;
    return id;
  }

  // Adds a message to the next rank along dp, or from the previous one; the receiver's cost is that of the message.
  OpId message(const std::string& name, bool is_send, const CollectiveCost& cost, LaneId lane) {
    const OpId id = add(name, PointToPoint{is_send, 0, Expr(is_send ? 1 : -1), 1}, lane, {});
    costs.collective[id] = cost;
    return id;
  }

  // Makes ranks along dp different for fold_ranks, so that all of them are simulated.
  void forbid_folding() {
    schedule.tensors.push_back({"t", 1, 1, 1, 1, {{0, 0}}});
    View view;
    view.slot = Expr(Coord::dp) * Expr(3);  // not a permutation of 0..dp-1
    schedule.operations.front().accesses.push_back({AccessMode::read, view});
  }

 private:
  OpId add(const std::string& name, const Work& work, LaneId lane, std::vector<Edge> waits) {
    const auto id = static_cast<OpId>(schedule.operations.size());
    Operation operation;
    operation.name = name;
    operation.work = work;
    operation.lane = lane;
    schedule.operations.push_back(operation);
    costs.compute.emplace_back();
    costs.collective.emplace_back();
    schedule.blocks.push_back({name, {id}});
    Call call;
    call.block = static_cast<BlockId>(id);
    call.count = 1;
    call.waits = std::move(waits);
    schedule.programs.front().order.push_back(call);
    return id;
  }
};

inline Edge after(OpId op, int steps_ago = 0) { return {EdgeKind::finish_start, {op, 0, 0, 0, steps_ago}}; }
inline Edge after_start(OpId op, int steps_ago = 0) { return {EdgeKind::start_start, {op, 0, 0, 0, steps_ago}}; }

// Simulates one step from an idle machine, so that times count from 0.
inline SimResult one_step(const Toy& toy, NetworkKind network = NetworkKind::fluid) {
  SimOptions options;
  options.max_steps = 1;
  options.network = network;
  return simulate(toy.schedule, toy.costs, options);
}

inline TimelineRow row_of(const SimResult& result, OpId op, std::int32_t rank = 0) {
  for (const TimelineRow& row : result.timeline.rows)
    if (row.rank == rank && row.op == op) return row;
  FAIL("no row for operation " << op << " of rank " << rank);
  return {};
}

}  // namespace stretto::sim
