#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"
#include "model/overlap/serial_reductions.hpp"
#include "model/schedule/derive.hpp"
#include "model/step_size.hpp"
#include "model/without_effect.hpp"

namespace stretto {
namespace {

void turn_off(Overlap& overlap, const OverlapMode& mode) {
  if (mode.on) overlap.*mode.on = false;
  if (mode.clear) mode.clear(overlap);
}

// Sets a mode's knobs, and those of other modes that it turns on as well, unless they cannot act in the layout.
void set_mode_in(const Parallel& parallel, Overlap& overlap, const OverlapMode& mode) {
  set_mode(overlap, mode);
  if (!mode.applies(parallel)) return;  // a gate says why
  for (const OverlapMode& other : overlap_modes())
    if (other.on != mode.on && !other.applies(parallel)) turn_off(overlap, other);
}

// Returns whether reading a scenario with these knobs would be an error.
bool is_refused(const Scenario& scenario) {
  const Gates gates = gates_of(scenario);
  const Gate* const refused = gates.refused({});
  return refused != nullptr && refused->section == "overlap";
}

// Sums of bf16 are rounded at each rank, as those of a ring of NCCL.
void sum_round_rings(Schedule& schedule) {
  for (Operation& operation : schedule.operations) {
    auto* collective = std::get_if<Collective>(&operation.work);
    if (collective != nullptr && rule_of(collective->kind).reduces() && collective->reduction == Reduction::sum &&
        schedule.dtype_of(operation.accesses.front().view) == Dtype::bf16)
      collective->reduction = Reduction::ring_sum;
  }
}

}  // namespace

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

std::string mode_name(const Overlap& overlap) {
  std::string name;
  for (const OverlapMode& mode : overlap_modes())
    if (mode.is_set(overlap)) name += (name.empty() ? "" : "+") + mode.name;
  return name.empty() ? overlap_modes().front().name : name;
}

void set_mode(Overlap& overlap, const OverlapMode& mode) {
  for (const OverlapMode& other : overlap_modes()) turn_off(overlap, other);
  if (mode.on) overlap.*mode.on = true;
  if (mode.configure) mode.configure(overlap);
}

std::vector<std::string> modes_of(const Scenario& scenario) {
  std::vector<std::string> modes;
  bool is_listed = false;
  for (const OverlapMode& mode : overlap_modes()) {
    if (!mode.applies(scenario.parallel)) continue;
    const Scenario with = with_mode(scenario, mode.name, scenario.parallel.ranks());
    if (is_refused(with)) continue;
    modes.push_back(mode.name);
    is_listed = is_listed || with.overlap == scenario.overlap;
  }
  if (!is_listed) modes.push_back(kAsGiven);
  return modes;
}

Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t ranks) {
  const std::int64_t micro_batches = scenario.num_microbatches();
  if (mode != kAsGiven) set_mode_in(scenario.parallel, scenario.overlap, find_overlap_mode(mode));
  scenario.parallel.data_parallel_size = ranks / scenario.parallel.model_ranks();
  scenario.training.global_batch_size =
      micro_batches * scenario.training.micro_batch_size * scenario.parallel.data_parallel_size;
  return scenario;
}

namespace {

// A gate of a key says more than that the key is idle.
void add_idle_keys(const Scenario& scenario, std::vector<std::string>& notes) {
  for (std::string& line : keys_without_effect(scenario)) {
    const std::string start = line.substr(0, line.find(' ')) + " is off: ";
    const auto says = [&](const std::string& note) { return note.starts_with(start); };
    if (std::none_of(notes.begin(), notes.end(), says)) notes.push_back(std::move(line));
  }
}

}  // namespace

Schedule build_schedule(const Scenario& scenario, std::int64_t free_bytes) {
  // Any machine can build a small step, so only large ones are checked.
  if (step_size_of(scenario).bytes > double(1 << 28)) require_size(scenario, free_bytes);
  Lowered lowered = lower_plain(scenario);
  const Gates gates = gates_of(scenario);
  lowered.schedule.notes = gates.notes(scenario.by_profile);
  add_idle_keys(scenario, lowered.schedule.notes);
  if (const std::int64_t layers = scenario.model.num_nextn_predict_layers; layers > 0)
    lowered.schedule.notes.push_back("num_nextn_predict_layers is " + std::to_string(layers) +
                                     ": multi-token prediction is not modelled, and its layers are left out");
  lowered.schedule.notes.insert(lowered.schedule.notes.end(), scenario.model.left_out.begin(),
                                scenario.model.left_out.end());
  Overlap acting = scenario.overlap;
  for (const OverlapMode& mode : overlap_modes())
    if (!gates.acts(mode.knob)) turn_off(acting, mode);
  for (const RewriteStage stage : {RewriteStage::cut_blocks, RewriteStage::attach_data_parallel})
    for (const OverlapMode& mode : overlap_modes())
      if (mode.rewrite && mode.stage == stage && mode.is_set(acting)) mode.rewrite(lowered, scenario, gates);
  if (scenario.training.round_partial_sums) sum_round_rings(lowered.schedule);
  derive_waits(lowered.schedule, lowered.free);
  assign_streams(lowered.schedule, scenario.cluster);
  if (scenario.cluster.cuda_device_max_connections == 1 && scenario.framework.host.reductions_serialise.value >= 0.5)
    serialise_reductions(lowered.schedule);
  lowered.schedule.name = mode_name(acting);
  for (const OverlapMode& mode : overlap_modes())
    if (mode.is_set(acting)) lowered.schedule.modes.push_back(mode.name);
  return std::move(lowered.schedule);
}

}  // namespace stretto
