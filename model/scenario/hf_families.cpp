#include "model/scenario/hf_families.hpp"

#include <algorithm>
#include <map>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
using Phrases = std::map<std::string, std::string>;

struct FamilyRow {
  std::string like, experts, norm, mlp, biases, qk_norm;
  Words notes, needs, idle;
  Phrases note_if, needs_if, names;
  Json defaults = Json::object(), set = Json::object();
};
struct FamilyTable {
  std::map<std::string, FamilyRow> rows;  // [model_type]
  FamilyRow any;                          // conditions of every family
};

Phrases phrases_of(TomlTable table, const Phrases& words) {
  Phrases made;
  for (const std::string& key : table.keys()) {
    const std::string text = require<std::string>(table, key.c_str());
    const auto found = words.find(text);
    made[key] = found == words.end() ? text : found->second;
  }
  return made;
}

Words phrases_of(const Words& texts, const Phrases& words) {
  Words made;
  for (const std::string& text : texts) {
    const auto found = words.find(text);
    made.push_back(found == words.end() ? text : found->second);
  }
  return made;
}

Json value_in(TomlTable& table, const std::string& key) {
  if (const auto text = [&]() -> std::optional<std::string> {
        try {
          return table.find<std::string>(key);
        } catch (const Error&) {
          return std::nullopt;
        }
      }())
    return *text;
  try {
    return *table.find<bool>(key);
  } catch (const Error&) {
  }
  try {
    return *table.find<std::int64_t>(key);
  } catch (const Error&) {
    return *table.find<double>(key);
  }
}

const FamilyTable& family_table() {
  static const FamilyTable made = [] {
    TomlTable root = read_toml(data_path("families.toml"));
    const Phrases words = phrases_of(root.section("words"), {});
    FamilyTable all;
    all.any.needs_if = phrases_of(root.section("needs_if"), words);
    all.any.note_if = phrases_of(root.section("note_if"), words);
    for (TomlTable& one : root.tables("family")) {
      FamilyRow row;
      const auto word = [&](const char* key) { return value_or<std::string>(one, key, ""); };
      row.like = word("like");
      row.experts = word("experts");
      row.norm = word("norm");
      row.mlp = word("mlp");
      row.biases = word("biases");
      if (one.has("qk_norm")) row.qk_norm = value_in(one, "qk_norm").is_boolean() ? "true" : word("qk_norm");
      row.notes = phrases_of(value_or<Words>(one, "notes", {}), words);
      row.needs = phrases_of(value_or<Words>(one, "needs", {}), words);
      row.idle = value_or<Words>(one, "idle", {});
      row.note_if = phrases_of(one.section("note_if"), words);
      row.needs_if = phrases_of(one.section("needs_if"), words);
      row.names = phrases_of(one.section("names"), {});
      TomlTable defaults = one.section("defaults");
      for (const std::string& key : defaults.keys()) row.defaults[key] = value_in(defaults, key);
      TomlTable set = one.section("set");
      for (const std::string& key : set.keys()) row.set[key] = value_in(set, key);
      const Words types = require<Words>(one, "types");
      one.finish();
      for (const std::string& type : types) all.rows[type] = row;
    }
    return all;
  }();
  return made;
}

// Returns whether a key says that something is there.
bool says_so(const Json& config, const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null() || *found == false || *found == 0 || *found == "") return false;
  if (found->is_structured() && found->empty()) return false;
  const auto is_part = [&](const char* part) { return key.find(part) != std::string::npos; };
  const bool is_scale = is_part("factor") || is_part("scal") || is_part("multiplier") || is_part("percent");
  return !(is_scale && *found == 1.0);
}

std::string and_listed(const Words& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
  return text;
}

void add_once(Words& words, const std::string& one) {
  if (std::find(words.begin(), words.end(), one) == words.end()) words.push_back(one);
}

// The types of scaling that are read (hf_config.cpp); others change the frequencies of rope, and no time.
void take_scaling(Json& config, bool is_latent, Words& left_out) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_object()) continue;
    std::string type;
    for (const char* name : {"type", "rope_type"})
      if (found->contains(name) && (*found)[name].is_string()) type = (*found)[name];
    const Words read = is_latent ? Words{"", "default", "yarn"} : Words{"", "default", "linear", "llama3"};
    if (std::find(read.begin(), read.end(), type) != read.end()) continue;
    const Json base = found->contains("rope_theta") ? (*found)["rope_theta"] : Json();
    config.erase(found);
    if (!base.is_null() && !config.contains("rope_theta")) config["rope_theta"] = base;
    left_out.push_back("rope's scaling (" + type.substr(0, 20) + ") is left out, which changes no time");
  }
}

