#include "interchange/precision_names.hpp"

#include <algorithm>
#include <cctype>

#include "interchange/imported.hpp"
#include "model/scenario/keys.hpp"

namespace stretto {
namespace {

using Keys = std::map<std::string, nlohmann::json>;

Keys fp8(const char* format, const char* recipe, bool gathers_codes) {
  return {
      {"training.fp8_format", format}, {"training.fp8_recipe", recipe}, {"overlap.fp8_param_gather", gathers_codes}};
}

void keep_ends(Keys& keys, int layers) {
  keys["training.first_last_layers_bf16"] = true;
  keys["training.num_layers_at_start_in_bf16"] = keys["training.num_layers_at_end_in_bf16"] = layers;
}

}  // namespace

Keys low_precision_of(std::string name) {
  for (char& letter : name)
    letter = letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("nvfp4") || has("fp4")) {
    Keys keys = {
        {"training.fp4_format", "e2m1"}, {"training.fp4_recipe", "nvfp4"}, {"training.fp4_param_gather", true}};
    if (has("nemotron_3_super")) keys["training.first_last_layers_bf16"] = true;
    if (has("nemotron_3_super")) keys["training.num_layers_at_start_in_bf16"] = 0;
    if (has("nemotron_3_super")) keys["training.num_layers_at_end_in_bf16"] = 14;
    return keys;
  }
  if (has("mxfp8") || has("fp8_mx")) {
    Keys keys = fp8("e4m3", "mxfp8", true);
    keys["training.reuse_grad_buf_for_mxfp8_param_ag"] = true;
    return keys;
  }
  if (has("nanov2")) {
    Keys keys = fp8("hybrid", "blockwise", true);
    keep_ends(keys, 2);
    return keys;
  }
  if (has("fp8_subchannel") || has("fp8_sc") || has("fp8_blockwise")) return fp8("hybrid", "blockwise", false);
  if (has("fp8_current")) {
    Keys keys = fp8("hybrid", "tensorwise", true);
    keep_ends(keys, has("nemotron_h") ? 2 : 1);
    return keys;
  }
  if (has("fp8_cs")) return fp8("hybrid", "tensorwise", true);
  if (!has("fp8")) return {};
  Keys keys = fp8("hybrid", "delayed", true);  // fp8_delayed, fp8_ds, NeMo's "bf16-mixed_with_fp8"
  keys["training.fp8_amax_history_len"] = 1024;
  keys["training.fp8_amax_compute_algo"] = "max";
  return keys;
}

bool is_low_precision_key(const std::string& key) {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> names;
    for (const ScenarioKey& row : scenario_keys_of("training"))
      if (row.field != nullptr) {
        Scenario scenario;
        const void* place = std::visit(
            [](const auto& to) -> const void* {
              if constexpr (std::is_same_v<std::decay_t<decltype(to)>, WordField>)
                return to.value;
              else
                return to;
            },
            row.field(scenario));
        const LowPrecision* of = &scenario.training.low_precision;
        if (place >= of && place < of + 1) names.push_back(row.full_name());
      }
    return names;
  }();
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

void finish_low_precision(Settings& settings) {
  const auto is_on = [&](const char* key) {
    const nlohmann::json* format = settings.find(key);
    return format != nullptr && *format != "none";
  };
  const bool fp8 = is_on("training.fp8_format"), fp4 = is_on("training.fp4_format");
  // Rows sent as codes to experts in bf16 are refused, and not forgotten.
  if (!fp8 && !fp4)
    std::erase_if(settings.values, [](const auto& one) {
      const bool sends_codes = one.first.ends_with("_dtype") && one.second == "mxfp8";
      return is_low_precision_key(one.first) && !sends_codes;
    });
  if (!settings.is("training.first_last_layers_bf16", true))
    for (const char* key : {"training.num_layers_at_start_in_bf16", "training.num_layers_at_end_in_bf16"})
      settings.values.erase(key);
  if (!fp8 || !settings.is("training.fp8_recipe", "mxfp8") || !settings.is("overlap.fp8_param_gather", true))
    settings.values.erase("training.reuse_grad_buf_for_mxfp8_param_ag");
  const bool is_delayed =
      fp8 && (settings.find("training.fp8_recipe") == nullptr || settings.is("training.fp8_recipe", "delayed"));
  if (!is_delayed)
    for (const char* key : {"training.fp8_margin", "training.fp8_amax_history_len", "training.fp8_amax_compute_algo",
                            "training.tp_only_amax_red"})
      settings.values.erase(key);
}

}  // namespace stretto
