#include "interchange/imported.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "base/values_of.hpp"
#include "interchange/megatron.hpp"
#include "interchange/precision_names.hpp"
#include "interchange/vocabulary.hpp"
#include "model/scenario/reader.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

std::string listed(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

// Settings that only say how another one acts are without effect because that one is not modelled, and stand with it:
// cpu_offloading_num_layers with cpu_offloading.
void join_details(Settings& settings) {
  for (Assessment& one : settings.approximated) {
    const std::string name = one.what.substr(0, one.what.find_first_of(": ="));
    std::vector<std::string> details;
    for (std::vector<std::string>* list : {&settings.ignored, &settings.unknown})
      std::erase_if(*list, [&](const std::string& other) {
        const bool is_detail = other.size() > name.size() && other.starts_with(name) &&
                               (other[name.size()] == '_' || other[name.size()] == '-');
        if (is_detail) details.push_back(other);
        return is_detail;
      });
    if (!details.empty()) one.effect += "; " + listed(details) + " belongs to it";
  }
}

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

bool is_size(const std::string& word) {
  return word.size() > 1 && std::string_view("BbMm").find(word.back()) != std::string_view::npos &&
         std::isdigit(static_cast<unsigned char>(word[word.size() - 2])) != 0;
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
  // A script for several models chooses by an argument, which it compares with sizes: 7B, A22B, 350M.
  const std::pair<const std::string, std::vector<std::string>>* choice = nullptr;
  for (const auto& one : settings.choices)
    if (std::count_if(one.second.begin(), one.second.end(), is_size) > (choice == nullptr ? 0 : 1)) choice = &one;
  if (choice != nullptr && missing.size() > 1) {
    std::vector<std::string> arguments = {"--env " + choice->first + "=" + choice->second.front()};
    for (const std::string& one : unset)
      if (std::isdigit(static_cast<unsigned char>(one[6])) != 0) arguments.push_back(one);
    throw input_error(
        fmt::format("{}: expected the sizes of a model, which the script chooses by ${}, one of {}; give {}",
                    settings.name, choice->first, listed(choice->second), listed(arguments)));
  }
  if (unset.size() == missing.size())
    throw input_error(settings.name + ": expected the sizes of a model, which nothing sets; give " + listed(unset) +
                      ", or " + listed(missing));
  const bool is_vocabulary = missing.size() == 1 && missing[0].find("vocab_size") != std::string::npos;
  throw input_error(settings.name + ": " +
                    (is_vocabulary ? "expected " + settings.vocabulary_key +
                                         ", or a tokenizer whose vocabulary is known; give " + missing[0]
                                   : "expected the sizes of a model; give " + listed(missing)) +
                    (settings.file_says.empty() ? "" : "; " + settings.file_says));
}

void find_vocabulary(Settings& settings, const std::map<std::string, std::string>& overrides) {
  if (settings.values.contains("model.vocab_size") || settings.values.contains("model.preset") ||
      overrides.contains("model.vocab_size"))
    return;
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

// GPUs of the model's layout: of one copy of the dense layers (tp · cp · pp), and of the least number of such copies
// whose ranks the experts divide among (parallel_state.py of Megatron-LM: etp · ep · pp divides all ranks too).
struct LayoutSize {
  std::int64_t dense = 1, whole = 1;
  std::int64_t copies() const { return whole / dense; }
};

LayoutSize layout_size(const Settings& settings, const std::map<std::string, std::string>& overrides) {
  const auto whole = [&](const std::string& key, std::int64_t otherwise) -> std::int64_t {
    if (const auto found = overrides.find("parallel." + key); found != overrides.end()) {
      const std::string& text = found->second;
      const bool is_number =
          !text.empty() && text.size() < 8 && text.find_first_not_of("0123456789") == std::string::npos;
      return is_number ? std::max<std::int64_t>(1, std::stoll(text)) : otherwise;
    }
    return std::clamp<std::int64_t>(settings.whole("parallel." + key, otherwise), 1, 1 << 20);
  };
  const std::int64_t tp = whole("tensor_model_parallel_size", 1), pp = whole("pipeline_model_parallel_size", 1);
  const std::int64_t of_stage = tp * whole("context_parallel_size", 1);
  const std::int64_t ep = whole("expert_model_parallel_size", 1);
  const std::int64_t of_experts = ep > 1 ? ep * whole("expert_tensor_parallel_size", tp) : 1;
  return {of_stage * pp, std::lcm(of_stage, of_experts) * pp};
}

void find_ranks(Settings& settings, const ImportOptions& options, const std::map<std::string, std::string>& overrides) {
  const LayoutSize size = layout_size(settings, overrides);
  if (overrides.contains("parallel.data_parallel_size") || settings.values.contains("parallel.data_parallel_size"))
    return;
  const char* of_whom =
      size.copies() > 1 ? "those of the model's replicas that share its experts" : "those of one replica of the model";
  if (options.gpus > 0) {
    if (options.gpus % size.whole != 0)
      throw input_error(
          fmt::format("--gpus: expected a multiple of {} GPUs, {}, got {}", size.whole, of_whom, options.gpus));
    settings.values["parallel.data_parallel_size"] = options.gpus / size.dense;
    return;
  }
  if (settings.ranks && *settings.ranks % size.whole == 0) {
    settings.values["parallel.data_parallel_size"] = *settings.ranks / size.dense;
    return;
  }
  if (settings.ranks && *settings.ranks > size.whole)
    throw input_error(fmt::format("{}: {}: expected a multiple of {} GPUs, {}, got {}", settings.name,
                                  settings.ranks_from, size.whole, of_whom, *settings.ranks));
  // Examples are written for one node and say that this number is to be changed.
  settings.values["parallel.data_parallel_size"] = size.copies();
  const std::string assumed = fmt::format("data_parallel_size {} is assumed; --gpus N says otherwise", size.copies());
  settings.notes.push_back(
      settings.ranks
          ? fmt::format("{} start {} GPUs, and {}: {}", settings.ranks_from, *settings.ranks,
                        size.copies() > 1
                            ? fmt::format("the replicas of the model that share its experts need {}", size.whole)
                            : fmt::format("one replica of the model needs {}", size.whole),
                        assumed)
          : fmt::format("nothing says how many GPUs there are: {}, {}, are assumed; --gpus N says otherwise",
                        size.whole, size.copies() > 1 ? of_whom : "one replica of the model"));
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
  const std::int64_t copies = layout_size(settings, overrides).copies();
  std::int64_t fewer = std::min(replicas, batch / micro);
  while (fewer > 0 && (batch / micro % fewer != 0 || fewer % copies != 0)) --fewer;
  if (fewer < 1) return;
  settings.values[key] = fewer;
  settings.notes.push_back(
      fmt::format("a batch of {} sequences does not divide among {} replicas: data_parallel_size {} is assumed; --gpus "
                  "N says otherwise",
                  batch, replicas, fewer));
}

// Resolves keys that conflict: one of two keys gives the sharding, and when there are more ranks than a device can
// have, each has a device of its own.
void settle(Settings& settings, const std::map<std::string, std::string>& overrides) {
  std::int64_t ranks = 1;
  for (const char* key :
       {"tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"})
    ranks *= std::clamp<std::int64_t>(settings.whole(std::string("parallel.") + key, 1), 1, 1 << 14);
  constexpr std::int64_t kMaxOfDevice = 1024;
  if (ranks > kMaxOfDevice) settings.values.emplace("cluster.ranks_per_device", 1);
  const char *strategy = "parallel.data_parallel_sharding_strategy", *shards = "parallel.use_distributed_optimizer";
  if (const Json* given = settings.find(strategy);
      given != nullptr && (overrides.contains(strategy) || !settings.is(shards, *given != "no_shard")))
    settings.values.erase(shards);
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
  if (!settings.platform.empty() && !overrides.contains("platform"))
    text += fmt::format("platform = \"{}\"\n", settings.platform);
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

std::string Assessment::place() const {
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
  const bool all_of_experts = std::find(modules.begin(), modules.end(), "moe") != modules.end();
  for (const std::string& module : modules) {
    // Megatron-LM would repeat a part once for itself and once with all of it.
    if (all_of_experts && (module == "moe_act" || module == "shared_experts")) {
      others.emplace_back(module, "it is a part of \"moe\", and computed again once");
      continue;
    }
    bool is_known = false;
    for (const auto known : values_of<Recompute::Module>())
      if (module == name_of(known)) {
        is_known = true;
        take(name_of(known));
      }
    if (is_known || module.empty()) continue;
    others.emplace_back(module, "it is kept, and not computed again");
  }
  values["training.recompute_modules"] = std::move(taken);
  return others;
}

void Settings::finish_recompute() {
  const auto modules = values.find("training.recompute_modules");
  if (is("training.recompute_granularity", "selective") && modules != values.end() && modules->second.empty())
    values["training.recompute_granularity"] = "none";
  // Megatron-LM takes 0 of a stage's layers as none.
  if (is("training.recompute_num_layers", 0) && is("training.recompute_granularity", "full"))
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
  for (const auto& [noun, assessed] : settings.refused) {
    nouns.push_back(noun);
    places.push_back(assessed.place());
  }
  const bool is_one = nouns.size() == 1 && !nouns.front().ends_with('s');
  std::string all = nouns.front();
  for (std::size_t i = 1; i < nouns.size(); ++i) all += (i + 1 < nouns.size() ? ", " : " and ") + nouns[i];
  throw input_error(
      fmt::format("{}: {} {} not modelled yet: {}", settings.name, all, is_one ? "is" : "are", listed(places)));
}

// Replaces what Stretto does not have of experts by what takes about as long, and says so.
void approximate_experts(Settings& settings, const std::map<std::string, std::string>& overrides) {
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
  if (settings.whole("model.num_moe_experts", 0) == 0) return;
  const auto assume = [&](const char* key, bool value, const char* effect) {
    if (overrides.contains(key)) return;
    settings.values[key] = value;
    settings.approximated.push_back(
        {fmt::format("{} {}", std::string(key).substr(std::string(key).find('.') + 1), !value), 0, effect});
  };
  // A model without the key has biases (TransformerConfig.add_bias_linear).
  if (const Json* bias = settings.find("model.add_bias_linear"); bias == nullptr || *bias == true)
    assume("model.add_bias_linear", false,
           "no product has a bias, as those of experts and of the router have none here");
  // core/transformer/moe/moe_layer.py:636 of Megatron-LM ends training without it.
  if (settings.whole("parallel.tensor_model_parallel_size", 1) > 1 && !settings.is("parallel.sequence_parallel", true))
    assume("parallel.sequence_parallel", true,
           "it is on, as Megatron-LM trains experts with tensor parallelism in no other way");
}

// Replaces what Stretto does not have of latent attention, and drops what does not act there.
void approximate_latent_attention(Settings& settings) {
  if (!settings.is("model.multi_latent_attention", true)) return;
  // Latent attention has widths of its own, and Megatron-LM does not read this one then.
  settings.values.erase("model.kv_channels");
  // Without scaling, which is Megatron-LM's default (--rotary-scaling-factor 1.0), YaRN's further numbers say nothing.
  const Json* factor = settings.find("model.rotary_scaling_factor");
  if (factor == nullptr || *factor == 1)
    for (const char* of_yarn : {"rotary_scaling_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                                "original_max_position_embeddings"})
      settings.values.erase(std::string("model.") + of_yarn);
  if (settings.is("training.attention_backend", "unfused")) {
    settings.values["training.attention_backend"] = "fused";
    settings.approximated.push_back(
        {"attention_backend unfused", 0, "latent attention is one kernel, and not products and a softmax"});
  }
}

// Returns the places that errors of the scenario name, which is text that the user has not seen: a setting of the file
// or an option of the command.
std::map<std::string, std::string> places_of(const Settings& settings,
                                             const std::map<std::string, std::string>& overrides) {
  std::map<std::string, std::string> places;
  for (const auto& [key, setting] : settings.origins)
    places[key] = setting.line > 0 ? fmt::format("{}:{}: {}", settings.name, setting.line, setting.what)
                                   : fmt::format("{}: {}", settings.name, setting.what);
  for (const auto& [key, value] : overrides) places[key] = "--set " + key;
  return places;
}

// Takes the settings whose keys --set gives out of what the notes say of them, and says which ones they are.
void yield_to_overrides(Settings& settings, const ImportOptions& options,
                        const std::map<std::string, std::string>& overrides) {
  for (const auto& [key, setting] : settings.origins) {
    if (!overrides.contains(key)) continue;
    const std::string& what = setting.what;
    const bool gives_more = std::any_of(settings.origins.begin(), settings.origins.end(), [&](const auto& other) {
      return other.second.what == what && !overrides.contains(other.first);
    });
    if (gives_more) continue;
    std::erase(settings.taken, what);
    std::erase_if(settings.approximated, [&](const Assessment& one) {
      return one.what == what || one.what.starts_with(what + " ") || one.what.starts_with(what + ":");
    });
    settings.notes.push_back(fmt::format("{} is not taken: --set {} says otherwise", setting.place(), key));
  }
  for (const auto& [key, note] : settings.assumptions)
    if (!overrides.contains(key) && !(key == "parallel.data_parallel_size" && options.gpus > 0))
      settings.notes.push_back(note);
}

Translation scenario_of(Settings settings, const ImportOptions& options) {
  std::map<std::string, std::string> overrides = texts_of(options.overrides);
  refuse(settings, options);
  // Without experts their settings say nothing, and with 0 of them neither.
  if (settings.whole("model.num_moe_experts", 0) == 0 && !settings.values.contains("model.preset"))
    std::erase_if(settings.values, [](const auto& one) {
      return one.first.starts_with("model.moe_") || one.first == "model.num_moe_experts" ||
             one.first == "training.moe_expert_loads" || one.first.starts_with("parallel.moe_") ||
             one.first.starts_with("parallel.expert_") || one.first == "overlap.overlap_moe_expert_parallel_comm" ||
             one.first == "overlap.delay_wgrad_compute" ||
             one.first == "overlap.ep_overlap_early_attn_memory_release" ||
             one.first == "overlap.overlap_dispatch_backward_with_experts_wgrad" ||
             one.first == "overlap.moe_shared_expert_overlap";
    });
  approximate_experts(settings, overrides);
  approximate_latent_attention(settings);
  find_vocabulary(settings, overrides);
  // "--set section.key=" takes a key away.
  std::erase_if(overrides, [&](const auto& one) {
    if (one.second == "\"\"") settings.values.erase(one.first);
    return one.second == "\"\"";
  });
  require_sizes(settings, overrides);
  yield_to_overrides(settings, options, overrides);
  find_ranks(settings, options, overrides);
  fit_batch(settings, options, overrides);
  settle(settings, overrides);
  finish_low_precision(settings);
  for (const auto& [key, value] : overrides) settings.values.erase(key);
  Translation result;
  result.text = toml_of(settings, overrides);
  ScenarioReader::of_text(result.text, settings.name, places_of(settings, overrides)).read({});
  join_details(settings);
  if (!settings.taken.empty()) result.notes.push_back("taken: " + listed(settings.taken));
  if (!settings.ignored.empty()) result.notes.push_back("without effect on a step's time: " + listed(settings.ignored));
  if (!settings.unknown.empty()) result.notes.push_back("not known here, and left out: " + listed(settings.unknown));
  for (const Assessment& one : settings.approximated)
    result.notes.push_back("not modelled: " + one.place() + ": " + one.effect);
  result.notes.insert(result.notes.end(), settings.notes.begin(), settings.notes.end());
  return result;
}

}  // namespace stretto
