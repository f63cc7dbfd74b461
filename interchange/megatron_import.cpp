#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/budget.hpp"
#include "base/charconv.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/benchmark_command.hpp"
#include "interchange/command_line.hpp"
#include "interchange/formats.hpp"
#include "interchange/launcher_command.hpp"
#include "interchange/megatron.hpp"
#include "interchange/megatron_flags.hpp"
#include "interchange/printed_arguments.hpp"
#include "interchange/recipe.hpp"
#include "model/layout.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

constexpr const char* kCapacity = "--moe-expert-capacity-factor";
constexpr const char* kProfile = "megatron-core-te";
constexpr const char* kFlashProfile = "megatron-core-te-flash2";
constexpr const char* kBf16GradsProfile = "megatron-core-te-bf16-grads";
constexpr const char* kOldProfile = "megatron-2021";

// Returns the least number of letters that are put in, left out or replaced to make one word of the other.
std::size_t letters_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

class Import {
 public:
  Import(const CommandLine& line, const std::string& name, const ImportOptions& options)
      : line_(line), options_(options), budget_(name) {
    settings_.name = name;
    settings_.profile = kProfile;
    settings_.vocabulary_key = "--vocab-size";
    settings_.choices = line.choices;
  }

  Settings run() {
    if (const std::string_view kind = other_kind_of(line_.program); !kind.empty())
      settings_.refused[std::string(kind)] = {std::filesystem::path(line_.program).filename().string(), 0, ""};
    for (const Flag& flag : line_.flags) given_[flag.name] = &flag;
    // Flags that are not modelled at all are reported first.
    for (const auto& [name, flag] : given_)
      if (const FlagRule* rule = rule_of(name); rule != nullptr && rule->verdict == FlagVerdict::refused &&
                                                !is_neutral(*rule, flag->values) &&
                                                !(name == kCapacity && has("--moe-pad-expert-input-to-capacity")))
        settings_.refused.emplace(std::string(rule->says), judged(*flag, ""));
    refuse(settings_, options_);
    // The last of equal flags counts, as in argparse.
    for (const Flag& flag : line_.flags)
      if (given_[flag.name] == &flag) settings_.take_from({flag.name, flag.line, ""}, [&] { take(flag); });
    take_environment();
    settings_.notes.insert(settings_.notes.end(), line_.notes.begin(), line_.notes.end());
    if (settings_.taken.empty() && settings_.refused.empty())
      throw input_error(settings_.name + ": expected flags of Megatron-LM, as --num-layers 32, got none" + unread());
    complete();
    return std::move(settings_);
  }

 private:
  // Returns the remark that a file which may have the flags is not there; "" where all are.
  std::string unread() const {
    for (const std::string& note : line_.notes)
      if (note.find(" is not read") != std::string::npos) return "; " + note;
    return "";
  }
  bool has(const char* flag) const { return given_.contains(flag); }
  std::string word(const char* flag) const {
    const auto found = given_.find(flag);
    return found == given_.end() || found->second->values.empty() ? "" : found->second->values.front();
  }
  Error wrong(const Flag& flag, const std::string& message) const {
    if (flag.line < 1) return input_error(fmt::format("{}: {}: {}", settings_.name, flag.name, message));
    return input_error(fmt::format("{}:{}: {}: {}", settings_.name, flag.line, flag.name, message));
  }
  Assessment judged(const Flag& flag, std::string_view effect) const {
    std::string what = flag.name;
    for (const std::string& value : flag.values)
      if (!value.empty() && what.size() < 60) what += " " + value;
    return {what, flag.line, std::string(effect)};
  }
  void near(const Flag& flag, std::string_view effect) { settings_.approximated.push_back(judged(flag, effect)); }

  // Returns the flag's only value; nothing where the value has a variable that no command sets.
  std::optional<std::string> value(const Flag& flag, const std::string& key = "") {
    std::vector<std::string> values = flag.values;
    std::erase(values, "");
    if (values.empty() && !flag.unknown.empty()) {
      const std::string& variable = *flag.unknown.begin();
      if (!key.empty()) settings_.unset[key] = variable;
      settings_.notes.push_back(
          fmt::format("{}: nothing sets ${}: it is as if it were absent; --env {}=VALUE says otherwise",
                      Assessment{flag.name, flag.line, ""}.place(), variable, variable));
      return std::nullopt;
    }
    if (values.empty()) throw wrong(flag, "expected a value, got none");
    for (std::size_t i = 1; i < values.size(); ++i)
      settings_.notes.push_back(fmt::format("{} belongs to no flag, after {}", in_quotes(values[i]),
                                            Assessment{flag.name, flag.line, ""}.place()));
    return values.front();
  }
  std::optional<std::int64_t> count(const Flag& flag) {
    const auto text = value(flag);
    if (!text) return std::nullopt;
    const Json number = value_of_word(*text);
    if (!number.is_number_integer() || number.get<std::int64_t>() < 1 ||
        number.get<std::int64_t>() > (std::int64_t{1} << 40))
      throw wrong(flag, "expected a whole number of at least 1, got " + in_quotes(*text));
    return number.get<std::int64_t>();
  }

