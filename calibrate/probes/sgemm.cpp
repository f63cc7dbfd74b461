#include "calibrate/probes/probes.hpp"
#include "calibrate/probes/run.hpp"
#include "model/lower/builder.hpp"

namespace stretto::calibrate {

sim::Quantity probe_sgemm_GFLOPs(std::int64_t size) {
  Schedule schedule;
  schedule.name = "probe_sgemm";
  schedule.mesh = Mesh({{Coord::dp, 1}});
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  schedule.programs = {{"rank", {}}};
  Block block{"sgemm", {}};
  View views[3];
  for (int i = 0; i < 3; ++i) {
    const TensorId id = add_tensor(schedule, std::string("matrix_") + "abc"[i], Dtype::f32, BufferKind::activation, size, size);
    views[i] = whole(schedule, id);
    if (i < 2) add_operation(schedule, block, {"fill_" + std::to_string(i), Fill{size * size, 0.5}, 0, Phase::setup, {write(View{id, 0, 0, 0, 1, size * size, size * size})}});
  }
  const OpId sgemm = add_operation(schedule, block, {"sgemm", Gemm{size, size, size, false, false, false}, 0, Phase::forward, {read(views[0]), read(views[1]), write(views[2])}});
  schedule.programs.front().order.push_back(call_block(schedule, add_block(schedule, std::move(block))));
  const ProbeRun run = run_probe(schedule, {}, 1, 9);
  std::vector<double> us;
  for (const Timeline& timeline : run.timelines)
    for (const TimelineRow& row : timeline.rows)
      if (run.programs.front().ops[row.op].op == sgemm) us.push_back(to_us(row.end - row.start));
  return {2.0 * double(size) * double(size) * double(size) / median_of(us) * 1e-3,
          {"measured", "sgemm " + std::to_string(size) + " cubed on one thread", spread_pct_of(us)}};
}

}  // namespace stretto::calibrate
