#include "interchange/printed_arguments.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "interchange/megatron.hpp"
#include "interchange/megatron_flags.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Returns a value as Python prints it.
Json python_value(std::string_view written) {
  const std::string text(stripped(written));
  if (text == "None" || text.empty()) return nullptr;
  if (text == "True") return true;
  if (text == "False") return false;
  if (text.starts_with("torch.")) {
    const std::string type = text.substr(6);
    return type == "bfloat16" ? "bf16" : type == "float16" ? "fp16" : type == "float32" ? "fp32" : type;
  }
  if (text.size() > 1 && text.front() == '[' && text.back() == ']') {
    Json list = Json::array();
    std::string word;
    for (const char c : text.substr(1)) {
      if (c != ',' && c != ']') {
        word += c;
        continue;
      }
      std::string_view one = stripped(word);
      if (one.size() > 1 && (one.front() == '\'' || one.front() == '"')) one = one.substr(1, one.size() - 2);
      if (!one.empty()) list.push_back(value_of_word(std::string(one)));
      word.clear();
    }
    return list;
  }
  // A member of an enumeration: AttnBackend.flash.
  const std::size_t dot = text.find('.');
  if (dot != std::string::npos && dot + 1 < text.size() && std::isupper(static_cast<unsigned char>(text[0])) != 0 &&
      std::isalpha(static_cast<unsigned char>(text[dot + 1])) != 0 && text.find_first_of(" /") == std::string::npos)
    return text.substr(dot + 1);
  return value_of_word(text);
}

// Arguments whose printed values are defaults that act only with another one.
struct Depends {
  const char* beginning;
  const char* on;
};
constexpr Depends kDepends[] = {{"fp8_", "fp8"},
                                {"fp4_", "fp4"},
                                {"num_layers_at_", "first_last_layers_bf16"},
                                {"q_lora_rank", "multi_latent_attention"},
                                {"kv_lora_rank", "multi_latent_attention"},
                                {"qk_head_dim", "multi_latent_attention"},
                                {"qk_pos_emb_head_dim", "multi_latent_attention"},
                                {"v_head_dim", "multi_latent_attention"},
                                {"rotary_scaling_factor", "multi_latent_attention"},
                                {"mscale", "multi_latent_attention"},
                                {"moe_", "num_experts"},
                                {"main_", "use_precision_aware_optimizer"},
                                {"exp_avg_", "use_precision_aware_optimizer"},
                                {"wgrad_deferral_limit", "defer_embedding_wgrad_compute"},
                                {"data_parallel_sharding_strategy", "use_megatron_fsdp"},
                                {"rope_scaling_factor", "use_rope_scaling"}};

// Arguments of other models, whose printed values say nothing; and names that follow from others.
constexpr const char* kIdle[] = {"img_h",
                                 "img_w",
                                 "encoder_num_layers",
                                 "decoder_num_layers",
                                 "patch_dim",
                                 "num_classes",
                                 "data_parallel_size",
                                 "encoder_seq_length",
                                 "world_size",
                                 "rank",
                                 "transformer_pipeline_model_parallel_size",
                                 "params_dtype",
                                 "consumed_train_samples",
                                 "retro_encoder_layers",
                                 "bert_binary_head"};

bool acts(const Json& arguments, const std::string& name) {
  for (const Depends& one : kDepends)
    if (name.starts_with(one.beginning) && name != one.on) {
      const Json other = arguments.value(one.on, Json());
      if (other.is_null() || other == false) return false;
    }
  if (name.starts_with("lr_wsd_")) return arguments.value("lr_decay_style", Json()) == "WSD";
  return std::find(std::begin(kIdle), std::end(kIdle), name) == std::end(kIdle);
}

void add_values(Flag& flag, const Json& value) {
  const auto text = [](const Json& one) { return one.is_string() ? one.get<std::string>() : one.dump(); };
  constexpr std::string_view kOfLayers[] = {"--moe-layer-freq", "--linear-attention-freq", "--window-attn-skip-freq",
                                            "--no-rope-freq", "--window-size"};
  const bool is_one = std::find(std::begin(kOfLayers), std::end(kOfLayers), flag.name) != std::end(kOfLayers);
  if (is_one && value.is_array())
    flag.values.push_back(value.dump());
  else if (value.is_array())
    for (const Json& one : value) flag.values.push_back(text(one));
  else
    flag.values.push_back(text(value));
}

