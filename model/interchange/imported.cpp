#include "model/interchange/imported.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "base/values_of.hpp"
#include "model/interchange/megatron.hpp"
#include "model/interchange/precision_names.hpp"
#include "model/interchange/vocabulary.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

std::string listed(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

// Returns the values of --set as TOML: quotes around a word may be left out.
std::map<std::string, std::string> texts_of(const std::vector<std::string>& overrides) {
  std::map<std::string, std::string> texts;
  for (const std::string& one : overrides) {
    const std::size_t equal = one.find('=');
    if (equal == std::string::npos || equal == 0)
      throw input_error("--set: expected section.key=value, got " + in_quotes(one));
    std::string value = one.substr(equal + 1);
    try {
      parse_toml_nodes("x = " + value + "\n", "--set");
    } catch (const Error&) {
      value = Json(value).dump();
    }
    texts[one.substr(0, equal)] = value;
  }
  return texts;
}

// Throws unless the sizes that every model needs are known.
void require_sizes(const Settings& settings, const std::map<std::string, std::string>& overrides) {
  if (settings.values.contains("model.preset") || overrides.contains("model.preset") ||
      overrides.contains("model.hf_config"))
    return;
  std::vector<std::string> missing, unset;
  for (const char* key :
       {"model.num_layers", "model.hidden_size", "model.num_attention_heads", "model.seq_length", "model.vocab_size"})
    if (!settings.values.contains(key) && !overrides.contains(key)) {
      missing.push_back(std::string("--set ") + key + "=N");
      if (const auto found = settings.unset.find(key); found != settings.unset.end())
        unset.push_back("--env " + found->second + "=N");
    }
  if (missing.empty()) return;
  if (unset.size() == missing.size())
    throw input_error(settings.name + ": expected the sizes of a model, which nothing sets; give " + listed(unset) +
                      ", or " + listed(missing));
  const bool is_vocabulary = missing.size() == 1 && missing[0].find("vocab_size") != std::string::npos;
  throw input_error(settings.name + ": " +
                    (is_vocabulary ? "expected " + settings.vocabulary_key +
                                         ", or a tokenizer whose vocabulary is known; give " + missing[0]
                                   : "expected the sizes of a model; give " + listed(missing)));
}

void find_vocabulary(Settings& settings) {
  if (settings.values.contains("model.vocab_size") || settings.values.contains("model.preset")) return;
  std::size_t at = 0;
  const std::string& hints = settings.vocabulary_hints;
  while (at < hints.size()) {
    const std::size_t end = std::min(hints.find('\n', at), hints.size());
    const std::string hint = hints.substr(at, end - at);
    at = end + 1;
    if (const auto size = vocabulary_of(hint)) {
      settings.values["model.vocab_size"] = *size;
      settings.notes.push_back(
          fmt::format("vocab_size is {}, that of {}; --set model.vocab_size=N says otherwise", *size, in_quotes(hint)));
      return;
    }
  }
}

void find_ranks(Settings& settings, const ImportOptions& options, const std::map<std::string, std::string>& overrides) {
  const auto whole = [&](const std::string& key) -> std::int64_t {
    if (const auto found = overrides.find("parallel." + key); found != overrides.end()) {
      const std::string& text = found->second;
      const bool is_number =
          !text.empty() && text.size() < 8 && text.find_first_not_of("0123456789") == std::string::npos;
      return is_number ? std::max<std::int64_t>(1, std::stoll(text)) : 1;
    }
    return std::clamp<std::int64_t>(settings.whole("parallel." + key, 1), 1, 1 << 20);
  };
  const std::int64_t of_model =
      whole("tensor_model_parallel_size") * whole("context_parallel_size") * whole("pipeline_model_parallel_size");
  if (overrides.contains("parallel.data_parallel_size") || settings.values.contains("parallel.data_parallel_size"))
    return;
  if (options.gpus > 0) {
    if (options.gpus % of_model != 0)
      throw input_error(fmt::format("--gpus: expected a multiple of {} GPUs, those of one replica of the model, got {}",
                                    of_model, options.gpus));
    settings.values["parallel.data_parallel_size"] = options.gpus / of_model;
    return;
  }
  if (settings.ranks && *settings.ranks % of_model == 0) {
    settings.values["parallel.data_parallel_size"] = *settings.ranks / of_model;
    return;
  }
  if (settings.ranks && *settings.ranks > of_model)
    throw input_error(fmt::format("{}: {}: expected a multiple of {} GPUs, those of one replica of the model, got {}",
                                  settings.name, settings.ranks_from, of_model, *settings.ranks));
  // Examples are written for one node and say that this number is to be changed.
  settings.values["parallel.data_parallel_size"] = 1;
  settings.notes.push_back(settings.ranks ? fmt::format("{} start {} GPUs, and one replica of the model needs {}: "
                                                        "data_parallel_size 1 is assumed; --gpus N says otherwise",
                                                        settings.ranks_from, *settings.ranks, of_model)
                                          : fmt::format("nothing says how many GPUs there are: {}, one replica of the "
                                                        "model, are assumed; --gpus N says otherwise",
                                                        of_model));
}

// Adapts the batch: one that does not divide among the replicas comes from a script for fewer GPUs.
void fit_batch(Settings& settings, const ImportOptions& options, const std::map<std::string, std::string>& overrides) {
  const char* key = "parallel.data_parallel_size";
  const std::int64_t micro = std::max<std::int64_t>(1, settings.whole("training.micro_batch_size", 1));
  const std::int64_t batch = settings.whole("training.global_batch_size", 0), replicas = settings.whole(key, 1);
  const bool is_fixed = options.gpus > 0 || overrides.contains(key) ||
                        overrides.contains("training.global_batch_size") ||
                        overrides.contains("training.micro_batch_size");
  if (is_fixed || batch < 1 || batch % micro != 0 || replicas < 1 || batch % (micro * replicas) == 0) return;
  std::int64_t fewer = std::min(replicas, batch / micro);
  while (batch / micro % fewer != 0) --fewer;
  settings.values[key] = fewer;
  settings.notes.push_back(
      fmt::format("a batch of {} sequences does not divide among {} replicas: data_parallel_size {} is assumed; --gpus "
                  "N says otherwise",
                  batch, replicas, fewer));
}

// Resolves keys that conflict: one of two keys tells sharding, and when there are more ranks than a device can have,
// each has a device of its own.
void settle(Settings& settings) {
  std::int64_t ranks = 1;
  for (const char* key :
       {"tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"})
    ranks *= std::clamp<std::int64_t>(settings.whole(std::string("parallel.") + key, 1), 1, 1 << 14);
  constexpr std::int64_t kMaxOfDevice = 1024;
  if (ranks > kMaxOfDevice) settings.values.emplace("cluster.ranks_per_device", 1);
  if (settings.values.contains("parallel.data_parallel_sharding_strategy"))
    settings.values.erase("parallel.use_distributed_optimizer");
}

}  // namespace