  // ---- one flag ----

  void take(const Flag& flag) {
    budget_.at_line(flag.line);
    budget_.look(flag.name.size() * megatron_rows().size());
    if (take_special(flag)) return settings_.taken.push_back(flag.name);
    for (const MegatronRow& row : megatron_rows()) {
      if (row.flag.empty() && row.aliases.empty()) continue;
      const bool is_it =
          row.flag == flag.name || std::find(row.aliases.begin(), row.aliases.end(), flag.name) != row.aliases.end();
      if (!is_it) {
        if (row.with == flag.name) return settings_.taken.push_back(flag.name);
        continue;
      }
      // Without the other flag that it must be given with, Megatron-LM ignores the flag.
      if (!row.with.empty() && !has(row.with.c_str())) return settings_.ignored.push_back(flag.name);
      set(flag, row);
      return settings_.taken.push_back(flag.name);
    }
    std::string name = flag.name;
    // Launchers accept both spellings of their flags.
    if (name.find('_') != std::string::npos && rule_of(name) == nullptr)
      std::replace(name.begin(), name.end(), '_', '-');
    if (const FlagRule* rule = rule_of(name)) return assess(flag, *rule);
    unknown(flag);
  }

  void assess(const Flag& flag, const FlagRule& rule) {
    if (rule.verdict == FlagVerdict::without_effect || is_neutral(rule, flag.values))
      return settings_.ignored.push_back(flag.name);
    if (rule.verdict == FlagVerdict::approximated) return near(flag, rule.says);
  }

  // Reports a flag without a rule. A misspelling would silently change the step; a flag of the user's own program would
  // not.
  void unknown(const Flag& flag) {
    std::vector<std::string> known = {"--num-layers-per-virtual-pipeline-stage"};
    for (const MegatronRow& row : megatron_rows())
      if (!row.flag.empty()) known.push_back(row.flag);
    known.emplace_back("--expert-model-parallel-size");
    for (const std::string& one : known)
      budget_.look(flag.name.size() * one.size());  // a table of all pairs of letters
    const std::string nearest = nearest_spelling(flag.name, known);
    // A spelling that is more than two letters away is another flag, and not a slip.
    if (!nearest.empty() && letters_between(flag.name, nearest) <= 2 && !has(nearest.c_str()))
      throw wrong(flag, "expected a flag of Megatron-LM; did you mean \"" + nearest + "\"?");
    near(flag, "no flag of Megatron-LM that is known here; it is left out");
  }

