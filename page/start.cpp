#include "page/start.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/scenario/hf_config.hpp"
#include "model/transformer.hpp"

namespace stretto::page {

std::string start_toml(const std::string& model) {
  constexpr std::int64_t kMostTokens = 8192;
  const std::vector<std::string> presets = preset_names();
  const bool is_preset = std::find(presets.begin(), presets.end(), model) != presets.end();
  const Transformer shape = is_preset || !model.ends_with(".json") ? preset(model) : read_hf_config(model).model;
  std::string text = "name = \"" + std::string(is_preset ? model : "config") +
                     "\"\nplatform = \"h100-sxm\"\nprofile = \"" +
                     (shape.experts.any() ? "megatron-bridge-moe" : "nemo-dgxc") + "\"\n\n[model]\n" +
                     (is_preset ? "preset = " : "hf_config = ") + nlohmann::json(model).dump() + "\n";
  if (shape.seq_length > kMostTokens) text += "seq_length = " + std::to_string(kMostTokens) + "\n";
  text += "\n[parallel]\ndata_parallel_size = 8\n";
  if (shape.experts.any()) text += "expert_tensor_parallel_size = 1\n";
  return text + "\n[training]\nmicro_batch_size = 1\nglobal_batch_size = 128\n";
}

}  // namespace stretto::page
