#include "model/scenario/megatron.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kGpusOfNode = 8;

// Flags that say what Stretto always does: any other value is refused.
struct Fixed {
  const char* flag;
  std::vector<std::string> values;  // the first is written
};
const std::vector<Fixed>& fixed_flags() {
  static const std::vector<Fixed> flags = {
      {"--lr-decay-style", {"cosine"}}, {"--optimizer", {"adam"}}, {"--norm-epsilon", {"1e-5", "1e-05", "0.00001"}}};
  return flags;
}

// Flags that do not change what is computed: files, logs, checks, which kernel does it. One that ends in '-' begins all
// that are meant.
constexpr const char* kIgnored[] = {"--accumulate-allreduce-grads-in-fp32",
                                    "--async-save",
                                    "--auto-detect-ckpt-format",
                                    "--bias-",
                                    "--check-",
                                    "--ckpt-",
                                    "--cross-entropy-",
                                    "--data-",
                                    "--dataloader-type",
                                    "--dist-ckpt-",
                                    "--distributed-",
                                    "--empty-unused-",
                                    "--eval-",
                                    "--exit-",
                                    "--load",
                                    "--log-",
                                    "--manual-gc",
                                    "--manual-gc-",
                                    "--merge-file",
                                    "--mock-data",
                                    "--no-bias-",
                                    "--no-create-",
                                    "--no-gradient-accumulation-fusion",
                                    "--no-load-",
                                    "--no-masked-softmax-fusion",
                                    "--no-mmap-",
                                    "--no-persist-",
                                    "--no-rope-fusion",
                                    "--no-save-",
                                    "--nccl-communicator-config-path",
                                    "--num-workers",
                                    "--overlap-grad-reduce-",
                                    "--profile",
                                    "--profile-",
                                    "--save",
                                    "--save-",
                                    "--split",
                                    "--tensorboard-",
                                    "--timing-",
                                    "--tokenizer-",
                                    "--transformer-impl",
                                    "--test-",
                                    "--train-data-",
                                    "--use-checkpoint-args",
                                    "--use-flash-attn",
                                    "--use-mcore-models",
                                    "--valid-",
                                    "--vocab-file",
                                    "--wandb-"};
bool is_ignored(const std::string& flag) {
  return std::any_of(std::begin(kIgnored), std::end(kIgnored), [&](const std::string& known) {
    return known.ends_with('-') ? flag.starts_with(known) : flag == known;
  });
}

// Those of torchrun that do not say how many processes there are.
constexpr const char* kLauncher[] = {"node_rank",    "master_addr",   "master_port", "rdzv_id",
                                     "rdzv_backend", "rdzv_endpoint", "no_python",   "max_restarts",
                                     "standalone",   "log_dir",       "role"};

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  // Some of its numbers must be whole: 500000, and not 500000.0.
  if (value.is_number_float() && std::trunc(value.get<double>()) == value && std::abs(value.get<double>()) < 1e15)
    return std::to_string(value.get<std::int64_t>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : " ") + text_of(one);
  return text;
}

// A word as a shell takes it.
std::string quoted(const std::string& word) {
  return word.find_first_of(" |*()$&;<>") == std::string::npos ? word : "'" + word + "'";
}

Json value_of(const std::string& word) {
  const char *begin = word.data(), *end = begin + word.size();
  std::int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, whole); error == std::errc{} && stop == end) return whole;
  double real = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, real); error == std::errc{} && stop == end) return real;
  return word;
}

Json theirs(const MegatronRow& row, const Json& ours) {
  if (ours.is_array()) {
    Json all = Json::array();
    for (const Json& one : ours) all.push_back(theirs(row, one));
    return all;
  }
  for (const auto& [word, key] : row.words)
    if (key == ours) return word;
  return ours;
}

// ---- a shell's words ----