namespace {

// Returns objects as inline tables.
std::string toml_value(const Json& value) {
  if (!value.is_object()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& [key, one] : value.items()) parts.push_back(key + " = " + toml_value(one));
  return "{ " + listed(parts) + " }";
}

}  // namespace

// Returns TOML of the values, in the order of the table of keys; keys that the table lacks are at the end of their
// section.
std::string toml_of(const Settings& settings, const std::map<std::string, std::string>& overrides) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : settings.values) texts[key] = toml_value(value);
  for (const auto& [key, value] : overrides) texts[key] = value;
  std::string text;
  if (!settings.profile.empty() && !overrides.contains("profile"))
    text += fmt::format("profile = \"{}\"\n", settings.profile);
  for (const auto& [key, value] : overrides)
    if (key.find('.') == std::string::npos) text += fmt::format("{} = {}\n", key, value);
  for (const char* section : {"model", "cluster", "parallel", "overlap", "training", "compare"}) {
    std::vector<std::string> lines;
    const auto put = [&](const std::string& key) {
      const auto found = texts.find(key);
      if (found == texts.end() || !key.starts_with(std::string(section) + ".")) return;
      lines.push_back(fmt::format("{} = {}\n", key.substr(key.find('.') + 1), found->second));
      texts.erase(found);
    };
    for (const MegatronRow& row : megatron_rows()) put(row.key);
    std::vector<std::string> others;
    for (const auto& [key, value] : texts) others.push_back(key);
    for (const std::string& key : others) put(key);
    if (lines.empty()) continue;
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const std::string& line : lines) text += line;
  }
  return text;
}

