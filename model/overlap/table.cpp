#include <algorithm>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"
#include "model/step_size.hpp"

namespace stretto {
namespace {

bool always(const Parallel&) { return true; }
bool with_sequence_parallel(const Parallel& p) { return p.tensor_model_parallel_size > 1 && p.sequence_parallel; }

// Of the modes that tp_comm_overlap covers, the one whose knobs are set.
const char* tp_mode_name(const Overlap& o) {
  const auto proj = o.tp_comm_overlap_cfg.find("proj_fprop");
  if (proj != o.tp_comm_overlap_cfg.end() && proj->second.method == TpMethod::ring_exchange)
    return "tp_comm_ring_exchange";
  return o.tp_comm_overlap_ag || o.tp_comm_overlap_rs || !o.tp_comm_overlap_cfg.empty() ? "tp_comm_overlap"
                                                                                        : "tp_comm_bulk";
}

}  // namespace

const std::vector<OverlapMode>& overlap_modes() {
  static const std::vector<OverlapMode> kModes = {
      {"plain", "nothing overlaps: backward, reduce-scatter, optimizer, all-gather one after the other",
       [](Overlap&) {}, always},
      {"overlap_grad_reduce", "gradient buckets are reduced while backward goes on",
       [](Overlap& o) { o.overlap_grad_reduce = true; }, always},
      {"overlap_param_gather",
       "also: parameter buckets are gathered while the next forward goes on (needs overlap_grad_reduce)",
       [](Overlap& o) { o.overlap_grad_reduce = o.overlap_param_gather = true; }, always},
      {"async_tensor_model_parallel_allreduce", "data gradients are summed over tp beside the layer's weight gradient",
       [](Overlap& o) { o.async_tensor_model_parallel_allreduce = true; },
       [](const Parallel& p) { return p.tensor_model_parallel_size > 1 && !p.sequence_parallel; }},
      {"tp_comm_bulk", "a layer's input is gathered over tp beside its dgrad, its dgrad scattered beside its wgrad",
       [](Overlap& o) {
         o.tp_comm_overlap = true;
         o.tp_comm_overlap_ag = o.tp_comm_overlap_rs = o.tp_comm_overlap_rs_dgrad = false;
         o.tp_comm_overlap_cfg.clear();
       },
       with_sequence_parallel},
      {"tp_comm_overlap", "also: inputs are gathered, and results scattered, in pieces beside the GEMM they belong to",
       [](Overlap& o) { o.tp_comm_overlap = true; }, with_sequence_parallel},
      {"tp_comm_ring_exchange", "the same with results sent to their owners piece by piece and summed there",
       [](Overlap& o) {
         o.tp_comm_overlap = true;
         for (const char* gemm : {"proj_fprop", "fc2_fprop"})
           o.tp_comm_overlap_cfg.emplace(gemm, TpGemm{TpMethod::ring_exchange});
       },
       with_sequence_parallel},
      {"overlap_p2p_comm", "messages between pipeline stages run beside compute",
       [](Overlap& o) { o.overlap_p2p_comm = true; },
       [](const Parallel& p) { return p.pipeline_model_parallel_size > 1; }},
  };
  return kModes;
}

const OverlapMode& find_overlap_mode(const std::string& name) {
  std::vector<std::string> names;
  for (const OverlapMode& mode : overlap_modes()) {
    if (mode.name == name) return mode;
    names.push_back(mode.name);
  }
  std::string message = "mode \"" + name + "\" is unknown; expected one of";
  for (const std::string& known : names) message += " " + known;
  if (const std::string nearest = nearest_spelling(name, names); !nearest.empty())
    message += "; did you mean \"" + nearest + "\"?";
  throw input_error(message);
}

std::vector<std::string> modes_of(const Scenario& scenario) {
  std::vector<std::string> modes;
  bool is_listed = false;
  for (const OverlapMode& mode : overlap_modes()) {
    if (!mode.applies(scenario.parallel)) continue;
    modes.push_back(mode.name);
    is_listed = is_listed || with_mode(scenario, mode.name, scenario.parallel.ranks()).overlap == scenario.overlap;
  }
  if (!is_listed) modes.push_back(kAsGiven);
  return modes;
}

std::string mode_name(const Overlap& o) {
  std::string name;
  const auto add = [&](bool on, const char* mode) {
    if (on) name += (name.empty() ? "" : "+") + std::string(mode);
  };
  add(o.overlap_grad_reduce && !o.overlap_param_gather, "overlap_grad_reduce");
  add(o.overlap_param_gather, "overlap_param_gather");
  add(o.async_tensor_model_parallel_allreduce, "async_tensor_model_parallel_allreduce");
  add(o.tp_comm_overlap, tp_mode_name(o));
  add(o.overlap_p2p_comm, "overlap_p2p_comm");
  return name.empty() ? "plain" : name;
}

void set_mode(Overlap& overlap, const OverlapMode& mode) {
  overlap.overlap_grad_reduce = overlap.overlap_param_gather = false;
  overlap.async_tensor_model_parallel_allreduce = overlap.tp_comm_overlap = overlap.overlap_p2p_comm = false;
  overlap.overlap_p2p_comm_warmup_flush = false;
  mode.configure(overlap);
}

Schedule build_schedule(const Scenario& scenario) {
  // What is free is asked where it might matter.
  if (step_size_of(scenario).bytes > double(1 << 28)) require_size(scenario, free_memory_bytes());
  Lowered lowered = lower_plain(scenario);
  const Overlap& overlap = scenario.overlap;
  const std::vector<Gate> gates = gates_of(scenario);
  lowered.schedule.notes = notes_of(gates);
  // Blocks are cut first: what follows looks for operations in them.
  if (acts(gates, "async_tensor_model_parallel_allreduce")) rewrite_async_allreduce(lowered);
  if (acts(gates, "tp_comm_overlap"))
    rewrite_tp_comm_overlap(
        lowered,
        tp_methods(overlap, scenario.model, scenario.parallel.tensor_model_parallel_size, lowered.schedule.notes),
        overlap.tp_comm_overlap_compute_lanes);
  if (acts(gates, "overlap_grad_reduce")) rewrite_overlap_grad_reduce(lowered);
  if (acts(gates, "overlap_param_gather")) rewrite_overlap_param_gather(lowered, acts(gates, "align_param_gather"));
  assign_streams(lowered.schedule, scenario.cluster);
  Overlap acting = overlap;
  acting.overlap_grad_reduce = acts(gates, "overlap_grad_reduce");
  acting.overlap_param_gather = acts(gates, "overlap_param_gather");
  acting.async_tensor_model_parallel_allreduce = acts(gates, "async_tensor_model_parallel_allreduce");
  acting.tp_comm_overlap = acts(gates, "tp_comm_overlap");
  acting.overlap_p2p_comm = acts(gates, "overlap_p2p_comm");
  lowered.schedule.name = mode_name(acting);
  return std::move(lowered.schedule);
}

Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t ranks) {
  const std::int64_t micro_batches = scenario.num_microbatches();
  if (mode != kAsGiven) set_mode(scenario.overlap, find_overlap_mode(mode));
  scenario.parallel.data_parallel_size = ranks / scenario.parallel.model_ranks();
  scenario.training.global_batch_size =
      micro_batches * scenario.training.micro_batch_size * scenario.parallel.data_parallel_size;
  return scenario;
}

}  // namespace stretto