// Returns the number of an integer key, else 0.
std::int64_t number_of(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// Returns for each layer 1 where it is none of every `n`-th one.
std::vector<std::int64_t> but_every(std::int64_t n, std::int64_t layers) {
  std::vector<std::int64_t> made;
  for (std::int64_t layer = 0; layer < layers; ++layer) made.push_back((layer + 1) % n != 0);
  return made;
}

// Which layers have windows or chunks: layer_types, or every n-th layer has none. Other kinds of layers are other
// primitives.
void take_layer_types(Json& config, HfFamily& family, Words& needs) {
  constexpr std::int64_t kMostLayers = 16384;
  const std::int64_t layers = std::min(number_of(config, "num_hidden_layers"), kMostLayers);
  const std::int64_t every = number_of(config, "sliding_window_pattern");
  const auto types = config.find("layer_types");
  if (types != config.end() && types->is_array()) {
    for (const Json& one : *types) {
      const bool is_limited = one == "sliding_attention" || one == "chunked_attention";
      family.windows.push_back(is_limited);
      if (one.is_string() && !is_limited && one != "full_attention" && one != "attention")
        add_once(needs, "layers of other kinds (" + one.get<std::string>().substr(0, 40) + ")");
    }
    const bool has_windows = std::count(family.windows.begin(), family.windows.end(), 1) > 0;
    if (has_windows && !says_so(config, "sliding_window") && !says_so(config, "attention_chunk_size"))
      add_once(needs, "sliding_window or attention_chunk_size, which say how many keys some layers see");
  } else if (every > 0) {
    family.windows = but_every(every, layers);
  }
  // 1 is a layer with rotary positions.
  const auto turned = config.find("no_rope_layers");
  if (const std::int64_t without = number_of(config, "no_rope_layer_interval");
      turned != config.end() && turned->is_array() && !turned->empty()) {
    for (const Json& one : *turned) family.no_rope.push_back(one == 0);
  } else if (without > 0) {
    for (const std::int64_t one : but_every(without, layers)) family.no_rope.push_back(one == 0 ? 1 : 0);
  }
  // Where no layer_types say more, chunks are those of layers with rotary positions (Llama 4).
  if (family.windows.empty() && says_so(config, "attention_chunk_size"))
    for (const std::int64_t one : family.no_rope) family.windows.push_back(one == 0 ? 1 : 0);
  for (const char* key : {"sliding_window_pattern", "no_rope_layers", "no_rope_layer_interval"}) config.erase(key);
}

// Layers of a mixer, Mamba-2 or attention, and an MLP are layers of one sublayer each here (Granite 4).
void take_mixers(Json& config, const FamilyRow& row) {
  const auto types = config.find("layer_types");
  if (types == config.end() || !types->is_array() || std::count(types->begin(), types->end(), "mamba") == 0) return;
  if (!row.names.contains("mamba_d_state")) return;
  const char mlp = says_so(config, "num_local_experts") ? 'E' : '-';
  std::string pattern;
  for (const Json& one : *types) pattern += {one == "mamba" ? 'M' : '*', mlp};
  config.erase(types);
  config["hybrid_override_pattern"] = pattern;
  config["num_hidden_layers"] = pattern.size();
  if (mlp == 'E') return;
  config["intermediate_size"] = config.value("shared_intermediate_size", Json());
  for (const char* key : {"shared_intermediate_size", "num_local_experts", "num_experts_per_tok",
                          "router_aux_loss_coef", "output_router_logits"})
    config.erase(key);
}

// A model with towers has its language model's sizes in a section.
void descend(Json& config, Words& left_out) {
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object() || config.contains("hidden_size")) return;
  for (const char* tower : {"vision_config", "audio_config"})
    if (says_so(config, tower))
      add_once(left_out, "towers for images and sound are left out: the language model alone is meant");
  Json inner = *text;
  for (const char* key : {"tie_word_embeddings", "quantization_config"})
    if (config.contains(key) && !inner.contains(key)) inner[key] = config[key];
  const bool has_type = config.contains("model_type") && config["model_type"].is_string();
  const std::string type = has_type ? config["model_type"].get<std::string>() : "";
  const bool has_row = family_table().rows.contains(type);
  const bool is_known = !has_row && inner.contains("model_type") && inner["model_type"].is_string() &&
                        family_table().rows.contains(inner["model_type"].get<std::string>());
  if (!is_known && !type.empty()) inner["model_type"] = type;
  config = std::move(inner);
}