const MegatronRow* row_of_argument(const std::string& name) {
  const std::string flag = dashed(name);
  for (const MegatronRow& row : megatron_rows())
    if (!row.flag.empty() &&
        (row.flag == flag || std::find(row.aliases.begin(), row.aliases.end(), flag) != row.aliases.end()))
      return &row;
  for (const MegatronRow& row : megatron_rows())
    if (!row.flag.empty() && row.name() == name) return &row;
  return nullptr;
}

}  // namespace

CommandLine command_line_of_arguments(const Json& arguments, const std::map<std::string, int>& lines) {
  CommandLine line;
  line.program = "pretrain_gpt.py";
  std::string unknown;
  for (const auto& [name, value] : arguments.items()) {
    if (value.is_null() || (value.is_array() && value.empty()) || value.is_object() || !acts(arguments, name)) continue;
    const auto found = lines.find(name);
    const int at = found == lines.end() ? 0 : found->second;
    std::string flag = name == "fp8" || name == "fp4" ? "--" + name + "-format" : dashed(name);
    if (const MegatronRow* row = row_of_argument(name); row != nullptr && name != "fp8" && name != "fp4") {
      const bool is_own = row->flag == flag;  // else it is the name of what the flag sets
      const bool is_switch = !row->given.is_null();
      if (is_switch && value.is_boolean() && !(is_own ? value == true : value == row->given)) continue;
      if (is_switch && !value.is_boolean()) continue;
      Flag made{row->flag, {}, at, {}};
      if (!is_switch) add_values(made, value);
      line.flags.push_back(std::move(made));
      continue;
    }
    const bool is_known = rule_of(flag) != nullptr || is_flag_of_import(flag);
    const std::string without = "--no" + flag.substr(1);
    if (value == false && rule_of(without) != nullptr) {
      line.flags.push_back({without, {}, at, {}});
    } else if (value == false) {
      continue;
    } else if (!is_known) {
      if (!value.is_boolean()) unknown += (unknown.empty() ? "" : ", ") + name;
    } else {
      Flag made{flag, {}, at, {}};
      if (!value.is_boolean()) add_values(made, value);
      line.flags.push_back(std::move(made));
    }
  }
  if (!unknown.empty()) line.notes.push_back("not known here, and left out: " + unknown);
  if (const Json world = arguments.value("world_size", Json());
      world.is_number_integer() && world > 0 && world < (1 << 24))
    line.gpus = world.get<std::int64_t>();
  return line;
}

std::optional<CommandLine> printed_arguments(std::string_view text) {
  std::size_t at = text.find("- arguments -");
  if (at == std::string_view::npos) return std::nullopt;
  // A log of a run that was restarted has them several times; the last ones are meant.
  for (std::size_t next = at; (next = text.find("- arguments -", next + 1)) != std::string_view::npos;) at = next;
  int number = 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  Json arguments = Json::object();
  std::map<std::string, int> lines;
  for (at = std::min(text.find('\n', at), text.size()); at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at + 1), text.size());
    const std::string_view row = text.substr(at + 1, end - at - 1);
    at = end;
    ++number;
    if (row.find("end of arguments") != std::string_view::npos) break;
    // "  name ....... value", maybe after a rank or a time.
    const std::size_t dots = row.find(" ..");
    const std::size_t after = dots == std::string_view::npos ? dots : row.find_first_not_of('.', dots + 1);
    if (after == std::string_view::npos || !is_blank(row[after])) continue;
    std::size_t begin = dots;
    while (begin > 0 && (std::isalnum(static_cast<unsigned char>(row[begin - 1])) != 0 || row[begin - 1] == '_'))
      --begin;
    const std::string name(row.substr(begin, dots - begin));
    if (name.empty()) continue;
    arguments[name] = python_value(row.substr(after));
    lines[name] = number;
  }
  if (arguments.empty()) return std::nullopt;
  return command_line_of_arguments(arguments, lines);
}

std::string command_of_list(std::string_view text) {
  const std::string_view plain = stripped(text.substr(0, text.find_last_not_of("\n\r \t") + 1));
  if (!plain.starts_with("['") || !plain.ends_with("']")) return std::string(text);
  std::string made;
  bool is_inside = false;
  for (std::size_t i = 1; i + 1 < plain.size(); ++i) {
    if (plain[i] == '\'') is_inside = !is_inside;
    made += plain[i] == ',' && !is_inside ? ' ' : plain[i];
  }
  return made + "\n";
}

}  // namespace stretto
