#include "model/scenario/keys.hpp"
#include "model/scenario/not_modelled.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

struct Spelling {
  const char* section;
  const char* other;
  const char* key;
};
constexpr Spelling kSpellings[] = {
    // NeMo
    {"overlap", "overlap_grad_sync", "overlap_grad_reduce"},
    {"overlap", "overlap_param_sync", "overlap_param_gather"},
    {"overlap", "fp8_params", "fp8_param_gather"},
    {"overlap", "ub_tp_comm_overlap", "tp_comm_overlap"},
    {"overlap", "ub_tp_comm_overlap_cfg", "tp_comm_overlap_cfg"},
    {"training", "activations_checkpoint_granularity", "recompute_granularity"},
    {"training", "activations_checkpoint_method", "recompute_method"},
    {"training", "activations_checkpoint_num_layers", "recompute_num_layers"},
    {"training", "gradient_clip_val", "clip_grad"},
    // Megatron-LM's command line, and its names before TransformerEngine 1.6
    {"parallel", "decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"},
    {"parallel", "decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"},
    {"overlap", "tp_comm_split_ag", "tp_comm_overlap_ag"},
    {"overlap", "tp_comm_split_rs", "tp_comm_overlap_rs"},
};

}  // namespace

TomlTable section_of(TomlTable& root, const std::string& name) {
  TomlTable section = root.section(name);
  refuse_not_modelled(section);
  for (const ScenarioKey& key : scenario_keys_of(name))
    for (const char* other : key.also) section.also_spelled(key.name, other);
  for (const Spelling& spelling : kSpellings)
    if (spelling.section == name) section.also_spelled(spelling.key, spelling.other);
  return section;
}

}  // namespace stretto