  bool take_special(const Flag& flag) {
    const std::string& name = flag.name;
    auto& values = settings_.values;
    const auto is = [&](std::initializer_list<const char*> names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (name == "--num-layers-per-virtual-pipeline-stage") {
      chunk_layers_ = count(flag);
    } else if (is({"--recompute-activations"})) {
      values["training.recompute_granularity"] = "selective";
    } else if (is({"--checkpoint-activations"})) {
      values["training.recompute_granularity"] = "full";
    } else if (is({"--activations-checkpoint-method"})) {
      values["training.recompute_granularity"] = "full";
      if (const auto method = value(flag)) values["training.recompute_method"] = *method;
    } else if (is({"--activations-checkpoint-num-layers"})) {
      if (const auto layers = count(flag)) values["training.recompute_num_layers"] = *layers;
    } else if (name == "--moe-layer-recompute") {
      repeats_experts_ = true;
    } else if (name == "--recompute-modules") {
      for (const auto& [module, effect] : settings_.take_recompute_modules(flag.values))
        near({flag.name, {module}, flag.line, {}}, effect);
    } else if (name == "--normalization") {
      if (const auto kind = value(flag)) {
        std::string lower = *kind;
        std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
        // DeepSpeed writes it in small letters.
        values["model.normalization"] = lower == "rmsnorm" ? "RMSNorm" : lower == "layernorm" ? "LayerNorm" : *kind;
      }
    } else if (name == "--moe-router-bias-update-rate" && word(name.c_str()) != "" &&
               value_of_word(word(name.c_str())) == 0) {
      near(flag, "a frozen bias takes as long as one that is updated");
    } else if (name == "--pp-partition-method") {  // Megatron-DeepSpeed's; BLOOM counts the embedding and the head
      if (const auto method = value(flag); method && method->find("embed") != std::string::npos)
        values["parallel.account_for_embedding_in_pipeline_split"] =
            values["parallel.account_for_loss_in_pipeline_split"] = true;
    } else if (name == "--pad-vocab-size-to") {
      if (const auto size = count(flag)) {
        values["model.vocab_size"] = *size;
        values["model.make_vocab_size_divisible_by"] = 1;
      }
    } else if (name == "--extra-vocab-size" || name == "--patch-tokenizer-type" || name == "--tokenizer-name-or-path") {
      // with the vocabulary
    } else if (name == "--use-rotary-position-embeddings") {
      values["model.position_embedding_type"] = "rope";
    } else if (name == "--position-embedding-type") {
      take_positions(flag);
    } else if (name == "--padded-vocab-size") {
      if (const auto size = count(flag)) {
        values["model.vocab_size"] = *size;
        values["model.make_vocab_size_divisible_by"] = 1;
      }
    } else if (name == "--moe-layer-freq") {
      if (const auto text = value(flag)) values["model.moe_layer_freq"] = layers_of(flag, *text);
    } else if (name == "--linear-attention-freq") {
      if (const auto text = value(flag)) values["model.linear_attention_freq"] = layers_of(flag, *text);
    } else if (name == "--window-attn-skip-freq") {
      if (const auto text = value(flag)) values["model.window_attn_skip_freq"] = layers_of(flag, *text);
    } else if (name == "--no-rope-freq") {
      if (const auto text = value(flag)) values["model.no_rope_freq"] = layers_of(flag, *text);
    } else if (name == "--window-size") {
      if (const auto text = value(flag)) values["model.sliding_window"] = window_of(flag, *text);
    } else if (name == "--moe-router-force-load-balancing") {
      values["training.moe_expert_loads"] = "forced";
    } else if (name == kCapacity && is_neutral(*rule_of(name), flag.values)) {
      // as many rows as the router says
    } else if (name == kCapacity) {
      if (const auto factor = value(flag)) values["parallel.moe_expert_capacity_factor"] = value_of_word(*factor);
      near(flag, "tokens beyond it would be dropped; training here ends with an error");
    } else if (name == "--train-samples") {
      samples_ = count(flag);
    } else if (name == "--use-torch-fsdp2") {
      values["parallel.data_parallel_sharding_strategy"] = "optim_grads_params";
      if (has("--torch-fsdp2-no-reshard-after-forward")) values["parallel.reshard_after_forward"] = false;
    } else if (name == "--torch-fsdp2-no-reshard-after-forward" || name == "--group-query-attention" ||
               name == "--use-megatron-fsdp") {
      // flags that are read together with another one
    } else if (name == "--num-key-value-heads") {  // Megatron-DeepSpeed's
      if (const auto heads = count(flag)) values["model.num_query_groups"] = *heads;
    } else if (name == "--ds-sequence-parallel-size") {
      // DeepSpeed-Ulysses: all-to-all before and after attention.
      if (const auto ranks = count(flag)) values["parallel.context_parallel_size"] = *ranks;
      values["parallel.cp_comm_type"] = "a2a";
    } else if (name == "--pipeline-model-parallel-layout") {
      // Layers that predict further tokens are left out (--mtp-num-layers).
      if (auto layout = value(flag)) {
        std::erase_if(*layout, [](char c) { return c == 'm' || c == '\'' || c == '"'; });
        values["parallel.pipeline_model_parallel_layout"] = *layout;
      }
    } else if (name == "--zero-stage") {
      if (const auto stage = value(flag)) {
        values["parallel.use_distributed_optimizer"] = *stage == "1" || *stage == "2" || *stage == "3";
        values["parallel.data_parallel_sharding_strategy"] = *stage == "3"   ? "optim_grads_params"
                                                             : *stage == "2" ? "optim_grads"
                                                             : *stage == "1" ? "optim"
                                                                             : "no_shard";
      }
    } else if (is({"--megatron-fsdp-grad-comm-dtype", "--megatron-fsdp-main-grads-dtype",
                   "--accumulate-allreduce-grads-in-fp32"})) {
      // with the precision
    } else if (is({"--fp8-hybrid", "--fp8-e4m3"})) {
      values["training.fp8_format"] = name == "--fp8-hybrid" ? "hybrid" : "e4m3";
    } else if (name == "--overlap-p2p-communication") {  // of 2023, when it was off by default
      values["overlap.overlap_p2p_comm"] = true;
    } else if (name == "--fp32-allreduce") {  // before 2021
      values["overlap.grad_reduce_in_fp32"] = true;
    } else if (name == "--glu-activation") {  // BigScience's: liglu, geglu, reglu, swiglu
      if (const auto kind = value(flag)) {
        values["model.swiglu"] = true;
        if (*kind != "swiglu") near(flag, "predicted with SwiGLU, which moves as many bytes");
      }
    } else if (name == "--attention-head-type") {  // Pai-Megatron-Patch's
      if (value(flag) == "multiquery") values["model.num_query_groups"] = 1;
    } else if (name == "--fp16") {
      values["training.precision"] = "bf16";
      near(flag, rule_of(name)->says);
    } else {
      return false;
    }
    return true;
  }

  // A number, or a list in Python: "[0,1]", "([0]*3+[1]*58)" (moe_freq_type() of arguments.py).
  // Returns the keys that a query sees, its own among them: "127,0" or "(127,0)" are 128, a first number below 0 is 0.
  std::int64_t window_of(const Flag& flag, std::string text) const {
    std::erase_if(text, [](char c) { return std::string_view(" ()[]'\"").find(c) != std::string_view::npos; });
    const std::size_t comma = text.find(',');
    const Json left = value_of_word(text.substr(0, comma));
    constexpr std::int64_t kMost = 1 << 24;
    if (comma == std::string::npos || !left.is_number_integer() || left >= kMost)
      throw wrong(flag, "expected two numbers, of keys before and after the own one, got " + in_quotes(text));
    return left < 0 ? 0 : left.get<std::int64_t>() + 1;
  }
  Json layers_of(const Flag& flag, std::string text) const {
    if (const Json number = value_of_word(text); number.is_number_integer()) return number;
    // A test's YAML has quotes for a shell around it.
    std::erase_if(text, [](char c) { return c == ' ' || c == '(' || c == ')' || c == '\'' || c == '"'; });
    if (const Json number = value_of_word(text); number.is_number_integer()) return number;
    Json all = Json::array();
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t end = text.find(']', at);
      const Json part = end == std::string::npos ? Json() : Json::parse(text.substr(at, end + 1 - at), nullptr, false);
      if (!part.is_array()) throw wrong(flag, "expected a number or a list, got " + in_quotes(text));
      at = std::min(text.find('+', end), text.size());
      const Json times = text[end + 1 < text.size() ? end + 1 : end] == '*'
                             ? value_of_word(text.substr(end + 2, at - end - 2))
                             : Json(1);
      constexpr std::int64_t kMostLayers = 1 << 14;
      if (!times.is_number_integer() || times < 0 || times > kMostLayers)
        throw wrong(flag, "expected a number or a list, got " + in_quotes(text));
      if (std::ssize(all) + std::ssize(part) * times.get<std::int64_t>() > kMostLayers)
        throw wrong(flag, "expected a list of at most 16,384 layers, got " + in_quotes(text));
      for (std::int64_t i = 0; i < times.get<std::int64_t>(); ++i) all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  void take_positions(const Flag& flag) {
    const auto kind = value(flag);
    if (!kind) return;
    const bool turns = *kind == "rope" || *kind == "rotary" || *kind == "yarn" || *kind == "mrope";
    const bool is_ours = *kind == "rope" || *kind == "learned_absolute";
    const bool is_bias = *kind == "alibi" || *kind == "relative";  // alibi: of BigScience's Megatron-DeepSpeed
    if (!turns && *kind != "learned_absolute" && *kind != "none" && !is_bias)
      throw wrong(
          flag, "expected one of learned_absolute, rope, yarn, mrope, relative, alibi, none, got " + in_quotes(*kind));
    settings_.values["model.position_embedding_type"] = turns ? "rope" : "learned_absolute";
    if (!is_ours)
      near(flag, turns     ? "positions turn as with rope, which takes as long"
                 : is_bias ? "attention's scores have no bias by distance; learned positions are added to the embedding"
                           : "learned positions are added to the embedding, which takes little");
  }

  void set(const Flag& flag, const MegatronRow& row) {
    if (!row.given.is_null()) return void(settings_.values[row.key] = row.given);
    if (!row.is_list) {
      if (const auto text = value(flag, row.key)) settings_.values[row.key] = ours(flag, row, *text);
      return;
    }
    Json list = Json::array();
    for (const std::string& one : flag.values)
      if (!one.empty()) list.push_back(ours(flag, row, one));
    if (list.empty()) return void(value(flag, row.key));
    settings_.values[row.key] = row.may_be_one && list.size() == 1 ? list[0] : list;
  }
  Json ours(const Flag& flag, const MegatronRow& row, const std::string& value) const {
    if (row.words.empty()) return value_of_word(value);
    std::vector<std::string> known;
    for (const auto& [word, ours] : row.words) {
      if (word == value) return ours;
      known.push_back(word);
    }
    const std::string nearest = nearest_spelling(value, known);
    throw wrong(flag, fmt::format("expected one of {}, got {}", fmt::join(known, ", "), in_quotes(value)) +
                          (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }

  // ---- the environment ----

  void take_environment() {
    for (const auto& [name, value] : line_.exports) {
      if (name == "CUDA_DEVICE_MAX_CONNECTIONS") {
        const Json number = value_of_word(value);
        if (number.is_number_integer()) settings_.values["cluster.cuda_device_max_connections"] = number;
        settings_.taken.push_back(name);
      } else if (name == "NVTE_FUSED_ATTN" && value == "0") {
        const auto flash = line_.exports.find("NVTE_FLASH_ATTN");
        const bool is_unfused = flash != line_.exports.end() && flash->second == "0";
        if (is_unfused) settings_.values.emplace("training.attention_backend", "unfused");
        is_flash_ = !is_unfused;
        settings_.taken.push_back(name);
      } else if (const std::string_view effect = effect_of_variable(name, value); !effect.empty()) {
        const auto line = line_.export_lines.find(name);
        settings_.approximated.push_back(
            {name + "=" + value, line == line_.export_lines.end() ? 0 : line->second, std::string(effect)});
      } else {
        settings_.ignored.push_back(name);
      }
    }
  }

  // ---- the meaning of absent flags ----

  void complete() {
    auto& values = settings_.values;
    const bool is_old = has("--DDP-impl") || has("--activations-checkpoint-method") || has("--checkpoint-activations");
    is_old_ = is_old;
    if (is_old) settings_.profile = kOldProfile;
    if (const std::string backend = word("--attention-backend"); backend == "flash") is_flash_ = true;
    if (is_flash_ && !is_old) settings_.profile = kFlashProfile;
    complete_stages();
    complete_sharding();
    complete_gradients(is_old);
    if (has("--group-query-attention") && !values.contains("model.num_query_groups"))
      values["model.num_query_groups"] = 1;
    add_absent(is_old);
    drop_idle();
    complete_model();
    complete_course();
    complete_patched_vocabulary();
    settings_.vocabulary_hints = has("--patch-tokenizer-type") ? "" : vocabulary_hints();
    if (line_.gpus) {
      settings_.ranks = line_.gpus;
      settings_.ranks_from = "WORLD_SIZE";
    }
    if (line_.processes || line_.nodes.value_or(1) > 1) {
      settings_.ranks = line_.processes.value_or(1) * line_.nodes.value_or(1);
      settings_.ranks_from = line_.nodes ? "processes of a node and nodes" : "--nproc-per-node";
      if (line_.processes && !line_.nodes && settings_.ranks)
        settings_.assumptions.emplace_back("parallel.data_parallel_size",
                                           "one node is assumed: nothing says how many there are");
    }
  }

  // Adds Megatron-LM's defaults where they differ from the profile's.
  void add_absent(bool is_old) {
    const Scenario base =
        parse_scenario("profile = \"" + settings_.profile + "\"\n[model]\npreset = \"gpt2-124m\"\n", "profile");
    const bool is_interleaved = settings_.whole("parallel.virtual_pipeline_model_parallel_size", 1) > 1;
    for (const MegatronRow& row : megatron_rows()) {
      if (row.absent.is_null() || settings_.values.contains(row.key)) continue;
      // The profile of 2021 has the behaviour of that release.
      if (is_old && row.key.starts_with("overlap.")) continue;
      if (row.key == "overlap.overlap_p2p_comm" && !is_interleaved) continue;
      // The getters of other keys hide a value that does not act; only a value that can differ is written.
      if (row.key == "parallel.sequence_parallel" || row.get(base) != row.absent)
        settings_.values[row.key] = row.absent;
    }
  }

  void complete_stages() {
    auto& values = settings_.values;
    const std::int64_t stages = std::max<std::int64_t>(1, settings_.whole("parallel.pipeline_model_parallel_size", 1));
    if (const Json* layout = settings_.find("parallel.pipeline_model_parallel_layout");
        layout != nullptr && layout->is_string())
      try {
        const std::int64_t chunks = std::ssize(parse_layout(layout->get<std::string>()));
        if (chunks / stages > 1) values["parallel.virtual_pipeline_model_parallel_size"] = chunks / stages;
      } catch (const Error&) {  // the scenario's reader reports the fault
      }
    if (!chunk_layers_) return;
    std::int64_t layers = settings_.whole("model.num_layers", 1);
    for (const char* key :
         {"parallel.account_for_embedding_in_pipeline_split", "parallel.account_for_loss_in_pipeline_split"})
      if (settings_.is(key, true)) ++layers;
    if (layers < 1 || layers % stages != 0 || layers / stages % *chunk_layers_ != 0)
      throw input_error(fmt::format(
          "{}: --num-layers-per-virtual-pipeline-stage: expected a divisor of the {} layers of {} stages, got {}",
          settings_.name, layers, stages, *chunk_layers_));
    if (layers / stages / *chunk_layers_ > 1)
      values["parallel.virtual_pipeline_model_parallel_size"] = layers / stages / *chunk_layers_;
  }

  // Completes sharding: --use-megatron-fsdp alone shards parameters (arguments.py:3190) and overlaps
  // (megatron_fsdp.py:329).
  void complete_sharding() {
    auto& values = settings_.values;
    const char* key = "parallel.data_parallel_sharding_strategy";
    if (has("--use-megatron-fsdp") && !values.contains(key)) values[key] = "optim_grads_params";
    if (!settings_.is(key, "optim_grads") && !settings_.is(key, "optim_grads_params")) return;
    values["overlap.fsdp_comm_overlap"] = true;
    // FSDP has no buckets of DDP.
    for (const char* of_ddp : {"overlap.overlap_grad_reduce", "overlap.align_grad_reduce",
                               "overlap.overlap_param_gather", "overlap.align_param_gather"})
      values[of_ddp] = false;
  }

  // Sets the type of gradients. Megatron-LM keeps and reduces them in f32 with bf16 unless a flag says otherwise, and
  // else in the type of parameters (arguments.py:1203-1216).
  void complete_gradients(bool is_old) {
    auto& values = settings_.values;
    const char* key = "overlap.grad_reduce_in_fp32";
    const auto is_16 = [&](const char* flag) { return word(flag) == "bf16" || word(flag) == "fp16"; };
    const bool sums_in_fp32 = has("--accumulate-allreduce-grads-in-fp32");
    bool is_in_16 = has("--fp16") ? !sums_in_fp32 : is_16("--main-grads-dtype") && !sums_in_fp32;
    // FSDP reduces in its main gradients' type, by default that of parameters
    // (megatron_fsdp/param_and_grad_buffer.py:2317; torch_fully_sharded_data_parallel.py has no policy of its own).
    if (settings_.values.contains("overlap.fsdp_comm_overlap")) {
      const auto is_32 = [&](const char* flag) { return word(flag) == "fp32"; };
      is_in_16 = !is_32("--megatron-fsdp-grad-comm-dtype") &&
                 (is_16("--megatron-fsdp-grad-comm-dtype") || !is_32("--megatron-fsdp-main-grads-dtype")) &&
                 (has("--bf16") || has("--fp16"));
    }
    if (is_in_16) values[key] = false;
    // The profile of 2021 describes fp16.
    if (is_old && has("--bf16")) values.emplace(key, true);
    if (!settings_.is(key, false) || is_old || settings_.values.contains("overlap.fsdp_comm_overlap")) return;
    if (settings_.profile == kProfile) settings_.profile = kBf16GradsProfile;
  }

  // Removes keys that Megatron-LM reads only where they act.
  void drop_idle() {
    auto& values = settings_.values;
    const bool is_interleaved = settings_.whole("parallel.virtual_pipeline_model_parallel_size", 1) > 1;
    if (!is_interleaved) {
      values["overlap.align_param_gather"] = false;  // arguments.py:1012
      values.erase("overlap.overlap_p2p_comm");
      values.erase("parallel.microbatch_group_size_per_vp_stage");
    }
    if (!settings_.is("overlap.overlap_grad_reduce", true) ||
        settings_.whole("parallel.pipeline_model_parallel_size", 1) <= 1)
      values["overlap.align_grad_reduce"] = false;  // training.py:4346, schedules.py
    if (settings_.is("overlap.overlap_p2p_comm", true)) values["overlap.batch_p2p_comm"] = false;
    if (!settings_.is("model.position_embedding_type", "rope"))
      for (const char* key : {"rotary_base", "rotary_seq_len_interpolation_factor", "use_rope_scaling"})
        values.erase(std::string("model.") + key);
    if (!settings_.is("model.use_rope_scaling", true)) values.erase("model.rope_scaling_factor");
    drop_tensor_overlap();
    if (repeats_experts_) add_experts_to_recompute_modules();
    settings_.finish_recompute();
    if (settings_.whole("parallel.tensor_model_parallel_size", 1) <= 1) values["parallel.sequence_parallel"] = false;
    if (is_old_ && settings_.whole("parallel.context_parallel_size", 1) > 1)
      values.emplace("training.attention_backend", "fused");  // whose exchanges only fused attention has
    if (settings_.whole("parallel.context_parallel_size", 1) <= 1)
      for (const char* key : {"parallel.cp_comm_type", "parallel.hierarchical_context_parallel_sizes"})
        values.erase(key);
  }

  // One rank has nothing to overlap; and a step that overlaps micro-batches has the transfers of tensor parallelism
  // exposed.
  void drop_tensor_overlap() {
    const char* key = "overlap.tp_comm_overlap";
    if (!settings_.is(key, true)) return;
    const bool is_one = settings_.whole("parallel.tensor_model_parallel_size", 1) <= 1;
    if (!is_one && !settings_.is("overlap.overlap_moe_expert_parallel_comm", true)) return;
    std::erase_if(settings_.values, [](const auto& one) { return one.first.starts_with("overlap.tp_comm_"); });
    std::erase(settings_.taken, "--tp-comm-overlap");
    if (is_one) return settings_.ignored.push_back("--tp-comm-overlap");
    const auto flag = given_.find("--tp-comm-overlap");
    settings_.approximated.push_back({"--tp-comm-overlap", flag == given_.end() ? 0 : flag->second->line,
                                      "transfers of tensor parallelism are exposed, as the overlap of experts is not "
                                      "modelled together with theirs"});
  }

  // --moe-layer-recompute is an old spelling (transformer_config.py:2014 of Megatron-LM d98e8a64).
  void add_experts_to_recompute_modules() {
    auto& values = settings_.values;
    std::vector<std::string> modules = {"core_attn"};
    if (const Json* given = settings_.find("training.recompute_modules"))
      modules = given->get<std::vector<std::string>>();
    if (std::find(modules.begin(), modules.end(), "moe") == modules.end()) modules.emplace_back("moe");
    settings_.take_recompute_modules(modules);
    values["training.recompute_granularity"] = "selective";
  }

  void complete_model() {
    auto& values = settings_.values;
    // Megatron-DeepSpeed's model without experts has one of them (--num-experts 1 is its default).
    if (has("--moe-expert-parallel-size") && settings_.whole("model.num_moe_experts", 0) == 1)
      values.erase("model.num_moe_experts");
    if (settings_.whole("model.num_moe_experts", 0) > 1 && !has("--moe-grouped-gemm"))
      settings_.approximated.push_back(
          {"moe_grouped_gemm false", 0,
           "products of a rank's experts are one grouped kernel, and not one after another"});
    const std::int64_t hidden = settings_.whole("model.hidden_size", 0);
    constexpr std::int64_t kMultiple = 64;
    if (settings_.is("model.swiglu", true) && hidden > 0 && hidden < (1 << 24) &&
        !values.contains("model.ffn_hidden_size"))
      values["model.ffn_hidden_size"] = 4 * hidden * 2 / 3 / kMultiple * kMultiple;
  }

  // Completes the course of training, which has no effect on a step but must be consistent.
  void complete_course() {
    auto& values = settings_.values;
    // A product or quotient that another program was to compute, as bc.
    for (const char* key : {"lr", "min_lr", "lr_warmup_iters", "lr_decay_iters"})
      if (const Json* given = settings_.find(std::string("training.") + key);
          given != nullptr && given->is_string() &&
          given->get_ref<const std::string&>().find_first_of("$*/") != std::string::npos) {
        settings_.notes.push_back(fmt::format("{} is no number here; it has no effect on a step's time: {}", key,
                                              in_quotes(given->get<std::string>().substr(0, 40))));
        values.erase(std::string("training.") + key);
      }
    // "0:16 2.4B:320": the last batch is that of most of the run.
    if (const std::string steps = schedule(); !steps.empty() && !values.contains("training.global_batch_size"))
      if (const Json batch = value_of_word(steps.substr(steps.rfind(':') + 1)); batch.is_number_integer() && batch > 0)
        values["training.global_batch_size"] = batch;
    if (samples_ && !values.contains("training.train_iters")) {
      const std::int64_t batch = std::max<std::int64_t>(1, settings_.whole("training.global_batch_size", 1));
      values["training.train_iters"] = std::max<std::int64_t>(1, *samples_ / batch);
    }
    // A script computes it from tokens, and for few of them there is no step.
    if (settings_.whole("training.train_iters", 1) < 1)
      for (const char* of_steps : {"training.train_iters", "training.lr_decay_iters"}) values.erase(of_steps);
    const std::int64_t decay = settings_.whole("training.lr_decay_iters", settings_.whole("training.train_iters", 100));
    if (settings_.whole("training.lr_warmup_iters", 0) >= decay) values.erase("training.lr_warmup_iters");
    const auto number = [&](const char* key, double otherwise) {
      const Json* value = settings_.find(key);
      return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
    };
    if (number("training.min_lr", 0) > number("training.lr", 1e-3)) values.erase("training.min_lr");
  }

  std::string schedule() const {
    const auto found = given_.find("--step-batch-size-schedule");
    return found == given_.end() || found->second->values.empty() ? "" : found->second->values.back();
  }

  std::string vocabulary_hints() const {
    std::string type = word("--tokenizer-type");
    // The default of pretrain_gpt.py and its like (args_defaults); a file of merges is of GPT-2's tokenizer.
    const std::string program = std::filesystem::path(line_.program).filename().string();
    if (type.empty() && (program.empty() || program.find("gpt") != std::string::npos || has("--merge-file")))
      type = "GPT2BPETokenizer";
    std::string hints;
    const bool is_by_model = type == "HuggingFaceTokenizer" || type.find("SentencePiece") != std::string::npos ||
                             type == "SFTTokenizer" || type == "TikTokenizer" || type == "MultimodalTokenizer" ||
                             type == "PretrainedFromHF" || type == "HFTokenizer";
    if (!is_by_model && !type.empty()) hints += type + "\n";
    for (const char* flag : {"--tokenizer-model", "--tokenizer-name-or-path"})
      if (const std::string model = word(flag); !model.empty()) hints += model + "\n";
    if (is_by_model) hints += std::filesystem::path(settings_.name).stem().string() + "\n";
    return hints;
  }

  // Pai-Megatron-Patch's tokenizers: the vocabulary is that of the tokenizer and --extra-vocab-size
  // (megatron_patch/tokenizer/__init__.py).
  void complete_patched_vocabulary() {
    const std::string type = word("--patch-tokenizer-type");
    if (type.empty() || settings_.values.contains("model.vocab_size")) return;
    constexpr std::pair<std::string_view, std::int64_t> kSizes[] = {
        {"LLamaTokenizer", 32000},     {"LLama2Tokenizer", 32000},      {"LLama3Tokenizer", 128256},
        {"LLama3.1Tokenizer", 128256}, {"Qwen2Tokenizer", 151643},      {"Qwen3Tokenizer", 151643},
        {"Qwen2VLTokenizer", 151643},  {"DeepSeekV2Tokenizer", 100000}, {"MistralTokenizer", 32000},
        {"MixtralTokenizer", 32000}};
    const std::string extra = word("--extra-vocab-size");
    const Json more = extra.empty() ? Json(0) : value_of_word(extra);
    for (const auto& [name, size] : kSizes)
      if (type == name && more.is_number_integer() && more >= 0 && more < (1 << 20))
        settings_.values["model.vocab_size"] = size + more.get<std::int64_t>();
  }

  const CommandLine& line_;
  const ImportOptions& options_;
  Budget budget_;
  Settings settings_;
  std::map<std::string, const Flag*> given_;
  std::optional<std::int64_t> chunk_layers_, samples_;
  bool repeats_experts_ = false;
  bool is_flash_ = false, is_old_ = false;
};

}  // namespace

Json value_of_word(const std::string& word) {
  // Python, which reads the flags, takes 1_000 as 1000.
  if (word.size() > 2 && word.find('_') != std::string::npos && word.front() != '_' && word.back() != '_' &&
      word.find("__") == std::string::npos && word.find_first_not_of("0123456789_") == std::string::npos) {
    std::string digits = word;
    std::erase(digits, '_');
    return value_of_word(digits);
  }
  const char *begin = word.data(), *end = begin + word.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, whole); error == std::errc{} && stop == end) return whole;
  double real = 0;
  if (const auto [stop, error] = from_chars(begin, end, real); error == std::errc{} && stop == end) return real;
  return word;
}

bool is_flag_of_import(std::string_view flag) {
  constexpr std::string_view kFlags[] = {"--num-layers-per-virtual-pipeline-stage",
                                         "--recompute-activations",
                                         "--checkpoint-activations",
                                         "--activations-checkpoint-method",
                                         "--activations-checkpoint-num-layers",
                                         "--recompute-modules",
                                         "--use-rotary-position-embeddings",
                                         "--position-embedding-type",
                                         "--padded-vocab-size",
                                         "--moe-layer-freq",
                                         "--train-samples",
                                         "--use-torch-fsdp2",
                                         "--group-query-attention",
                                         "--use-megatron-fsdp",
                                         "--num-key-value-heads",
                                         "--ds-sequence-parallel-size",
                                         "--zero-stage",
                                         "--fp16",
                                         "--fp8-hybrid",
                                         "--fp8-e4m3",
                                         "--accumulate-allreduce-grads-in-fp32",
                                         "--normalization",
                                         "--pp-partition-method",
                                         "--pad-vocab-size-to",
                                         "--tokenizer-type",
                                         "--tokenizer-model",
                                         "--tokenizer-name-or-path",
                                         "--patch-tokenizer-type",
                                         "--extra-vocab-size",
                                         "--overlap-p2p-communication",
                                         "--fp32-allreduce",
                                         "--glu-activation",
                                         "--attention-head-type"};
  return std::find(std::begin(kFlags), std::end(kFlags), flag) != std::end(kFlags);
}

Translation from_megatron(std::string_view text, const std::string& name, const ImportOptions& options) {
  if (const auto printed = printed_arguments(text)) {
    Translation made = from_megatron_flags(*printed, name, options);
    made.notes.insert(made.notes.begin(), "settings are the arguments that Megatron-LM printed");
    return made;
  }
  const CommandLine line = command_line_of(command_of_list(text), name, options);
  refuse_program(line, name);
  if (is_benchmark_command(line)) return from_benchmark_command(line, name, options);
  if (is_launcher_command(line)) return from_launcher_command(line, name, options);
  if (is_titan_command(line)) return from_titan_command(line, name, options);
  if (is_recipe_command(line)) return from_recipe_command(line, name, options);
  if (const auto recipe = recipe_command_of_program(line, options)) return from_recipe_command(*recipe, name, options);
  return from_megatron_flags(line, name, options);
}

Translation from_megatron_flags(const CommandLine& line, const std::string& name, const ImportOptions& options) {
  CommandLine today = line;
  rename_old_flags(today);
  return scenario_of(Import(today, name, options).run(), options);
}

}  // namespace stretto
