#include <time.h>

#include <algorithm>
#include <limits>

#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "exec/host/executor.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/plan.hpp"
#include "model/verify/verify.hpp"

namespace stretto::calibrate {
namespace {

constexpr std::int64_t kSize = 1024;
constexpr int kRepeats = 3;

// Returns the CPU time of the calling thread. Time that others have on its core does not count, as far as the kernel
// knows.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

}  // namespace

struct SgemmYardstick::State {
  VerifiedSchedule verified;
  std::vector<std::vector<double>> began_us;  // [rank][operation] on the clock of the rank's thread
  std::unique_ptr<host::HostExecutor> executor;
};

SgemmYardstick::SgemmYardstick(int ranks, int cores) : state_(std::make_unique<State>()) {
  Schedule schedule;
  schedule.name = "probe_sgemm";
  schedule.mesh = Mesh({{Coord::dp, ranks}});
  schedule.placement.ranks_per_device = ranks;
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  schedule.programs = {{"rank", {}}};
  auto& order = schedule.programs.front().order;
  View views[3];
  for (int i = 0; i < 3; ++i) {
    const TensorId id =
        // The factors belong to no micro-batch: they are filled once, and again at the end of a run.
        add_tensor(schedule, std::string("matrix_") + "abc"[i], Dtype::f32,
                   i < 2 ? BufferKind::input : BufferKind::activation, kSize, kSize);
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
  for (int i = 0; i < kRepeats; ++i) order.push_back(call_block(schedule, block, 0, i));
  order.push_back(call_block(schedule, order.front().block, 0, 1));  // the last one is over when this one begins
  state_->verified = plan_and_verify(std::move(schedule));
  host::HostOptions options;
  options.cores_per_device = cores;
  state_->began_us.assign(static_cast<std::size_t>(ranks), std::vector<double>(order.size()));
  options.before_operation = [&began_us = state_->began_us](std::int64_t rank, std::uint32_t op) {
    began_us[static_cast<std::size_t>(rank)][op] = cpu_us();
  };
  state_->executor = std::make_unique<host::HostExecutor>(state_->verified, options);
}
SgemmYardstick::~SgemmYardstick() = default;

double SgemmYardstick::run_GFLOPs() {
  state_->executor->run(1);
  double sum_us = 0;
  for (const std::vector<double>& began_us : state_->began_us) {
    double fastest_us = std::numeric_limits<double>::infinity();
    for (std::size_t op = began_us.size() - kRepeats; op < began_us.size(); ++op)
      fastest_us = std::min(fastest_us, began_us[op] - began_us[op - 1]);
    sum_us += fastest_us;
  }
  const double mean_us = sum_us / double(state_->began_us.size());
  return 2.0 * double(kSize) * double(kSize) * double(kSize) / mean_us * 1e-3;
}

}  // namespace stretto::calibrate
