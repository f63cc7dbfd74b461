#include "interchange/perf_recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "base/csv.hpp"
#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "bridge_recipes.csv";

std::vector<std::string> split(std::string_view text, char sign) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == sign)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// Takes a name such as "deepseek_v3_pretrain_256gpu_gb300_fp8mx_large_scale" apart.
bool read_name(const std::string& name, PerfRecipe& recipe) {
  const std::vector<std::string> words = split(name, '_');
  std::size_t task = 0;
  while (task < words.size() && words[task] != "pretrain" && words[task] != "sft" && words[task] != "peft") ++task;
  if (task == 0 || task + 3 >= words.size() || !words[task + 1].ends_with("gpu")) return false;
  const std::string count = words[task + 1].substr(0, words[task + 1].size() - 3);
  if (count.empty() || count.size() > 6 || count.find_first_not_of("0123456789") != std::string::npos) return false;
  recipe.name = name;
  recipe.gpus = std::stoll(count);
  recipe.key = {name.substr(0, name.find("_" + words[task] + "_")), words[task], words[task + 2], words[task + 3], ""};
  for (std::size_t i = task + 4; i < words.size(); ++i)
    recipe.key.variant += (recipe.key.variant.empty() ? "" : "_") + words[i];
  return true;
}

std::vector<PerfRecipe> read_recipes() {
  const std::string path = data_path(kFile);
  std::ifstream file(path);
  std::ostringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  const std::vector<std::string> columns = split(std::string_view(text).substr(0, text.find('\n')), ',');
  std::vector<PerfRecipe> recipes;
  read_csv(text, path, columns, [&](const CsvRow& row) {
    PerfRecipe recipe;
    if (!read_name(std::string(row.text(0)), recipe))
      throw row.error(0, "a name such as llama3_8b_pretrain_8gpu_h100_bf16");
    for (std::size_t i = 1; i < columns.size(); ++i)
      if (!row.text(i).empty()) recipe.cells.emplace_back(columns[i], std::string(row.text(i)));
    recipes.push_back(std::move(recipe));
  });
  return recipes;
}

struct DefaultGpus {
  const char *model, *gpu;
  std::vector<std::string> precisions;
  std::int64_t gpus;
};
// Pretraining recipes whose default is not that of most GPUs (scripts/performance/utils/utils.py at 067f987d).
const std::vector<DefaultGpus>& default_gpus() {
  static const std::vector<DefaultGpus> all = {
      {"llama3_8b", "b200", {"bf16", "fp8cs"}, 8},
      {"llama3_8b", "gb200", {"bf16", "fp8cs"}, 8},
      {"llama3_8b", "gb300", {"bf16", "fp8cs", "fp8mx", "nvfp4"}, 8},
      {"llama3_8b", "h100", {"bf16", "fp8cs"}, 8},
      {"qwen3_30b_a3b", "b200", {"bf16", "fp8cs"}, 8},
      {"qwen3_30b_a3b", "gb200", {"bf16", "fp8cs"}, 8},
      {"qwen3_30b_a3b", "gb300", {"bf16", "fp8cs"}, 8},
      {"qwen3_30b_a3b", "h100", {"bf16", "fp8cs"}, 16},
  };
  return all;
}

void set_path(Json& root, const std::string& path, Json value) {
  Json* node = &root;
  for (const std::string& part : split(path, '.')) node = &(*node)[part];
  *node = std::move(value);
}

// Kimi K2 has DeepSeek-V3's layers with other numbers (config.json of moonshotai/Kimi-K2-Instruct).
Json sizes_of_kimi() {
  std::vector<int> with_experts(61, 1);
  with_experts[0] = 0;
  return {{"num_attention_heads", 64},
          {"add_bias_linear", false},
          {"num_moe_experts", 384},
          {"moe_layer_freq", with_experts},
          {"moe_router_num_groups", 0},
          {"moe_router_group_topk", 0},
          {"moe_router_topk_scaling_factor", 2.827},
          {"vocab_size", 163840},
          {"rotary_base", 50000}};
}

std::int64_t whole(const Json& model, const char* key, std::int64_t otherwise) {
  const auto found = model.find(key);
  const bool is_whole = found != model.end() && found->is_number_integer();
  constexpr std::int64_t kMost = 1 << 15;  // of a size, so that products of four have 64 bits
  return is_whole ? std::clamp<std::int64_t>(found->get<std::int64_t>(), 1, kMost) : otherwise;
}

}  // namespace

const std::vector<PerfRecipe>& perf_recipes() {
  static const std::vector<PerfRecipe> recipes = read_recipes();
  return recipes;
}

