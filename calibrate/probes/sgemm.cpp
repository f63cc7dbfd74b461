#include <algorithm>
#include <limits>
#include <numeric>

#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "exec/host/executor.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/verify.hpp"

namespace stretto::calibrate {
namespace {

constexpr std::int64_t kSize = 1024;
constexpr int kRepeats = 3;

}  // namespace

struct SgemmYardstick::State {
  Schedule schedule;
  OpId sgemm = 0;
  std::unique_ptr<host::HostExecutor> executor;
};

SgemmYardstick::SgemmYardstick(int ranks, int cores) : state_(std::make_unique<State>()) {
  Schedule& schedule = state_->schedule;
  schedule.name = "probe_sgemm";
  schedule.mesh = Mesh({{Coord::dp, ranks}});
  schedule.placement.ranks_per_device = ranks;
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  schedule.programs = {{"rank", {}}};
  auto& order = schedule.programs.front().order;
  View views[3];
  for (int i = 0; i < 3; ++i) {
    const TensorId id =
        add_tensor(schedule, std::string("matrix_") + "abc"[i], Dtype::f32, BufferKind::activation, kSize, kSize);
    views[i] = whole(schedule, id);
    if (i == 2) continue;
    order.push_back(
        call_block(schedule, add_single(schedule, {"fill_" + std::to_string(i),
                                                   Fill{kSize * kSize, 0.5},
                                                   0,
                                                   Phase::setup,
                                                   {write(View{id, 0, 0, 0, 1, kSize * kSize, kSize * kSize})}})));
  }
  const BlockId block = add_single(schedule, {"sgemm",
                                              Gemm{kSize, kSize, kSize, false, false, false},
                                              0,
                                              Phase::forward,
                                              {read(views[0]), read(views[1]), write(views[2])}});
  state_->sgemm = schedule.blocks[block].ops.front();
  for (int i = 0; i < kRepeats; ++i) order.push_back(call_block(schedule, block, 0, i));
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  host::HostOptions options;
  options.cores_per_device = cores;
  state_->executor = std::make_unique<host::HostExecutor>(schedule, plan, options);
}
SgemmYardstick::~SgemmYardstick() = default;

double SgemmYardstick::run_GFLOPs() {
  const Timeline timeline = state_->executor->run(1);
  const auto& programs = state_->executor->programs();
  std::vector<double> fastest_us(programs.size(), std::numeric_limits<double>::infinity());
  for (const TimelineRow& row : timeline.rows) {
    const auto rank = static_cast<std::size_t>(row.rank);
    if (programs[rank].ops[row.op].op == state_->sgemm)
      fastest_us[rank] = std::min(fastest_us[rank], to_us(row.end - row.start));
  }
  const double mean_us = std::accumulate(fastest_us.begin(), fastest_us.end(), 0.0) / double(fastest_us.size());
  return 2.0 * double(kSize) * double(kSize) * double(kSize) / mean_us * 1e-3;
}

}  // namespace stretto::calibrate
