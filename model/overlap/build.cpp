#include <utility>

#include "base/memory.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/derive.hpp"
#include "model/step_size.hpp"

namespace stretto {

Schedule build_schedule(const Scenario& scenario) {
  // What is free is asked where it might matter.
  if (step_size_of(scenario).bytes > double(1 << 28)) require_size(scenario, free_memory_bytes());
  Lowered lowered = lower_plain(scenario);
  const Gates gates = gates_of(scenario);
  lowered.schedule.notes = gates.notes();
  Overlap acting = scenario.overlap;
  for (const OverlapMode& mode : overlap_modes())
    if (!gates.acts(mode.knob)) mode.clear(acting);
  for (const RewriteStage stage : {RewriteStage::cut_blocks, RewriteStage::attach_data_parallel})
    for (const OverlapMode& mode : overlap_modes())
      if (mode.rewrite && mode.stage == stage && mode.is_set(acting)) mode.rewrite(lowered, scenario, gates);
  derive_waits(lowered.schedule, lowered.free);
  assign_streams(lowered.schedule, scenario.cluster);
  lowered.schedule.name = mode_name(acting);
  return std::move(lowered.schedule);
}

}  // namespace stretto