std::string Judged::place() const {
  const std::string shown = what.size() > 60 ? what.substr(0, 57) + "..." : what;
  return line > 0 ? fmt::format("{} (line {})", shown, line) : shown;
}

std::vector<std::pair<std::string, std::string>> Settings::take_recompute_modules(
    const std::vector<std::string>& modules) {
  std::vector<std::pair<std::string, std::string>> others;
  nlohmann::json taken = nlohmann::json::array();
  const auto take = [&](const char* name) {
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) taken.push_back(name);
  };
  for (const std::string& module : modules) {
    bool is_known = false;
    for (const auto known : values_of<Recompute::Module>())
      if (module == name_of(known)) {
        is_known = true;
        take(name_of(known));
      }
    if (is_known || module.empty()) continue;
    if (module == "moe") take(name_of(Recompute::Module::moe_act));
    others.emplace_back(module, module == "moe"
                                    ? "of experts their activation alone is computed again, and no rows are sent again"
                                    : "it is kept, and not computed again");
  }
  values["training.recompute_modules"] = std::move(taken);
  return others;
}

void Settings::finish_recompute() {
  const auto modules = values.find("training.recompute_modules");
  if (is("training.recompute_granularity", "selective") && modules != values.end() && modules->second.empty())
    values["training.recompute_granularity"] = "none";
  if (!is("training.recompute_granularity", "full"))
    for (const char* key : {"training.recompute_method", "training.recompute_num_layers"}) values.erase(key);
  if (!is("training.recompute_granularity", "selective")) values.erase("training.recompute_modules");
}

const Json* Settings::find(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}
std::int64_t Settings::whole(const std::string& key, std::int64_t otherwise) const {
  const Json* value = find(key);
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : otherwise;
}
bool Settings::is(const std::string& key, const Json& value) const {
  const Json* now = find(key);
  return now != nullptr && *now == value;
}

void refuse(Settings& settings, const ImportOptions& options) {
  // A user who names a precision wants a prediction in that precision.
  const bool has_precision = std::any_of(options.overrides.begin(), options.overrides.end(),
                                         [](const std::string& one) { return one.starts_with("training.precision="); });
  if (const auto fp8 = settings.refused.find("fp8"); fp8 != settings.refused.end() && has_precision) {
    settings.approximated.push_back({fp8->second.what, fp8->second.line, "products are in the precision of --set"});
    settings.refused.erase(fp8);
  }
  for (const char* format : {"training.fp8_format", "training.fp4_format"})
    if (const Json* given = settings.find(format); given != nullptr && *given != "none" && has_precision) {
      settings.approximated.push_back(
          {std::string(format).substr(std::string(format).find('.') + 1) + " " + given->get<std::string>(), 0,
           "products are in the precision of --set"});
      settings.values.erase(format);
    }
  if (settings.refused.empty()) return;
  std::vector<std::string> nouns, places;
  for (const auto& [noun, judged] : settings.refused) {
    nouns.push_back(noun);
    places.push_back(judged.place());
  }
  const bool is_one = nouns.size() == 1 && !nouns.front().ends_with('s');
  std::string all = nouns.front();
  for (std::size_t i = 1; i < nouns.size(); ++i) all += (i + 1 < nouns.size() ? ", " : " and ") + nouns[i];
  throw input_error(
      fmt::format("{}: {} {} not modelled yet: {}", settings.name, all, is_one ? "is" : "are", listed(places)));
}

