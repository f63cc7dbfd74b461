// overlap_p2p_comm (Megatron-LM): messages between pipeline stages have lanes of their own, concurrent with compute.
// model/lower/stage_writer writes them so.
//
// Edges:   operation that made the data  →  send;  last use of the buffer  →  recv  →  operation that needs the data
// Exposed: the part of a message that is longer than the compute between its send and its use.
#include <algorithm>
#include <string>
#include <vector>

#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

// batch_p2p_comm keeps its value with overlapped messages too, on which it does not act, because modes without overlap
// are compared as well.
void read(TomlTable& table, Overlap& overlap) {
  // A user who asks for batches, where only the profile overlaps messages, gets batches.
  const std::vector<std::string> of_profile = table.default_keys();
  const auto is_of_profile = [&](const char* key) {
    return std::find(of_profile.begin(), of_profile.end(), key) != of_profile.end();
  };
  if (table.has("batch_p2p_comm") && overlap.batch_p2p_comm && !is_of_profile("batch_p2p_comm") &&
      is_of_profile("overlap_p2p_comm"))
    overlap.overlap_p2p_comm = false;
}

void check(TomlTable& table, const Overlap& overlap) {
  if (overlap.overlap_p2p_comm && value_or<bool>(table, "batch_p2p_comm", false))
    throw table.failure("batch_p2p_comm", "expected only one of it and overlap_p2p_comm, got both");
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const Overlap& o = scenario.overlap;
  const char* knob = "overlap_p2p_comm";
  gates.above_one(knob, o.overlap_p2p_comm, "pipeline_model_parallel_size",
                  scenario.parallel.pipeline_model_parallel_size, bridge("training/comm_overlap.py:462"));
  // Only check() knows whether the user asked for batch_p2p_comm: it is on by default, and acts in modes without the
  // knob.
  gates.add({.knob = knob,
             .needs = "batch_p2p_comm not asked for",
             .kind = GateKind::error,
             .source = megatron("core/pipeline_parallel/schedules.py:1086"),
             .asked = o.overlap_p2p_comm,
             .open = true,
             .key = "batch_p2p_comm"});
  gates.add({.knob = knob,
             .needs = "virtual_pipeline_model_parallel_size above 1",
             .kind = GateKind::acts,
             .source = megatron("arguments.py:1012, with a warning"),
             .wider = "messages of stages of one chunk each overlap with compute, too",
             .asked = o.overlap_p2p_comm});
  const char* flush = "overlap_p2p_comm_warmup_flush";
  gates.add({.knob = flush,
             .needs = "overlap_p2p_comm = true",
             .kind = GateKind::error,
             .source = megatron("core/model_parallel_config.py:570"),
             .asked = o.overlap_p2p_comm_warmup_flush,
             .open = o.overlap_p2p_comm,
             .got = "false"});
  gates.above_one(flush, o.overlap_p2p_comm_warmup_flush, "virtual_pipeline_model_parallel_size",
                  scenario.parallel.virtual_pipeline_model_parallel_size,
                  megatron("core/pipeline_parallel/schedules.py:1576, nothing else reads it"));
  const PipelineSchedule schedule = scenario.parallel.pipeline_schedule;
  gates.add({.knob = flush,
             .needs = "pipeline_schedule = 1f1b",
             .source = kNothingToActOn,
             .asked = o.overlap_p2p_comm_warmup_flush,
             .open = !is_zero_bubble(schedule),
             .why = std::string("pipeline_schedule is \"") + name_of(schedule) +
                    "\", whose receives are posted early always"});
}

}  // namespace

OverlapMode overlap_p2p_comm_mode() {
  return {.name = "overlap_p2p_comm",
          .meaning = "messages between pipeline stages run during compute",
          .memory = "one buffer of activations and one of their gradients for messages still under way",
          .knob = "overlap_p2p_comm",
          .on = &Overlap::overlap_p2p_comm,
          .applies = [](const Parallel& p) { return p.pipeline_model_parallel_size > 1; },
          .clear = [](Overlap& o) { o.overlap_p2p_comm_warmup_flush = false; },
          .is_meant = [](const Overlap& o) { return !o.overlap_moe_expert_parallel_comm; },
          .read = read,
          .check = check,
          .gates = add_gates};
}

}  // namespace stretto