struct Word {
  std::string text;
  bool is_quoted = false;
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  Word word;
  bool is_open = false;
  const auto close = [&] {
    if (is_open) words.push_back(std::move(word));
    word = {};
    is_open = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      if (text[++i] == '\n') {
        close();
      } else {
        word.text += text[i];
        is_open = true;
      }
    } else if (c == '"' || c == '\'') {
      is_open = word.is_quoted = true;
      for (++i; i < text.size() && text[i] != c; ++i) word.text += text[i];
    } else if (c == '#' && !is_open) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (std::string_view(" \t\r\n();").find(c) != std::string_view::npos) {
      close();
    } else {
      word.text += c;
      is_open = true;
    }
  }
  close();
  return words;
}

// Variables that the script has set, put in; "" is left of one that it has not.
std::string expanded(const std::string& text, const std::map<std::string, std::string>& variables,
                     std::set<std::string>& unknown) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const bool is_braced = i + 1 < text.size() && text[i + 1] == '{';
    std::size_t at = i + (is_braced ? 2 : 1);
    const std::size_t begin = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) ++at;
    const std::string name = text.substr(begin, at - begin);
    if (is_braced) at = std::min(text.find('}', at), text.size() - 1) + 1;
    const auto found = variables.find(name);
    if (found == variables.end())
      unknown.insert(name);
    else
      out += found->second;
    i = at - 1;
  }
  return out;
}

struct Flag {
  std::string name;
  std::vector<std::string> values;
  std::set<std::string> unknown;  // variables in its values
};

std::vector<Flag> flags_of(std::string_view text) {
  std::map<std::string, std::string> variables;
  std::vector<Flag> flags;
  // A quoted word may hold several flags, as FLAGS="--a 1 --b 2" does.
  std::vector<Word> words;
  for (Word& word : words_of(text)) {
    const std::size_t equal = word.text.find('=');
    const bool is_assignment = !word.text.starts_with("-") && equal != std::string::npos && equal > 0;
    const std::size_t inner = word.text.find("--");
    if (word.is_quoted && inner != std::string::npos && word.text.find_first_of(" \n\t") != std::string::npos) {
      for (Word& one : words_of(word.text.substr(is_assignment ? equal + 1 : 0))) words.push_back(std::move(one));
    } else if (is_assignment) {
      std::set<std::string> ignored;
      const std::string value = expanded(word.text.substr(equal + 1), variables, ignored);
      if (ignored.empty()) variables[word.text.substr(0, equal)] = value;
      words.push_back({"", true});  // ends the values of the flag before
    } else {
      words.push_back(std::move(word));
    }
  }
  bool takes = false;
  for (const Word& word : words) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const std::size_t equal = word.text.find('=');
      flags.push_back({word.text.substr(0, equal), {}, {}});
      if (equal != std::string::npos)
        flags.back().values.push_back(expanded(word.text.substr(equal + 1), variables, flags.back().unknown));
      takes = equal == std::string::npos;
    } else if (takes && !word.text.empty() && !word.text.ends_with(".py")) {  // torchrun's program
      const std::string value = expanded(word.text, variables, flags.back().unknown);
      // $ARGS and ${ARGS[@]} of arrays, whose flags have been read where they are set.
      if (!value.empty()) flags.back().values.push_back(value);
    } else {
      takes = false;
    }
  }
  return flags;
}

// ---- TOML ----

std::string toml_of(const std::map<std::string, Json>& values) {
  std::string text, section;
  for (const MegatronRow& row : megatron_rows()) {
    const auto found = values.find(row.key);
    if (found == values.end()) continue;
    const std::string its = row.key.substr(0, row.key.find('.'));
    if (its != section) text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", its);
    section = its;
    text += fmt::format("{} = {}\n", row.name(), found->second.dump());
  }
  return text;
}

const Scenario& defaults() {
  static const Scenario scenario;
  return scenario;
}