const PerfRecipe* perf_recipe(const PerfKey& key, std::int64_t gpus) {
  const PerfRecipe* most = nullptr;
  std::int64_t by_default = 0;
  for (const DefaultGpus& one : default_gpus())
    if (key.task == "pretrain" && key.variant.empty() && key.model == one.model && key.gpu == one.gpu &&
        std::find(one.precisions.begin(), one.precisions.end(), key.precision) != one.precisions.end())
      by_default = one.gpus;
  const PerfRecipe* other = nullptr;
  for (const PerfRecipe& recipe : perf_recipes()) {
    if (recipe.key != key) continue;
    if (recipe.gpus == gpus) return &recipe;
    if (recipe.gpus == by_default) other = &recipe;
    if (most == nullptr || recipe.gpus > most->gpus) most = &recipe;
  }
  return other != nullptr ? other : most;
}

const PerfRecipe* perf_recipe_by_name(std::string_view name) {
  if (name.ends_with("_config")) name.remove_suffix(std::string_view("_config").size());
  for (const PerfRecipe& recipe : perf_recipes())
    if (recipe.name == name) return &recipe;
  return nullptr;
}

const PerfRecipe& nearest_perf_recipe(const PerfKey& key, std::int64_t gpus) {
  const auto likeness = [&](const PerfRecipe& recipe) {
    const PerfKey& own = recipe.key;
    return 32 * (own.model == key.model) + 16 * (own.task == key.task) + 8 * (own.gpu == key.gpu) +
           4 * (own.precision == key.precision) + 2 * (own.variant == key.variant) + (recipe.gpus == gpus);
  };
  const std::vector<PerfRecipe>& all = perf_recipes();
  return *std::max_element(all.begin(), all.end(), [&](const PerfRecipe& one, const PerfRecipe& other) {
    return likeness(one) < likeness(other);
  });
}

BridgeRecipe settings_of(const PerfRecipe& recipe) {
  BridgeRecipe made{recipe.name, recipe.gpus, Json::object(), "", recipe.key.gpu};
  for (const auto& [path, cell] : recipe.cells)
    if (path == "preset")
      made.preset = cell;
    else
      set_path(made.settings, path, parse_yaml("x: " + cell, kFile).root["x"]);
  if (recipe.key.model == "kimi_k2") made.settings["model"].update(sizes_of_kimi());
  return made;
}

void require_sections(const Json& root, const std::string& name) {
  for (const char* section : {"model", "train", "ddp", "comm_overlap", "env_vars"})
    if (const auto found = root.find(section); found != root.end() && !found->is_object())
      throw input_error(
          fmt::format("{}: {}: expected {}.KEY=VALUE, got another value for all of it", name, section, section));
}

std::string platform_of_gpu(std::string_view gpu) {
  static const std::map<std::string_view, const char*> names = {{"h100", "h100-sxm"},
                                                                {"b200", "b200-sxm"},
                                                                {"b300", "b300-sxm"},
                                                                {"gb200", "gb200-nvl72"},
                                                                {"gb300", "gb300-nvl72"}};
  const auto found = names.find(gpu);
  return found == names.end() ? "" : found->second;
}

std::int64_t replicas_of(const Json& model, std::int64_t gpus, const std::string& name) {
  const std::int64_t tp = whole(model, "tensor_model_parallel_size", 1),
                     pp = whole(model, "pipeline_model_parallel_size", 1),
                     cp = whole(model, "context_parallel_size", 1), ep = whole(model, "expert_model_parallel_size", 1),
                     etp = whole(model, "expert_tensor_parallel_size", tp);
  const auto require = [&](std::int64_t size, const std::string& what) {
    if (gpus % size != 0)
      throw input_error(fmt::format("{}: expected a multiple of {} GPUs, {}, got {}; another layout may be given", name,
                                    size, what, gpus));
  };
  require(tp * pp * cp, fmt::format("those of tp {} x pp {} x cp {}", tp, pp, cp));
  if (ep > 1) require(etp * ep * pp, fmt::format("those of the experts' tp {} x ep {} x pp {}", etp, ep, pp));
  return gpus / (tp * pp * cp);
}

void scale_batch(Json& root, const PerfRecipe& recipe, std::int64_t gpus, const std::string& name) {
  const Json own = settings_of(recipe).settings;
  if (root["train"]["global_batch_size"] != own["train"]["global_batch_size"]) return;
  const std::int64_t batch = own["train"]["global_batch_size"],
                     replicas = replicas_of(own["model"], recipe.gpus, recipe.name),
                     now = replicas_of(root["model"], gpus, name);
  if (batch * now % replicas != 0)
    throw input_error(
        fmt::format("{}: expected a global batch size, since {} sequences of {} replicas are no whole number for {}",
                    name, batch, replicas, now));
  root["train"]["global_batch_size"] = batch * now / replicas;
}

}  // namespace stretto