// Replaces what Stretto does not have of experts by what takes about as long, and says so.
void approximate_experts(Settings& settings) {
  const auto replace = [&](const char* key, const char* word, const char* by, const char* effect) {
    const auto found = settings.values.find(key);
    if (found == settings.values.end() || found->second != word) return;
    found->second = by;
    settings.approximated.push_back({std::string(key).substr(std::string(key).find('.') + 1) + " " + word, 0, effect});
  };
  // Sigmoids are scores by themselves; and Sinkhorn's iteration gives one chosen expert a probability, as the softmax
  // over all experts does.
  const auto is = [&](const char* key, const char* word) {
    const auto found = settings.values.find(key);
    return found != settings.values.end() && found->second == word;
  };
  const char* balancing = "model.moe_router_load_balancing_type";
  if (is("model.moe_router_score_function", "sigmoid"))
    settings.values.erase("model.moe_router_pre_softmax");
  else if (is(balancing, "sinkhorn") && settings.whole("model.moe_router_topk", 2) == 1)
    settings.values["model.moe_router_pre_softmax"] = true;
  replace(balancing, "sinkhorn", "none", "the kernels of its iteration are left out");
  replace(balancing, "global_aux_loss", "aux_loss", "counts are of a micro-batch, without data parallelism's");
}

Translation scenario_of(Settings settings, const ImportOptions& options) {
  const std::map<std::string, std::string> overrides = texts_of(options.overrides);
  refuse(settings, options);
  // Without experts their settings say nothing, and with 0 of them neither.
  if (settings.whole("model.num_moe_experts", 0) == 0 && !settings.values.contains("model.preset"))
    std::erase_if(settings.values, [](const auto& one) {
      return one.first.starts_with("model.moe_") || one.first == "model.num_moe_experts" ||
             one.first.starts_with("parallel.moe_") || one.first.starts_with("parallel.expert_") ||
             one.first == "overlap.overlap_moe_expert_parallel_comm" || one.first == "overlap.delay_wgrad_compute" ||
             one.first == "overlap.ep_overlap_early_attn_memory_release" ||
             one.first == "overlap.overlap_dispatch_backward_with_experts_wgrad" ||
             one.first == "overlap.moe_shared_expert_overlap";
    });
  approximate_experts(settings);
  // Latent attention has widths of its own, and Megatron-LM does not read this one then.
  if (const Json* latent = settings.find("model.multi_latent_attention"); latent != nullptr && *latent == true)
    settings.values.erase("model.kv_channels");
  find_vocabulary(settings);
  require_sizes(settings, overrides);
  find_ranks(settings, options, overrides);
  fit_batch(settings, options, overrides);
  settle(settings);
  finish_low_precision(settings);
  for (const auto& [key, value] : overrides) settings.values.erase(key);
  Translation result;
  result.text = toml_of(settings, overrides);
  try {
    parse_scenario(result.text, "its scenario");
  } catch (const Error& error) {
    throw input_error(settings.name + ": " + error.what());
  }
  if (!settings.taken.empty()) result.notes.push_back("taken: " + listed(settings.taken));
  if (!settings.ignored.empty()) result.notes.push_back("without effect on a step's time: " + listed(settings.ignored));
  for (const Judged& one : settings.approximated)
    result.notes.push_back("not modelled: " + one.place() + ": " + one.effect);
  result.notes.insert(result.notes.end(), settings.notes.begin(), settings.notes.end());
  return result;
}

}  // namespace stretto
