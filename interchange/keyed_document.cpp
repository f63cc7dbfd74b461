#include "interchange/keyed_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/formats.hpp"
#include "interchange/megatron.hpp"
#include "interchange/model_names.hpp"
#include "interchange/model_shapes.hpp"
#include "interchange/recipe.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

// A line of the table: "path : words -> says", or of `take` "path -> says : words".
struct KeyRule {
  std::string path, says;
  Strings words;
};
struct KeyTable {
  std::string profile, compiled, profile_note;
  std::vector<KeyRule> defaults, take, near, refuse;
  Strings idle;
};

std::pair<std::string, std::string> halves(const std::string& text, const std::string& sign) {
  const std::size_t at = text.find(sign);
  return at == std::string::npos ? std::pair(text, std::string())
                                 : std::pair(text.substr(0, at), text.substr(at + sign.size()));
}

Strings key_words_of(const std::string& text) {
  Strings words;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

KeyTable read_key_table(const std::string& reader) {
  TomlTable root = read_toml(data_path("document_keys.toml"));
  TomlTable from = root.section(reader.c_str());
  KeyTable table;
  table.profile = require<std::string>(from, "profile");
  table.compiled = value_or<std::string>(from, "compiled", table.profile);
  table.profile_note = value_or<std::string>(from, "profile_note", "");
  for (const std::string& line : value_or<Strings>(from, "default", {})) {
    const auto [key, value] = halves(line, " = ");
    table.defaults.push_back({key, value, {}});
  }
  for (const std::string& line : value_or<Strings>(from, "take", {})) {
    const auto [path, rest] = halves(line, " -> ");
    const auto [says, words] = halves(rest, " : ");
    table.take.push_back({path, says, key_words_of(words)});
  }
  for (const auto& [key, rules] : {std::pair{"near", &table.near}, {"refuse", &table.refuse}})
    for (const std::string& line : value_or<Strings>(from, key, {})) {
      const auto [left, says] = halves(line, " -> ");
      const auto [path, words] = halves(left, " : ");
      rules->push_back({path, says, key_words_of(words)});
    }
  table.idle = value_or<Strings>(from, "idle", {});
  from.finish();
  return table;
}

std::string text_of_value(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Returns whether the text is the word; "*part*", "part*" and "*part" have the part.
bool fits_word(const std::string& text, std::string_view word) {
  const bool any_begin = word.starts_with('*'), any_end = word.size() > 1 && word.ends_with('*');
  if (any_begin) word.remove_prefix(1);
  if (any_end) word.remove_suffix(1);
  if (any_begin && any_end) return text.find(word) != std::string::npos;
  return any_begin ? text.ends_with(word) : any_end ? text.starts_with(word) : text == word;
}

// Returns whether a rule of `near` or `refuse` acts on a value.
bool acts(const KeyRule& rule, const Json& value) {
  const std::string text = text_of_value(value);
  bool is_alone = false;
  for (const std::string& word : rule.words) {
    if (!word.starts_with('!')) {
      if (fits_word(text, word)) return false;
      continue;
    }
    is_alone = true;
    if (fits_word(text, std::string_view(word).substr(1))) return true;
  }
  return !is_alone && value != false;
}

class KeyedDocument {
 public:
  KeyedDocument(Yaml yaml, const std::string& reader, const std::string& name, const ImportOptions& options)
      : table_(read_key_table(reader)), yaml_(std::move(yaml)), options_(options) {
    settings_.name = name;
    settings_.vocabulary_key = "the vocabulary's size";
    resolve_references(yaml_.root, name);
    add(yaml_.root, "", 0);
  }

  Settings run(const std::string& format) {
    for (const KeyRule& rule : table_.refuse)
      if (const Json* value = at(rule.path); value != nullptr && !acts(rule, *value))
        neutral_.push_back(rule.path);
      else if (value != nullptr)
        settings_.refused.emplace(rule.says, assessment(rule.path, ""));
    settings_.file_says = "this is " + format;
    refuse(settings_, options_);
    for (const KeyRule& rule : table_.take) take(rule);
    for (const KeyRule& rule : table_.near)
      if (const Json* value = at(rule.path); value != nullptr && !acts(rule, *value)) {
        neutral_.push_back(rule.path);
      } else if (value != nullptr) {
        settings_.approximated.push_back(assessment(shown(rule.path, *value), rule.says, rule.path));
        used_.push_back(rule.path);
      }
    for (const KeyRule& rule : table_.defaults) add_default(rule);
    judge_rest();
    finish();
    settings_.notes.insert(settings_.notes.begin(), "this is " + format + ", read by its keys");
    return std::move(settings_);
  }

 private:
  // Collects all values by their paths; objects too, so that a rule may name a section.
  void add(const Json& node, const std::string& path, int depth) {
    constexpr int kMostDepth = 64;
    if (!node.is_object() || depth > kMostDepth) return;
    for (const auto& [key, value] : node.items()) {
      if (value.is_null()) continue;
      const std::string here = path.empty() ? key : path + "." + key;
      values_[here] = &value;
      add(value, here, depth + 1);
    }
  }
  const Json* at(const std::string& path) const {
    const auto found = values_.find(path);
    return found == values_.end() ? nullptr : found->second;
  }
  int line_of(const std::string& path) const {
    const auto found = yaml_.lines.find(path);
    return found == yaml_.lines.end() ? 0 : found->second;
  }
  Assessment assessment(const std::string& what, const std::string& effect, const std::string& path = "") const {
    return {what, line_of(path.empty() ? what : path), effect};
  }
  static std::string shown(const std::string& path, const Json& value) {
    return value.is_structured() ? path : (path + ": " + text_of_value(value)).substr(0, 100);
  }
  bool is_given(const std::string& key) const { return settings_.values.contains(key) || facts_.contains(key); }
  void put(const std::string& key, const Json& value) {
    if (key.starts_with('@'))
      facts_.emplace(key, value);
    else
      settings_.values.emplace(key, value);
  }

  void take(const KeyRule& rule) {
    const Json* value = at(rule.path);
    if (value == nullptr || (value->is_structured() && rule.words.empty())) return;
    used_.push_back(rule.path);
    const std::optional<Json> made = meaning(rule, *value);
    if (!made || is_given(rule.says)) return;
    settings_.take_from({rule.path, line_of(rule.path), ""}, [&] { put(rule.says, *made); });
    settings_.taken.push_back(rule.path);
  }

  // Returns the value that a scenario has; nothing for a word that says nothing.
  std::optional<Json> meaning(const KeyRule& rule, const Json& value) const {
    const Json own = value.is_string() ? value_of_word(value.get<std::string>()) : value;
    if (rule.words.empty()) return own;
    const std::string text = text_of_value(value);
    Strings known;
    for (const std::string& pair : rule.words) {
      const auto [word, ours] = halves(pair, "=");
      if (word != "else" && !fits_word(text, word)) {
        known.push_back(word);
        continue;
      }
      if (ours.empty()) return std::nullopt;
      return ours == "@" ? own : typed(ours);
    }
    const int line = line_of(rule.path);
    throw input_error(fmt::format("{}{}: {}: expected one of {}, got {}", settings_.name,
                                  line > 0 ? ":" + std::to_string(line) : "", rule.path, fmt::join(known, ", "),
                                  in_quotes(text)));
  }
  static Json typed(const std::string& text) {
    return text == "true" ? Json(true) : text == "false" ? Json(false) : value_of_word(text);
  }

  void add_default(const KeyRule& rule) {
    if (!is_given(rule.path)) put(rule.path, typed(rule.says));
  }

  // Keys that no rule has taken are without effect by the table, or not known.
  void judge_rest() {
    for (const auto& [path, value] : values_) {
      if (value->is_object() && !value->empty()) continue;
      const auto is_below = [&path = path](const std::string& one) {
        return path == one || (path.starts_with(one) && path[one.size()] == '.');
      };
      if (std::any_of(used_.begin(), used_.end(), is_below)) continue;
      const bool is_idle = std::any_of(table_.idle.begin(), table_.idle.end(), is_below) ||
                           std::any_of(neutral_.begin(), neutral_.end(), is_below);
      (is_idle ? settings_.ignored : settings_.unknown).push_back(path);
    }
  }

  // ---- facts ----

  std::optional<std::int64_t> count(const char* fact) const {
    const auto found = facts_.find(fact);
    if (found == facts_.end() || !found->second.is_number_integer()) return std::nullopt;
    const std::int64_t number = found->second.get<std::int64_t>();
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    return number > 0 && number <= kMost ? std::optional(number) : std::nullopt;
  }
  bool is_true(const char* fact) const {
    const auto found = facts_.find(fact);
    return found != facts_.end() && found->second == true;
  }
  // Returns the product, or a number that is more than any cluster and any batch has.
  static std::int64_t bounded_product(std::initializer_list<std::int64_t> factors) {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    std::int64_t product = 1;
    for (const std::int64_t factor : factors)
      if (__builtin_mul_overflow(product, factor, &product) || product > kMost) return kMost;
    return product;
  }
  std::int64_t ranks_of(const char* key) const {
    return std::clamp<std::int64_t>(settings_.whole(std::string("parallel.") + key, 1), 1, 1 << 20);
  }

  void finish() {
    settings_.profile = is_true("@compiled") ? table_.compiled : table_.profile;
    if (!table_.profile_note.empty()) settings_.notes.push_back(table_.profile_note);
    if (is_true("@adapters")) settings_.values["training.frozen_base"] = true;
    finish_model();
    finish_layout();
    finish_batch();
    auto& values = settings_.values;
    if (const auto found = facts_.find("@bucket_MiB"); found != facts_.end() && found->second.is_number()) {
      // PyTorch's DDP cuts gradients in their own type.
      const double bytes = settings_.is("overlap.grad_reduce_in_fp32", false) ? 2 : 4;
      const double elements = found->second.get<double>() * (1 << 20) / bytes;
      if (elements >= 1 && elements < 1e12 && settings_.is("overlap.overlap_grad_reduce", true))
        values.emplace("overlap.bucket_size", static_cast<std::int64_t>(elements));
    }
    settings_.finish_recompute();
  }

  bool is_set(const std::string& key) const {
    return std::any_of(options_.overrides.begin(), options_.overrides.end(),
                       [&](const std::string& one) { return one.starts_with(key + "="); });
  }

  // A model that only its repository names: its own configuration says all of it, but for the length of sequences.
  void take_named_model(const std::string& repository) {
    auto& values = settings_.values;
    std::erase_if(values,
                  [](const auto& one) { return one.first.starts_with("model.") && one.first != "model.seq_length"; });
    const bool has_length = values.contains("model.seq_length");
    if (is_set("model.hf_config") || is_set("model.preset")) return;
    const ModelName* model = model_named(repository);
    if (model == nullptr)
      throw input_error(settings_.name + ": expected a model that is known here (stretto list models), got " +
                        in_quotes(repository) + "; give its config.json with --set model.hf_config=FILE; " +
                        settings_.file_says);
    if (!model->preset.empty())
      values["model.preset"] = model->preset;
    else
      add_shape_by_name(model->shape, settings_);
    settings_.notes.push_back("the model is " + model->name);
    // A repository's configuration has no length of the sequences that are trained.
    if (!has_length) values.erase("model.seq_length");
    if (!has_length && !is_set("model.seq_length"))
      throw input_error(settings_.name +
                        ": expected the length of sequences, which the document does not say; give "
                        "--set model.seq_length=N; " +
                        settings_.file_says);
  }

  void finish_model() {
    auto& values = settings_.values;
    for (const char* name : {"@tokenizer", "@model"})
      if (const auto found = facts_.find(name); found != facts_.end() && found->second.is_string())
        settings_.vocabulary_hints += found->second.get<std::string>() + "\n";
    if (const auto found = facts_.find("@model"); found != facts_.end() && !values.contains("model.num_layers"))
      return take_named_model(text_of_value(found->second));
    const std::int64_t hidden = settings_.whole("model.hidden_size", 0);
    if (values.contains("model.ffn_hidden_size") || hidden < 1 || hidden > (1 << 24)) return;
    const Json ratio = facts_.contains("@ffn_ratio") ? facts_.at("@ffn_ratio") : Json();
    std::int64_t width = count("@ffn_width").value_or(0);
    if (width == 0 && ratio.is_number() && ratio > 0 && ratio < 1000)
      width = static_cast<std::int64_t>(static_cast<double>(hidden) * ratio.get<double>());
    if (is_true("@ffn_both") && settings_.is("model.swiglu", true)) width /= 2;
    if (width > 0) values["model.ffn_hidden_size"] = width;
  }

  void finish_layout() {
    auto& values = settings_.values;
    const std::int64_t of_model =
        bounded_product({ranks_of("tensor_model_parallel_size"), ranks_of("context_parallel_size"),
                         ranks_of("pipeline_model_parallel_size")});
    if (ranks_of("tensor_model_parallel_size") == 1) values["parallel.sequence_parallel"] = false;
    if (ranks_of("context_parallel_size") == 1) values.erase("parallel.cp_comm_type");
    if (settings_.is("parallel.expert_model_parallel_size", 1)) values.erase("parallel.expert_model_parallel_size");
    if (settings_.is("parallel.num_distributed_optimizer_instances", 1))
      values.erase("parallel.num_distributed_optimizer_instances");
    const bool is_sharded = settings_.is("parallel.data_parallel_sharding_strategy", "optim_grads_params") ||
                            settings_.is("parallel.data_parallel_sharding_strategy", "optim_grads");
    if (!is_sharded) {
      values.erase("parallel.num_distributed_optimizer_instances");
      values["overlap.fsdp_comm_overlap"] = false;
      values.emplace("overlap.overlap_grad_reduce", true);  // PyTorch's DDP
    }
    if (const auto replicas = count("@replicas")) {
      settings_.ranks = bounded_product({of_model, *replicas});
      settings_.ranks_from = "the degrees of the document";
    } else if (const auto gpus = count("@gpus")) {
      settings_.ranks = *gpus;
      settings_.ranks_from = "its number of GPUs";
    } else if (const auto nodes = count("@nodes")) {
      settings_.ranks = bounded_product({*nodes, count("@gpus_of_node").value_or(1)});
      settings_.ranks_from = "its nodes";
    }
    of_model_ = of_model;
  }

  void finish_batch() {
    auto& values = settings_.values;
    const std::int64_t length = std::max<std::int64_t>(1, settings_.whole("model.seq_length", 1));
    if (const auto tokens = count("@rank_tokens"))
      values["training.micro_batch_size"] = std::max<std::int64_t>(1, *tokens / length);
    if (const auto tokens = count("@global_tokens"))
      values["training.global_batch_size"] = std::max<std::int64_t>(1, *tokens / length);
    if (const auto micro = count("@pipeline_micro"); micro && ranks_of("pipeline_model_parallel_size") > 1)
      values["training.micro_batch_size"] = *micro;
    const std::int64_t ranks = options_.gpus > 0 ? options_.gpus : settings_.ranks.value_or(of_model_);
    const std::int64_t micro = settings_.whole("training.micro_batch_size", 1);
    if (const auto steps = count("@accumulation"); steps && micro > 0)
      values.emplace("training.global_batch_size",
                     bounded_product({micro, *steps, std::max<std::int64_t>(1, ranks / of_model_)}));
  }

  KeyTable table_;
  Yaml yaml_;
  const ImportOptions& options_;
  Settings settings_;
  std::map<std::string, const Json*> values_;  // [path], null values left out
  std::map<std::string, Json> facts_;
  Strings used_, neutral_;     // paths that acted, and that have a value without effect
  std::int64_t of_model_ = 1;  // ranks of one copy of the model
};

}  // namespace

std::optional<Translation> from_keyed_document(const Yaml& yaml, const std::string& name,
                                               const ImportOptions& options) {
  const auto [reader, format] = reader_of_document(yaml.root);
  if (reader.empty()) return std::nullopt;
  return scenario_of(KeyedDocument(yaml, reader, name, options).run(format), options);
}

}  // namespace stretto
