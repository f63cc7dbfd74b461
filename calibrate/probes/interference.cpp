#include <algorithm>
#include <memory>

#include "base/statistics.hpp"
#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "model/lower/builder.hpp"
#include "model/schedule/plan.hpp"
#include "model/verify/verify.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

using sim::DemandClass;
using sim::kDemandClasses;

constexpr int kTurns = 5;
constexpr int kMeasured = 16;  // operations timed on the first lane
// [class]: about how long its operation below takes. This decides only how many concurrent operations are needed to
// outlast the measured ones; operations outside the overlapped window are ignored.
using ClassTimes = std::array<double, kDemandClasses>;
constexpr ClassTimes kRoughly_us = {1300, 1000, 700, 4000};

// Sizes as in training on a host: a few hundred tokens. Two of the filled buffers are more than a last-level cache
// holds.
const ClassOperations kOnHost = {
    {256, 512, 384, false, true, false}, {Pass::forward, 2, 4, 4, 128, 64, true}, 512, 1024, 8 << 20};

int background_count(DemandClass measured, DemandClass concurrent, const ClassTimes& roughly_us) {
  constexpr double kMost = 400;
  const double ratio =
      roughly_us[static_cast<std::size_t>(measured)] / roughly_us[static_cast<std::size_t>(concurrent)];
  return static_cast<int>(std::min(kMost, 2 * kMeasured * ratio + 4));
}

}  // namespace

BlockId add_class_operation(Schedule& schedule, DemandClass cls, const ClassOperations& operations, LaneId lane,
                            const std::string& name) {
  const auto buffer = [&](const char* what, BufferKind kind, Dtype dtype, std::int64_t rows, std::int64_t cols) {
    return whole(schedule, add_tensor(schedule, name + "." + what, dtype, kind, rows, cols));
  };
  const auto in = [&](const char* what, std::int64_t rows, std::int64_t cols) {
    return read(buffer(what, BufferKind::parameter, operations.dtype, rows, cols));
  };
  const auto out = [&](const char* what, std::int64_t rows, std::int64_t cols, bool is_wide = false) {
    const Dtype dtype = is_wide ? accumulation_of(operations.dtype) : operations.dtype;
    return write(buffer(what, BufferKind::workspace, dtype, rows, cols));
  };
  switch (cls) {
    case DemandClass::gemm: {
      const Gemm& g = operations.gemm;
      return add_single(schedule,
                        {name,
                         g,
                         lane,
                         Phase::forward,
                         {in("a", g.m, g.k), g.trans_b ? in("b", g.n, g.k) : in("b", g.k, g.n), out("c", g.m, g.n)}});
    }
    case DemandClass::attention: {
      const Attention& a = operations.attention;
      const std::int64_t tokens = a.batch * a.seq, width = a.heads * a.head_dim;
      return add_single(schedule, {name,
                                   a,
                                   lane,
                                   Phase::forward,
                                   {in("qkv", tokens, width + 2 * a.kv_heads * a.head_dim), out("out", tokens, width),
                                    out("lse", a.batch * a.heads, a.seq, true)}});
    }
    case DemandClass::vector:
      return add_single(schedule,
                        {name,
                         Elementwise{ElementwiseFn::gelu, operations.rows, operations.cols},
                         lane,
                         Phase::forward,
                         {in("x", operations.rows, operations.cols), out("y", operations.rows, operations.cols)}});
    case DemandClass::memory:
      break;
  }
  return add_single(
      schedule,
      {name, Fill{operations.elements, 1}, lane, Phase::forward, {out("streamed", 1, operations.elements, true)}});
}

