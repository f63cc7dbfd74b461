#include "model/without_effect.hpp"

#include <algorithm>
#include <cstring>

#include "model/acting_overlap.hpp"
#include "model/scenario/keys.hpp"

namespace stretto {
namespace {

// Keys that need another key but whose values JSON and records show all the same, so that their rows have no `acts`.
struct Need {
  const char* key;
  const char* needs;
  bool (*acts)(const Scenario&);
};
bool has_experts(const Scenario& s) { return s.model.experts.any(); }
bool has_replicas(const Scenario& s) { return s.parallel.replicas() > 1; }
bool overlaps_tp(const Scenario& s) { return s.overlap.tp_comm_overlap; }
constexpr Need kNeeds[] = {
    {"moe_router_load_balancing_type", "moe_aux_loss_coeff above 0",
     [](const Scenario& s) {
       const Experts& experts = s.model.experts;
       return experts.moe_aux_loss_coeff > 0 || experts.moe_router_load_balancing_type == LoadBalancing::none;
     }},
    {"add_qkv_bias", "add_bias_linear = false, as it gives q, k and v theirs",
     [](const Scenario& s) { return !s.model.add_bias_linear; }},
    {"batch_p2p_comm", "pipeline_model_parallel_size above 1",
     [](const Scenario& s) { return s.parallel.pipeline_model_parallel_size > 1; }},
    {"ep_flash_shards", "ep_flash_overlap with padding", cuts_exchanges},
    {"grad_reduce_in_fp32", "replicas that reduce gradients", has_replicas},
    {"data_parallel_sharding_strategy", "replicas that share the state", has_replicas},
    {"tp_comm_bulk_dgrad", "tp_comm_overlap", overlaps_tp},
    {"tp_comm_bulk_wgrad", "tp_comm_overlap", overlaps_tp},
    {"tp_comm_overlap_ag", "tp_comm_overlap", overlaps_tp},
    {"tp_comm_overlap_rs", "tp_comm_overlap", overlaps_tp},
    {"tp_comm_overlap_rs_dgrad", "tp_comm_overlap", overlaps_tp},
    {"moe_expert_loads", "num_moe_experts", has_experts},
    {"moe_expert_loads_exponent", "num_moe_experts", has_experts},
    {"recompute_whole_layers", "recompute_granularity",
     [](const Scenario& s) { return s.training.recompute.granularity != Recompute::Granularity::none; }},
};

const Need* need_of(const ScenarioKey& key) {
  for (const Need& need : kNeeds)
    if (std::strcmp(need.key, key.name) == 0) return &need;
  return nullptr;
}

// The conditions of the documentation's table, as plain text.
std::string needs_of(const ScenarioKey& key) {
  if (const Need* need = need_of(key)) return std::string("it needs ") + need->needs;
  std::string text = key.range;
  std::erase(text, '`');
  return text.starts_with("acts ") ? text : "nothing in this scenario reads it";
}

// Returns the value that the file gives, and not what code makes of it.
KeyValue given_value(ScenarioKey key, const Scenario& scenario) {
  if (key.field != nullptr) key.get = nullptr;
  return value_of(key, scenario);
}

}  // namespace

std::vector<std::string> keys_without_effect(const Scenario& scenario) {
  static const Scenario kDefaults;
  std::vector<std::string> lines;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section)) {
      if (key.field == nullptr && key.get == nullptr) continue;
      if (std::strcmp(key.name, "fp8_transposes") == 0) continue;  // the platform gives it, too
      const Need* need = need_of(key);
      if ((key.acts == nullptr || key.acts(scenario)) && (need == nullptr || need->acts(scenario))) continue;
      const std::vector<std::string>& given = scenario.by_profile;
      if (std::find(given.begin(), given.end(), key.name) != given.end()) continue;
      if (given_value(key, scenario) == given_value(key, kDefaults)) continue;
      lines.push_back(std::string(key.name) + " has no effect here: " + needs_of(key));
    }
  return lines;
}

}  // namespace stretto
