// overlap_p2p_comm (Megatron-LM): messages between pipeline stages on lanes of their own, beside compute.
// model/lower/stage_writer writes them so.
//
// Edges:   what made it  →  send;  last use of the buffer  →  recv  →  what needs it
// Exposed: the part of a message that is longer than the compute between its send and its use.
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

void read(TomlTable& table, Overlap& overlap) {
  // Kept as it is for messages beside compute too, which it does not act on: modes without them are compared.
  overlap.batch_p2p_comm = value_or<bool>(table, "batch_p2p_comm", overlap.batch_p2p_comm);
  overlap.overlap_p2p_comm_warmup_flush =
      value_or<bool>(table, "overlap_p2p_comm_warmup_flush", overlap.overlap_p2p_comm_warmup_flush);
}

void check(TomlTable& table, const Overlap& overlap) {
  if (overlap.overlap_p2p_comm && value_or<bool>(table, "batch_p2p_comm", false))
    throw table.failure("batch_p2p_comm", "expected only one of it and overlap_p2p_comm, got both");
  if (overlap.overlap_p2p_comm_warmup_flush && !overlap.overlap_p2p_comm)
    throw table.failure("overlap_p2p_comm_warmup_flush", "expected overlap_p2p_comm = true as well, got false");
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const Overlap& o = scenario.overlap;
  gates.above_one("overlap_p2p_comm", o.overlap_p2p_comm, "pipeline_model_parallel_size",
                  scenario.parallel.pipeline_model_parallel_size);
  gates.error("overlap_p2p_comm", o.overlap_p2p_comm, "batch_p2p_comm not asked for", true);
  gates.error("overlap_p2p_comm_warmup_flush", o.overlap_p2p_comm_warmup_flush, "overlap_p2p_comm", o.overlap_p2p_comm);
  gates.above_one("overlap_p2p_comm_warmup_flush", o.overlap_p2p_comm_warmup_flush,
                  "virtual_pipeline_model_parallel_size", scenario.parallel.virtual_pipeline_model_parallel_size);
  const PipelineSchedule schedule = scenario.parallel.pipeline_schedule;
  gates.off("overlap_p2p_comm_warmup_flush", o.overlap_p2p_comm_warmup_flush, "pipeline_schedule 1f1b",
            !is_zero_bubble(schedule),
            std::string("pipeline_schedule is \"") + name_of(schedule) + "\", whose receives are posted early always");
}

}  // namespace

OverlapMode overlap_p2p_comm_mode() {
  return {.name = "overlap_p2p_comm",
          .meaning = "messages between pipeline stages run beside compute",
          .memory = "one buffer of activations and one of their gradients for messages still under way",
          .knob = "overlap_p2p_comm",
          .on = &Overlap::overlap_p2p_comm,
          .applies = [](const Parallel& p) { return p.pipeline_model_parallel_size > 1; },
          .clear = [](Overlap& o) { o.overlap_p2p_comm_warmup_flush = false; },
          .read = read,
          .check = check,
          .gates = add_gates};
}

}  // namespace stretto