namespace {

// One pair: operations of class `a` on the first lane. With a concurrent class, its operations run on the second lane
// from before the first to after the last of them.
class Pair {
 public:
  Pair(DemandClass a, const DemandClass* concurrent, const ClassOperations& operations, const ClassTimes& roughly_us,
       const Machine& machine)
      : has_background_(concurrent != nullptr), steps_(machine.steps) {
    schedule_.name = "probe_interference";
    schedule_.compute_dtype = operations.dtype;
    schedule_.mesh = Mesh({{Coord::dp, 1}});
    schedule_.lanes = {{"compute", LaneKind::compute, 0}};
    if (has_background_) schedule_.lanes.push_back({"concurrent", LaneKind::compute, 0});
    schedule_.programs = {{"rank", {}}};
    auto& order = schedule_.programs.front().order;
    const BlockId measured = add_class_operation(schedule_, a, operations, 0, "measured");
    const BlockId background =
        has_background_ ? add_class_operation(schedule_, *concurrent, operations, 1, "concurrent") : 0;
    // Small operations after the last of one step and before the first of the next keep steps from overlapping.
    const TensorId mark = add_tensor(schedule_, "mark", operations.dtype, BufferKind::workspace, 1, 1);
    const BlockId begin =
        add_single(schedule_, {"begin", Fill{1, 0}, 0, Phase::setup, {write(whole(schedule_, mark))}});
    const OpId begun = schedule_.blocks[begin].ops.front();
    order.push_back(call_block(schedule_, begin));
    measured_op_ = schedule_.blocks[measured].ops.front();
    background_op_ = has_background_ ? schedule_.blocks[background].ops.front() : 0;
    if (has_background_) {
      const int background_ops = background_count(a, *concurrent, roughly_us);
      order.front().waits = {{EdgeKind::finish_start, {background_op_, 0, background_ops - 1, 0, 1}}};
      for (int i = 0; i < background_ops; ++i) {
        order.push_back(call_block(schedule_, background, 0, i));
        if (i == 0) order.back().waits = {{EdgeKind::finish_start, {begun, 0, 0, 0, 0}}};
      }
    }
    for (int i = 0; i < kMeasured; ++i) {
      order.push_back(call_block(schedule_, measured, 0, i));
      if (i == 0 && has_background_) order.back().waits = {{EdgeKind::start_start, {background_op_, 0, 0, 0, 0}}};
    }
    verified_ = plan_and_verify(schedule_);
    executor_ = machine.make(verified_, {});
    fill_randomly(schedule_, *executor_);
  }

  // Appends the times of the measured operations that ran wholly inside the overlapped window.
  void run(std::vector<double>& times_us) {
    const Timeline timeline = executor_->run(steps_);
    const BoundProgram& program = executor_->programs().front();
    Picoseconds begin = INT64_MAX, end = has_background_ ? 0 : INT64_MAX;
    if (!has_background_) begin = 0;
    for (const TimelineRow& row : timeline.rows)
      if (has_background_ && program.ops[row.op].op == background_op_)
        begin = std::min(begin, row.start), end = std::max(end, row.end);
    for (const TimelineRow& row : timeline.rows)
      if (program.ops[row.op].op == measured_op_ && row.start >= begin && row.end <= end)
        times_us.push_back(to_us(row.end - row.start));
  }

 private:
  bool has_background_;
  int steps_;
  Schedule schedule_;
  VerifiedSchedule verified_;
  OpId measured_op_ = 0, background_op_ = 0;
  std::unique_ptr<exec::Executor> executor_;
};

Quantity slowdown_of(DemandClass measured, DemandClass concurrent, const ClassOperations& operations,
                     const ClassTimes& roughly_us, const Machine& machine) {
  Pair alone(measured, nullptr, operations, roughly_us, machine),
      together(measured, &concurrent, operations, roughly_us, machine);
  std::vector<double> alone_us, together_us;
  for (int turn = 0; turn < kTurns; ++turn) {  // the two take turns, so that a slow moment of the machine affects both
    alone.run(alone_us);
    together.run(together_us);
  }
  // An operation that always outlasts its background was never wholly overlapped, so nothing was measured.
  if (together_us.empty()) return {0, {"assumed", "in the probe no operation ran concurrently from begin to end", 0}};
  return {std::max(0.0, median(together_us) / median(alone_us) - 1),
          {"measured", "two lanes joined by a start-start edge, overlapped window", spread_pct(together_us)}};
}

}  // namespace

Pairs probe_interference(const Machine& machine, int cores) {
  Pairs slowdown{};
  for (int a = 0; a < kDemandClasses; ++a)
    for (int b = 0; b < kDemandClasses; ++b) {
      if (cores < 2)
        slowdown[a][b].source = {"assumed", "one core: no two operations are concurrent", 0};
      else if (a != b)
        slowdown[a][b] =
            slowdown_of(static_cast<DemandClass>(a), static_cast<DemandClass>(b), kOnHost, kRoughly_us, machine);
    }
  return slowdown;
}

Pairs probe_streams(const Machine& machine, const ClassOperations& operations, const ClassTimes& alone_us) {
  Pairs slowdown{};
  for (int a = 0; a < kDemandClasses; ++a)
    for (int b = 0; b < kDemandClasses; ++b)
      slowdown[a][b] =
          slowdown_of(static_cast<DemandClass>(a), static_cast<DemandClass>(b), operations, alone_us, machine);
  return slowdown;
}

ClassTimes probe_classes(const Machine& machine, const ClassOperations& operations) {
  ClassTimes times_us{};
  for (std::size_t c = 0; c < kDemandClasses; ++c) {
    Pair alone(static_cast<DemandClass>(c), nullptr, operations, kRoughly_us, machine);
    std::vector<double> us;
    for (int turn = 0; turn < kTurns; ++turn) alone.run(us);
    times_us[c] = median(us);
  }
  return times_us;
}

}  // namespace stretto::calibrate
