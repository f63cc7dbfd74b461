#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "model/lower/builder.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {
namespace {

using sim::DemandClass;
using sim::kDemandClasses;

constexpr int kMeasured = 24;    // operations timed on the first lane
constexpr int kBackground = 160; // on the second lane: more than enough to outlast them; the rest is not looked at

// Adds an operation of the class on buffers of its own and returns its block. Sizes as in training: a few hundred tokens.
BlockId add_class_operation(Schedule& schedule, DemandClass cls, LaneId lane, const std::string& name, Block& zero) {
  auto buffer = [&](const std::string& what, std::int64_t rows, std::int64_t cols) {
    const TensorId id = add_tensor(schedule, name + "." + what, Dtype::f32, BufferKind::activation, rows, cols);
    add_operation(schedule, zero, {name + "." + what + ".zero", Fill{rows * cols, 0.5}, 0, Phase::setup, {write(View{id, 0, 0, 0, 1, rows * cols, rows * cols})}});
    return whole(schedule, id);
  };
  switch (cls) {
    case DemandClass::gemm:
      return add_single(schedule, {name, Gemm{256, 512, 384, false, true, false}, lane, Phase::forward,
                                   {read(buffer("a", 256, 384)), read(buffer("b", 512, 384)), write(buffer("c", 256, 512))}});
    case DemandClass::attention:
      return add_single(schedule, {name, Attention{Pass::forward, 2, 4, 128, 64, true}, lane, Phase::forward,
                                   {read(buffer("qkv", 256, 768)), write(buffer("out", 256, 256)), write(buffer("lse", 8, 128))}});
    case DemandClass::memory:
      break;
  }
  return add_single(schedule, {name, Elementwise{ElementwiseFn::add, 512, 1024}, lane, Phase::forward,
                               {read(buffer("a", 512, 1024)), read(buffer("b", 512, 1024)), write(buffer("c", 512, 1024))}});
}

// Times the operations of class `a`; `beside` runs on the other lane from before the first to after the last of them.
std::vector<double> times_us(DemandClass a, const DemandClass* beside) {
  Schedule schedule;
  schedule.name = "probe_interference";
  schedule.mesh = Mesh({{Coord::dp, 1}});
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  if (beside != nullptr) schedule.lanes.push_back({"beside", LaneKind::compute, 0});
  schedule.programs = {{"rank", {}}};
  auto& order = schedule.programs.front().order;
  Block zero{"zero", {}};
  const BlockId measured = add_class_operation(schedule, a, 0, "measured", zero);
  const BlockId background = beside != nullptr ? add_class_operation(schedule, *beside, 1, "beside", zero) : 0;
  const OpId filled = zero.ops.back();
  order.push_back(call_block(schedule, add_block(schedule, std::move(zero))));
  const OpId background_op = beside != nullptr ? schedule.blocks[background].ops.front() : 0;
  if (beside != nullptr) {
    order.front().waits = {{EdgeKind::finish_start, {background_op, 0, kBackground - 1, 0, 1}}};
    for (int i = 0; i < kBackground; ++i) {
      order.push_back(call_block(schedule, background, 0, i));
      if (i == 0) order.back().waits = {{EdgeKind::finish_start, {filled, 0, 0, 0, 0}}};
    }
  }
  for (int i = 0; i < kMeasured; ++i) {
    order.push_back(call_block(schedule, measured, 0, i));
    if (i == 0 && beside != nullptr) order.back().waits = {{EdgeKind::start_start, {background_op, 0, 0, 0, 0}}};
  }
  host::HostOptions options;
  options.cores_per_device = 2;
  const ProbeRun run = run_probe(schedule, options, 2, 7);
  std::vector<double> times;
  for (const Timeline& timeline : run.timelines) {
    Picoseconds begin = 0, end = beside != nullptr ? 0 : INT64_MAX;
    for (const TimelineRow& row : timeline.rows)
      if (beside != nullptr && run.programs.front().ops[row.op].op == background_op) {
        if (begin == 0) begin = row.start;
        end = row.end;
      }
    for (const TimelineRow& row : timeline.rows)
      if (run.programs.front().ops[row.op].op == schedule.blocks[measured].ops.front() && row.start >= begin && row.end <= end) times.push_back(to_us(row.end - row.start));
  }
  return times;
}

}  // namespace

std::array<std::array<sim::Quantity, kDemandClasses>, kDemandClasses> probe_interference(int cores) {
  std::array<std::array<sim::Quantity, kDemandClasses>, kDemandClasses> slowdown{};
  for (int a = 0; a < kDemandClasses; ++a) {
    const auto measured_class = static_cast<DemandClass>(a);
    const std::vector<double> alone = cores < 2 ? std::vector<double>{1.0} : times_us(measured_class, nullptr);
    for (int b = 0; b < kDemandClasses; ++b) {
      const auto beside_class = static_cast<DemandClass>(b);
      if (cores < 2) {
        slowdown[a][b].source = {"assumed", "one core: nothing runs beside anything", 0};
        continue;
      }
      const std::vector<double> beside = times_us(measured_class, &beside_class);
      const double ratio = beside.empty() ? 1 : median_of(beside) / median_of(alone);
      slowdown[a][b] = {std::max(0.0, ratio - 1), {"measured", "two lanes joined by a start-start edge, overlapped window", beside.empty() ? 0 : spread_pct_of(beside)}};
    }
  }
  return slowdown;
}

}  // namespace stretto::calibrate