// Keys of the scenario that are not as they are by default and that `can_say` says nothing of.
std::vector<std::string> left_out(const Scenario& scenario, const char* program,
                                  const std::function<bool(const MegatronRow&)>& is_asked) {
  std::vector<std::string> notes;
  for (const MegatronRow& row : megatron_rows())
    if (is_asked(row) && row.get(scenario) != row.get(defaults()))
      notes.push_back(fmt::format("{} has no {}", program, row.name()));
  return notes;
}

class Import {
 public:
  explicit Import(const std::string& name) : name_(name) {}

  Translation run(std::string_view text) {
    for (const Flag& flag : flags_of(text)) take(flag);
    if (values_.empty()) throw input_error(name_ + ": expected flags of Megatron-LM, as --num-layers 32, got none");
    complete();
    Translation result;
    result.text = toml_of(values_);
    try {
      parse_scenario(result.text, "its scenario");
    } catch (const Error& error) {
      throw input_error(name_ + ": " + error.what());
    }
    if (!ignored_.empty()) {
      std::string list;
      for (const std::string& flag : ignored_) list += (list.empty() ? "" : ", ") + flag;
      result.notes.push_back("left out, because they do not change what is computed: " + list);
    }
    if (!fixed_.contains("--lr-decay-style"))
      notes_.push_back("the learning rate decays as a cosine here; without --lr-decay-style Megatron-LM's is linear");
    result.notes.insert(result.notes.end(), notes_.begin(), notes_.end());
    return result;
  }