Error unknown_type(const std::string& type, const std::string& place) {
  Words accepted, all;
  for (const auto& [name, row] : family_table().rows) {
    if (!row.like.empty()) accepted.push_back(name);
    all.push_back(name);
  }
  const std::string nearest = nearest_spelling(type, all);
  return input_error(place + ": expected one of " + and_listed(accepted) + ", got " + in_quotes(type) +
                     (nearest.empty() ? "" : "; did you mean " + in_quotes(nearest) + "?"));
}

}  // namespace

HfFamily take_family(Json& config, const std::string& place,
                     const std::function<void(const std::string& from, const std::string& to)>& rename) {
  HfFamily family;
  descend(config, family.left_out);
  if (!config.contains("model_type") || !config["model_type"].is_string()) return family;
  const std::string type = config["model_type"];
  const FamilyTable& table = family_table();
  const auto found = table.rows.find(type);
  if (found == table.rows.end()) throw unknown_type(type, place);
  const FamilyRow& row = found->second;
  const auto is_idle = [&](const std::string& key) {
    return std::find(row.idle.begin(), row.idle.end(), key) != row.idle.end();
  };

  for (const auto& [key, value] : row.defaults.items())
    if (!value.is_string() && !config.contains(key)) config[key] = value;
  for (const auto& [key, value] : row.set.items()) {
    const std::string from = value.is_string() ? value.get<std::string>() : "";
    if (!from.starts_with("@")) {
      family.set.emplace_back(key, value);
      continue;
    }
    if (says_so(config, from.substr(1))) family.set.emplace_back(key, config[from.substr(1)]);
    config.erase(from.substr(1));
  }
  Words needs = row.needs;
  for (const Phrases* conditions : {&row.needs_if, &table.any.needs_if})
    for (const auto& [key, what] : *conditions)
      if (says_so(config, key) && !(conditions == &table.any.needs_if && is_idle(key)) && !row.names.contains(key))
        add_once(needs, what);
  take_mixers(config, row);
  take_layer_types(config, family, needs);
  for (const Phrases* conditions : {&row.needs_if, &table.any.needs_if})
    for (const auto& [key, what] : *conditions)
      if (!row.names.contains(key)) config.erase(key);
  if (!needs.empty() || row.like.empty())
    throw input_error(place + ": " + in_quotes(type) + " needs what is not modelled yet: " + and_listed(needs));

  for (const std::string& note : row.notes) add_once(family.left_out, note);
  for (const Phrases* conditions : {&row.note_if, &table.any.note_if})
    for (const auto& [key, note] : *conditions) {
      if (says_so(config, key)) add_once(family.left_out, note);
      if (key != row.qk_norm) config.erase(key);
    }
  if (row.like == "llama" && row.biases.empty() && config.value("attention_bias", Json()) == true &&
      config.value("mlp_bias", Json(false)) == false) {
    add_once(family.left_out, "biases of attention's products alone are left out");
    config.erase("attention_bias");
  }
  if (!row.like.starts_with("deepseek")) {
    if (says_so(config, "num_nextn_predict_layers"))
      add_once(family.left_out, "layers of multi-token prediction are left out");
    config.erase("num_nextn_predict_layers");
  }
  if (says_so(config, "quantization_config"))
    add_once(family.left_out, "quantization_config is left out: the model is predicted in the scenario's precision");
  config.erase("quantization_config");
  for (const auto& [from, to] : row.names) {
    const auto value = config.find(from);
    if (value == config.end()) continue;
    Json moved = *value;
    // A list has one value a layer.
    if (moved.is_array() && !moved.empty() &&
        std::all_of(moved.begin(), moved.end(), [&](const Json& one) { return one == moved[0]; }))
      moved = Json(moved[0]);
    config.erase(value);
    config[to] = std::move(moved);
    rename(from, to);
  }
  for (const std::string& key : row.idle) config.erase(key);
  for (const auto& [key, value] : row.defaults.items())
    if (!config.contains(key)) {
      const bool is_key = value.is_string() && config.contains(value.get<std::string>());
      config[key] = is_key ? Json(config[value.get<std::string>()]) : value;
    }
  family.has_head_norms = row.qk_norm == "true" || (!row.qk_norm.empty() && says_so(config, row.qk_norm));
  if (row.qk_norm != "true") config.erase(row.qk_norm);
  take_scaling(config, row.like.starts_with("deepseek"), family.left_out);
  family.like = row.like;
  family.experts = !row.experts.empty()                               ? row.experts
                   : row.like == "mixtral" || row.like == "qwen3_moe" ? row.like
                   : row.like.starts_with("deepseek")                 ? row.like
                                                                      : "none";
  family.has_layer_norm = row.norm == "layer";
  family.has_plain_mlp = row.mlp == "plain";
  family.has_all_biases = row.biases == "all";
  return family;
}

}  // namespace stretto
