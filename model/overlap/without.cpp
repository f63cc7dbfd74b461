#include "model/overlap/without.hpp"

#include <algorithm>

#include "model/overlap/overlap.hpp"

namespace stretto {
namespace {

struct Switch {
  std::string knob;
  bool Overlap::*on = nullptr;
  bool Overlap::*within = nullptr;  // it acts only where this switch is on, too
};

// The knobs of the modes, and the switches that are not modes of their own.
std::vector<Switch> all_switches() {
  std::vector<Switch> switches;
  for (const OverlapMode& mode : overlap_modes())
    if (mode.on && mode.name == mode.knob) switches.push_back({mode.knob, mode.on});
  for (const Switch& within : std::vector<Switch>{
           {"align_grad_reduce", &Overlap::align_grad_reduce, &Overlap::overlap_grad_reduce},
           {"align_param_gather", &Overlap::align_param_gather, &Overlap::overlap_param_gather},
           {"overlap_param_gather_with_optimizer_step", &Overlap::overlap_param_gather_with_optimizer_step,
            &Overlap::overlap_param_gather},
           {"fp8_param_gather", &Overlap::fp8_param_gather},
           {"reduce_scatter_with_fp32_accumulation", &Overlap::reduce_scatter_with_fp32_accumulation},
           {"tp_comm_bulk_dgrad", &Overlap::tp_comm_bulk_dgrad, &Overlap::tp_comm_overlap},
           {"tp_comm_bulk_wgrad", &Overlap::tp_comm_bulk_wgrad, &Overlap::tp_comm_overlap},
           {"tp_comm_overlap_ag", &Overlap::tp_comm_overlap_ag, &Overlap::tp_comm_overlap},
           {"tp_comm_overlap_rs", &Overlap::tp_comm_overlap_rs, &Overlap::tp_comm_overlap},
           {"tp_comm_overlap_rs_dgrad", &Overlap::tp_comm_overlap_rs_dgrad, &Overlap::tp_comm_overlap},
           {"overlap_p2p_comm_warmup_flush", &Overlap::overlap_p2p_comm_warmup_flush, &Overlap::overlap_p2p_comm},
           {"defer_embedding_wgrad_compute", &Overlap::defer_embedding_wgrad_compute}})
    switches.push_back(within);
  return switches;
}

// Turns off every switch that is an error now, until none is. Names those that acted `before`.
void turn_off_refused(const std::vector<Switch>& switches, const Gates& before, Scenario& scenario,
                      std::vector<std::string>& also_off) {
  for (bool changes = true; changes;) {
    changes = false;
    const Gates gates = gates_of(scenario);
    for (const Gate& gate : gates.all()) {
      if (gate.kind != GateKind::error || !gate.asked || gate.open) continue;
      for (const Switch& refused : switches) {
        if (refused.knob != gate.knob || !(scenario.overlap.*refused.on)) continue;
        scenario.overlap.*refused.on = false;
        if (before.acts(refused.knob)) also_off.push_back(refused.knob);
        changes = true;
      }
    }
  }
}

}  // namespace

std::vector<WithoutKnob> without_each_knob(const Scenario& scenario) {
  const std::vector<Switch> switches = all_switches();
  const Gates gates = gates_of(scenario);
  const auto acts = [&](bool Overlap::*on) {
    return scenario.overlap.*on && std::all_of(switches.begin(), switches.end(), [&](const Switch& knob) {
             return knob.on != on || gates.acts(knob.knob);
           });
  };
  std::vector<WithoutKnob> without;
  for (const Switch& knob : switches) {
    if (!acts(knob.on) || (knob.within && !acts(knob.within))) continue;
    Scenario changed = scenario;
    changed.overlap.*knob.on = false;
    WithoutKnob& row = without.emplace_back(WithoutKnob{knob.knob, {}, {}});
    if (!changed.overlap.defer_embedding_wgrad_compute) changed.overlap.wgrad_deferral_limit = 0;
    turn_off_refused(switches, gates, changed, row.also_off);
    row.overlap = changed.overlap;
  }
  return without;
}

}  // namespace stretto
