// Ring attention's messages overlap with attention (in TransformerEngine always when cp > 1, without a knob).
// model/passes/share_context.cpp has the steps.
//
// Edges:   recv_i → A_{i+1}, send_{i+1};  A_i → recv_{i+1}, which has its slot;  forward and backward; in the backward
//          pass also sum_i → send_{i+1}
// Time:    forward n − 1 steps of max(A, T_kv), and one of A; then the merge. Backward max(D_0, T_kv), n − 2 steps of
//          max(D, T_kv + T_dkv) and the sum, then max(D, T_dkv). Exposed: the time by which a message exceeds its step.
#include <string>
#include <vector>

#include "model/overlap/block_editor.hpp"
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "cp_comm_overlap";

void rewrite(Lowered& lowered, const Scenario&, const Gates&) {
  Schedule& schedule = lowered.schedule;
  for (const BlockId id : lowered.layer_blocks) {
    BlockEditor block(lowered, id);
    for (const OpId op : std::vector<OpId>(schedule.blocks[id].ops)) {
      const Operation& operation = schedule.operations[op];
      if (operation.lane == lowered.cp_send || operation.lane == lowered.cp_recv) block.set_free(operation.name);
    }
    block.commit();
  }
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& p = scenario.parallel;
  const bool asked = scenario.overlap.cp_comm_overlap;
  gates.above_one(kKnob, asked, "context_parallel_size", p.context_parallel_size);
  gates.add({.knob = kKnob,
             .needs = "cp_comm_type with a ring",
             .source = kNothingToActOn,
             .asked = asked,
             .open = p.context_parallel_size == 1 || p.has_cp_ring(),
             .why = "attention waits for the collectives of cp_comm_type " + names_of(p.cp_comm_types())});
}

}  // namespace

OverlapMode cp_comm_overlap_mode() {
  return {.name = kKnob,
          .meaning = "keys and values go round during the attention to those that are here",
          .knob = kKnob,
          .on = &Overlap::cp_comm_overlap,
          .applies = [](const Parallel& p) { return p.has_cp_ring(); },
          .gates = add_gates,
          .rewrite = rewrite};
}

}  // namespace stretto
