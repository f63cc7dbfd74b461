#include <algorithm>
#include <memory>

#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/verify.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

using sim::DemandClass;
using sim::kDemandClasses;

constexpr int kTurns = 5;
constexpr int kMeasured = 16;  // operations timed on the first lane
// [class]: about how long its operation below takes, ms. Decides only how many run beside the measured ones, to outlast
// them; what did not run wholly in the overlapped window is not looked at.
constexpr double kRoughly_ms[kDemandClasses] = {1.3, 1, 0.7, 4};

int background_count(DemandClass measured, DemandClass beside) {
  return static_cast<int>(
      2 * kMeasured * kRoughly_ms[static_cast<int>(measured)] / kRoughly_ms[static_cast<int>(beside)] + 4);
}

// Adds an operation of the class on buffers of its own and returns its block. Sizes as in training: a few hundred
// tokens.
BlockId add_class_operation(Schedule& schedule, DemandClass cls, LaneId lane, const std::string& name, Block& zero) {
  auto buffer = [&](const std::string& what, std::int64_t rows, std::int64_t cols) {
    const TensorId id = add_tensor(schedule, name + "." + what, Dtype::f32, BufferKind::activation, rows, cols);
    add_operation(schedule, zero,
                  {name + "." + what + ".zero",
                   Fill{rows * cols, 0.5},
                   0,
                   Phase::setup,
                   {write(View{id, 0, 0, 0, 1, rows * cols, rows * cols})}});
    return whole(schedule, id);
  };
  switch (cls) {
    case DemandClass::gemm:
      return add_single(schedule,
                        {name,
                         Gemm{256, 512, 384, false, true, false},
                         lane,
                         Phase::forward,
                         {read(buffer("a", 256, 384)), read(buffer("b", 512, 384)), write(buffer("c", 256, 512))}});
    case DemandClass::attention:
      return add_single(
          schedule, {name,
                     Attention{Pass::forward, 2, 4, 4, 128, 64, true},
                     lane,
                     Phase::forward,
                     {read(buffer("qkv", 256, 768)), write(buffer("out", 256, 256)), write(buffer("lse", 8, 128))}});
    case DemandClass::vector:
      return add_single(schedule, {name,
                                   Elementwise{ElementwiseFn::gelu, 512, 1024},
                                   lane,
                                   Phase::forward,
                                   {read(buffer("x", 512, 1024)), write(buffer("y", 512, 1024))}});
    case DemandClass::memory:
      break;
  }
  constexpr std::int64_t kElements = 8 << 20;  // 32 MiB: two of them are more than a last-level cache holds
  return add_single(schedule,
                    {name, Fill{kElements, 1}, lane, Phase::forward, {write(buffer("streamed", 1, kElements))}});
}

// One pair: operations of class `a` on the first lane; if there is a class beside it, its operations run on the second
// lane from before the first to after the last of them.
class Pair {
 public:
  Pair(DemandClass a, const DemandClass* beside, int cores) : beside_(beside != nullptr) {
    schedule_.name = "probe_interference";
    schedule_.mesh = Mesh({{Coord::dp, 1}});
    schedule_.lanes = {{"compute", LaneKind::compute, 0}};
    if (beside_) schedule_.lanes.push_back({"beside", LaneKind::compute, 0});
    schedule_.programs = {{"rank", {}}};
    auto& order = schedule_.programs.front().order;
    Block zero{"zero", {}};
    const BlockId measured = add_class_operation(schedule_, a, 0, "measured", zero);
    const BlockId background = beside_ ? add_class_operation(schedule_, *beside, 1, "beside", zero) : 0;
    const OpId filled = zero.ops.back();
    order.push_back(call_block(schedule_, add_block(schedule_, std::move(zero))));
    measured_op_ = schedule_.blocks[measured].ops.front();
    background_op_ = beside_ ? schedule_.blocks[background].ops.front() : 0;
    if (beside_) {
      const int background_ops = background_count(a, *beside);
      order.front().waits = {{EdgeKind::finish_start, {background_op_, 0, background_ops - 1, 0, 1}}};
      for (int i = 0; i < background_ops; ++i) {
        order.push_back(call_block(schedule_, background, 0, i));
        if (i == 0) order.back().waits = {{EdgeKind::finish_start, {filled, 0, 0, 0, 0}}};
      }
    }
    for (int i = 0; i < kMeasured; ++i) {
      order.push_back(call_block(schedule_, measured, 0, i));
      if (i == 0 && beside_) order.back().waits = {{EdgeKind::start_start, {background_op_, 0, 0, 0, 0}}};
    }
    const MemoryPlan plan = plan_memory(schedule_);
    require_verified(schedule_, &plan);
    host::HostOptions options;
    options.cores_per_device = cores;
    executor_ = std::make_unique<host::HostExecutor>(schedule_, plan, options);
  }

  // Appends the times of the measured operations that ran wholly inside the overlapped window.
  void run(std::vector<double>& times_us) {
    const Timeline timeline = executor_->run(1);
    const BoundProgram& program = executor_->programs().front();
    Picoseconds begin = INT64_MAX, end = beside_ ? 0 : INT64_MAX;
    if (!beside_) begin = 0;
    for (const TimelineRow& row : timeline.rows)
      if (beside_ && program.ops[row.op].op == background_op_)
        begin = std::min(begin, row.start), end = std::max(end, row.end);
    for (const TimelineRow& row : timeline.rows)
      if (program.ops[row.op].op == measured_op_ && row.start >= begin && row.end <= end)
        times_us.push_back(to_us(row.end - row.start));
  }

 private:
  bool beside_;
  Schedule schedule_;
  OpId measured_op_ = 0, background_op_ = 0;
  std::unique_ptr<host::HostExecutor> executor_;
};

}  // namespace

std::array<std::array<sim::Quantity, kDemandClasses>, kDemandClasses> probe_interference(int cores) {
  std::array<std::array<sim::Quantity, kDemandClasses>, kDemandClasses> slowdown{};
  for (int a = 0; a < kDemandClasses; ++a)
    for (int b = 0; b < kDemandClasses; ++b) {
      if (cores < 2) {
        slowdown[a][b].source = {"assumed", "one core: nothing runs beside anything", 0};
        continue;
      }
      if (a == b) continue;
      const auto measured_class = static_cast<DemandClass>(a), beside_class = static_cast<DemandClass>(b);
      Pair alone(measured_class, nullptr, cores), beside(measured_class, &beside_class, cores);
      std::vector<double> alone_us, beside_us;
      for (int turn = 0; turn < kTurns; ++turn) {  // in turns, so that a slow moment of the machine meets both
        alone.run(alone_us);
        beside.run(beside_us);
      }
      // An operation that always outlasts its background was never wholly overlapped: nothing was measured.
      const double ratio = beside_us.empty() ? 1 : median_of(beside_us) / median_of(alone_us);
      slowdown[a][b] = {std::max(0.0, ratio - 1),
                        {"measured", "two lanes joined by a start-start edge, overlapped window",
                         beside_us.empty() ? 0 : spread_pct_of(beside_us)}};
    }
  return slowdown;
}

}  // namespace stretto::calibrate