 private:
  Error wrong(const Flag& flag, const std::string& message) const {
    return input_error(name_ + ": " + flag.name + ": " + message);
  }
  std::string only_value(const Flag& flag) const {
    if (!flag.unknown.empty())
      throw wrong(flag, "expected a value, got $" + *flag.unknown.begin() + ", which is not set to a word here");
    if (flag.values.size() != 1)
      throw wrong(flag, flag.values.empty() ? "expected a value, got none"
                                            : "expected one value, got " + in_quotes(flag.values[1]) + " as well");
    return flag.values.front();
  }
  std::int64_t count(const Flag& flag) const {
    const Json value = value_of(only_value(flag));
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > (1 << 24))
      throw wrong(flag, "expected a number of at least 1, got " + in_quotes(flag.values.front()));
    return value.get<std::int64_t>();
  }

  void take(const Flag& flag) {
    std::string launcher = flag.name.substr(2);
    std::replace(launcher.begin(), launcher.end(), '-', '_');
    if (launcher == "nproc_per_node") return void(processes_ = count(flag));
    if (launcher == "nnodes") return void(nodes_ = count(flag));
    if (std::find(std::begin(kLauncher), std::end(kLauncher), launcher) != std::end(kLauncher)) return;
    for (const MegatronRow& row : megatron_rows()) {
      if (flag.name == row.with) return;
      if (flag.name == row.flag) return set(flag, row);
    }
    for (const Fixed& fixed : fixed_flags()) {
      if (flag.name != fixed.flag) continue;
      const std::string value = only_value(flag);
      if (std::find(fixed.values.begin(), fixed.values.end(), value) == fixed.values.end())
        throw wrong(flag, "expected " + fixed.values.front() + ", which Stretto always has, got " + in_quotes(value));
      fixed_.insert(flag.name);
      return;
    }
    if (flag.name == "--num-layers-per-virtual-pipeline-stage") return void(chunk_layers_ = count(flag));
    if (is_ignored(flag.name)) return void(ignored_.insert(flag.name));
    std::vector<std::string> known = {"--num-layers-per-virtual-pipeline-stage"};
    for (const MegatronRow& row : megatron_rows())
      if (!row.flag.empty()) known.push_back(row.flag);
    const std::string nearest = nearest_spelling(flag.name, known);
    throw wrong(flag, "expected a flag that Stretto has, or that does not change what is computed" +
                          (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }

  void set(const Flag& flag, const MegatronRow& row) {
    if (!row.given.is_null()) return void(values_[row.key] = row.given);
    if (!row.is_list || (row.may_be_one && flag.values.size() < 2))
      return void(values_[row.key] = ours(flag, row, only_value(flag)));
    Json list = Json::array();
    for (const std::string& value : flag.values) list.push_back(ours(flag, row, value));
    values_[row.key] = list;
  }
  Json ours(const Flag& flag, const MegatronRow& row, const std::string& value) const {
    if (row.words.empty()) return value_of(value);
    std::vector<std::string> known;
    for (const auto& [word, ours] : row.words) {
      if (word == value) return ours;
      known.push_back(word);
    }
    const std::string nearest = nearest_spelling(value, known);
    throw wrong(flag, "expected one of " + fmt::format("{}", fmt::join(known, ", ")) + ", got " + in_quotes(value) +
                          (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }

  std::int64_t whole(const std::string& key, std::int64_t otherwise) const {
    const auto found = values_.find(key);
    return found != values_.end() && found->second.is_number_integer() ? found->second.get<std::int64_t>() : otherwise;
  }

  // What a command line means by what it does not say.
  void complete() {
    const std::int64_t stages = std::max<std::int64_t>(1, whole("parallel.pipeline_model_parallel_size", 1));
    const std::int64_t layers = whole("model.num_layers", 1);
    if (chunk_layers_) {
      if (layers % (stages * *chunk_layers_) != 0)
        throw input_error(
            fmt::format("{}: --num-layers-per-virtual-pipeline-stage: expected a divisor of the {} layers "
                        "of {} stages, got {}",
                        name_, layers, stages, *chunk_layers_));
      if (layers / stages / *chunk_layers_ > 1)
        values_["parallel.virtual_pipeline_model_parallel_size"] = layers / stages / *chunk_layers_;
    }
    const bool is_interleaved = whole("parallel.virtual_pipeline_model_parallel_size", 1) > 1;
    for (const MegatronRow& row : megatron_rows())
      if (!row.absent.is_null() && !values_.contains(row.key) && (row.name() != "overlap_p2p_comm" || is_interleaved))
        if (row.get(defaults()) != row.absent) values_[row.key] = row.absent;
    // Megatron-LM looks at these only where they act.
    if (!is_interleaved) values_.erase("overlap.overlap_p2p_comm");
    const auto is = [&](const char* key, const Json& value) {
      const auto found = values_.find(key);
      return found != values_.end() && found->second == value;
    };
    if (!is("model.position_embedding_type", "rope"))
      for (const char* key : {"rotary_base", "rotary_seq_len_interpolation_factor", "use_rope_scaling"})
        values_.erase(std::string("model.") + key);
    if (!is("model.use_rope_scaling", true)) values_.erase("model.rope_scaling_factor");
    if (is("overlap.overlap_p2p_comm", true)) values_["overlap.batch_p2p_comm"] = false;
    const std::int64_t hidden = whole("model.hidden_size", 0);
    constexpr std::int64_t kMultiple = 64;
    if (is("model.swiglu", true) && hidden > 0 && hidden < (1 << 24) && !values_.contains("model.ffn_hidden_size"))
      values_["model.ffn_hidden_size"] = 4 * hidden * 2 / 3 / kMultiple * kMultiple;
    complete_ranks(stages);
  }

  void complete_ranks(std::int64_t stages) {
    if (!processes_ && !nodes_)
      return void(
          notes_.push_back("data_parallel_size is 1: no --nproc_per_node and --nnodes of torchrun say otherwise"));
    const std::int64_t ranks = processes_.value_or(1) * nodes_.value_or(1);
    const std::int64_t of_model = stages * std::max<std::int64_t>(1, whole("parallel.tensor_model_parallel_size", 1)) *
                                  std::max<std::int64_t>(1, whole("parallel.context_parallel_size", 1));
    if (of_model < 1 || ranks % of_model != 0)
      throw input_error(
          fmt::format("{}: --nproc-per-node: expected a multiple of {} ranks, those of one replica of the "
                      "model, got {}",
                      name_, of_model, ranks));
    values_["parallel.data_parallel_size"] = ranks / of_model;
  }

  const std::string& name_;
  std::map<std::string, Json> values_;
  std::set<std::string> ignored_, fixed_;
  std::vector<std::string> notes_;
  std::optional<std::int64_t> processes_, nodes_, chunk_layers_;
};

// torchrun starts equally many processes on each node: as many as there are GPUs, if possible with whole
// tensor-parallel groups.
std::int64_t processes_of_node(std::int64_t ranks, std::int64_t tensor_parallel) {
  std::int64_t any = 1, whole = 0;
  for (std::int64_t processes = 1; processes <= std::min(ranks, kGpusOfNode); ++processes) {
    if (ranks % processes != 0) continue;
    any = processes;
    if (processes % tensor_parallel == 0) whole = processes;
  }
  return whole > 0 ? whole : any;
}

}  // namespace

Translation to_megatron(const Scenario& scenario) {
  if (const PipelineSchedule schedule = scenario.parallel.pipeline_schedule; is_zero_bubble(schedule))
    throw input_error(std::string("[parallel] pipeline_schedule: expected \"1f1b\", got \"") + name_of(schedule) +
                      "\", which Megatron-LM does not have");
  const double factor = scenario.model.rope_scaling.interpolation_factor;
  if (factor != std::floor(factor))
    throw input_error(fmt::format(
        "[model] rotary_seq_len_interpolation_factor: expected a whole number for Megatron-LM, got {}", factor));
  Translation result;
  const std::int64_t ranks = scenario.parallel.ranks(),
                     of_node = processes_of_node(ranks, scenario.parallel.tensor_model_parallel_size);
  result.text = fmt::format("torchrun --nnodes {} --nproc_per_node {} pretrain_gpt.py", ranks / of_node, of_node);
  const auto line = [&](const std::string& text) { result.text += " \\\n    " + text; };
  for (const MegatronRow& row : megatron_rows()) {
    const Json value = row.get(scenario);
    if (row.flag.empty() || value.is_null()) continue;
    if (!row.given.is_null()) {
      if (value == row.given) line(row.flag);
      // The order of axes is the one switch that stands for one of many.
      if (value != row.given && value != row.absent)
        result.notes.push_back(fmt::format("Megatron-LM has no {} = {}", row.name(), value.dump()));
      continue;
    }
    if (!row.with.empty()) line(row.with);
    // The values of a list are words of their own.
    const std::string text = text_of(theirs(row, value));
    line(row.flag + " " + (row.is_list ? text : quoted(text)));
  }
  for (const Fixed& fixed : fixed_flags()) line(std::string(fixed.flag) + " " + fixed.values.front());
  line("--tokenizer-type NullTokenizer");
  result.text += "\n";
  result.notes = [&] {
    std::vector<std::string> notes = left_out(scenario, "Megatron-LM", [&](const MegatronRow& row) {
      // Its own way is the contrary of overlap_p2p_comm, and ranks are torchrun's.
      return row.flag.empty() && row.name() != "data_parallel_size" &&
             (row.name() != "batch_p2p_comm" || scenario.overlap.overlap_p2p_comm == scenario.overlap.batch_p2p_comm);
    });
    notes.insert(notes.begin(), result.notes.begin(), result.notes.end());
    if (scenario.overlap.overlap_p2p_comm && scenario.parallel.virtual_pipeline_model_parallel_size == 1)
      notes.push_back("Megatron-LM has overlap_p2p_comm only with virtual stages");
    if (scenario.training.recompute.granularity == Recompute::Granularity::selective_op)
      notes.push_back("Megatron-LM has no recompute_granularity = \"selective_op\"");
    return notes;
  }();
  return result;
}

Translation from_megatron(std::string_view text, const std::string& name) { return Import(name).run(text); }

Translation to_bridge(const Scenario& scenario) {
  Translation result;
  result.text = "CommOverlapConfig(\n";
  for (const MegatronRow& row : megatron_rows()) {
    const Json value = row.get(scenario);
    if (!row.in_bridge || value.is_null()) continue;
    const std::string shown = value.is_boolean() ? (value.get<bool>() ? "True" : "False") : value.dump();
    result.text += fmt::format("    {}={},\n", row.name(), shown);
  }
  result.text += ")\n";
  result.notes = left_out(scenario, "CommOverlapConfig",
                          [](const MegatronRow& row) { return !row.in_bridge && row.key.starts_with("overlap."); });
  return result;
}

Translation from_bridge(std::string_view text, const std::string& name) {
  std::map<std::string, Json> values;
  std::vector<std::string> known;
  for (const MegatronRow& row : megatron_rows())
    if (row.in_bridge) known.push_back(row.name());
  // "key=value," of Python and "key: value" of YAML, one a line or several behind commas.
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#')
      while (i < text.size() && text[i] != '\n') ++i;
    if (i < text.size()) plain += text[i] == ',' || text[i] == '(' || text[i] == ')' ? '\n' : text[i];
  }
  const auto trimmed = [](std::string part) {
    const std::size_t begin = part.find_first_not_of(" \t\r\"'");
    if (begin == std::string::npos) return std::string();
    return part.substr(begin, part.find_last_not_of(" \t\r\"'") - begin + 1);
  };
  for (std::size_t at = 0; at < plain.size();) {
    const std::size_t end = std::min(plain.find('\n', at), plain.size());
    const std::string line = plain.substr(at, end - at);
    at = end + 1;
    const std::size_t sign = line.find_first_of("=:");
    const std::string key = trimmed(line.substr(0, sign));
    const std::string value = sign == std::string::npos ? "" : trimmed(line.substr(sign + 1));
    // The name of the class, or of what it is assigned to.
    if (key.empty() || value.empty() || value == "CommOverlapConfig" || value.ends_with(".CommOverlapConfig")) {
      if (sign == std::string::npos && !key.empty() && !key.ends_with("CommOverlapConfig"))
        throw input_error(name + ": expected key=value or key: value of CommOverlapConfig, got " + in_quotes(key));
      continue;
    }
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string nearest = nearest_spelling(key, known);
      throw input_error(name + ": " + in_quotes(key) + ": expected one of " +
                        fmt::format("{}", fmt::join(known, ", ")) +
                        (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
    }
    if (value == "None" || value == "null" || value == "~") continue;
    std::string digits = value;
    std::erase(digits, '_');
    Json read = value_of(digits);
    if (value == "True" || value == "true") read = true;
    if (value == "False" || value == "false") read = false;
    if (read.is_string())
      throw input_error(name + ": " + key + ": expected true, false or a number, got " + in_quotes(value));
    values["overlap." + key] = read;
  }
  if (values.empty()) throw input_error(name + ": expected fields of CommOverlapConfig, got none");
  return {toml_of(values), {"only [overlap]: the rest of a scenario is yours"}};
}

std::string megatron_reference() {
  std::string text = "| key | Megatron-LM | CommOverlapConfig |\n|---|---|---|\n";
  for (const MegatronRow& row : megatron_rows()) {
    std::string flag = row.flag.empty() ? "" : "`" + (row.with.empty() ? "" : row.with + " ") + row.flag + "`";
    if (!row.given.is_null()) flag += " is `" + text_of(row.given) + "`";
    if (!row.absent.is_null()) flag += ", absent `" + text_of(row.absent) + "`";
    text += fmt::format("| `{}` | {} | {} |\n", row.key, flag.empty() ? "–" : flag,
                        row.in_bridge ? "`" + row.name() + "`" : "");
  }
  return text;
}

}  // namespace stretto
