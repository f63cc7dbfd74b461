#include "interchange/formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/budget.hpp"
#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/command_line.hpp"
#include "interchange/megatron.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

struct FormatRow {
  std::string name, help, reader;
  bool is_first = false;
  Words all, any;  // of a document: keys; of a program: `all` are words of its name, `any` flags; of a text: parts
};
struct FormatTable {
  std::vector<FormatRow> documents, programs, texts;
};

const FormatTable& format_table() {
  static const FormatTable made = [] {
    const std::string path = data_path("formats.toml");
    TomlTable root = read_toml(path);
    TomlTable help = root.section("help");
    FormatTable all;
    const auto read = [&](const char* kind, const char* first_list, const char* second_list,
                          std::vector<FormatRow>& into) {
      for (TomlTable& one : root.tables(kind)) {
        FormatRow row;
        row.name = require<std::string>(one, "name");
        row.help = require<std::string>(help, require<std::string>(one, "help").c_str());
        row.reader = value_or<std::string>(one, "reader", "");
        row.is_first = value_or<bool>(one, "first", false);
        row.all = value_or<Words>(one, first_list, {});
        row.any = value_or<Words>(one, second_list, {});
        one.finish();
        into.push_back(std::move(row));
      }
    };
    read("format", "all", "any", all.documents);
    read("program", "words", "flags", all.programs);
    read("text", "all", "parts", all.texts);
    return all;
  }();
  return made;
}

// ---- keys of documents ----

bool has_value(const Json& value, const std::string& expected) {
  if (expected.empty()) return true;
  constexpr std::string_view kAnyEnd = "…";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return expected.ends_with(kAnyEnd) ? text.starts_with(expected.substr(0, expected.size() - kAnyEnd.size()))
                                     : text == expected;
}

// Returns the values of the keys "a.b" from a node, objects by their names: a key may hold dots itself
// ("google.com/tpu").
bool has_path(const Json& node, const std::string& path, const std::string& expected) {
  if (!node.is_object()) return false;
  if (const auto found = node.find(path); found != node.end()) return has_value(*found, expected);
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    if (const auto found = node.find(path.substr(0, dot)); found != node.end())
      return has_path(*found, path.substr(dot + 1), expected);
  return false;
}

// The keys of a document at any depth, with the values that they have.
struct DocumentKeys {
  const Json& root;
  std::multimap<std::string, const Json*> everywhere;

  explicit DocumentKeys(const Json& document) : root(document) { add(document, 0); }
  void add(const Json& node, int depth) {
    constexpr int kMaxDepth = 64;
    constexpr std::size_t kMostKeys = 100'000;
    if (depth > kMaxDepth || everywhere.size() > kMostKeys) return;
    if (node.is_object())
      for (const auto& [key, value] : node.items()) {
        everywhere.emplace(key, &value);
        add(value, depth + 1);
      }
    else if (node.is_array())
      for (const Json& one : node) add(one, depth + 1);
  }
  bool has(const std::string& written) const {
    const std::size_t equal = written.find('=');
    const std::string expected = equal == std::string::npos ? "" : written.substr(equal + 1);
    const std::string key = written.substr(0, equal);
    if (!key.starts_with("*.")) return has_path(root, key, expected);
    const auto [begin, end] = everywhere.equal_range(key.substr(2));
    return std::any_of(begin, end, [&](const auto& one) { return has_value(*one.second, expected); });
  }
};

const FormatRow* format_of(const DocumentKeys& keys, bool only_first, Words& found) {
  for (const FormatRow& row : format_table().documents) {
    if (only_first && !row.is_first) continue;
    found.clear();
    for (const std::string& key : row.all)
      if (keys.has(key)) found.push_back(key);
    if (found.size() < row.all.size()) continue;
    for (const std::string& key : row.any)
      if (keys.has(key)) found.push_back(key);
    if (found.size() > row.all.size() || row.any.empty()) return &row;
  }
  return nullptr;
}

std::string shown_keys(const Words& found) {
  constexpr std::size_t kMost = 3;
  Words keys;
  for (std::string key : found) {
    if (key.starts_with("*.")) key.erase(0, 2);
    if (key.ends_with("…")) key.erase(key.find("…"));
    if (keys.size() < kMost && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

Error refusal_of_format(const FormatRow& row, const std::string& name, const std::string& by) {
  return input_error(fmt::format("{}: this is {} ({}), which is not read here: {}", name, row.name, by, row.help));
}

// ---- the kinds that are read ----

// Names of several words that Megatron's settings have and hardly anybody else's.
const std::set<std::string>& names_of_megatron() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all = {"train_iters",         "num_nodes",         "peft_scheme",
                                 "tp_comm_overlap_cfg", "num_experts",       "moe_grouped_gemm",
                                 "micro_batch_size",    "global_batch_size", "cuda_graph_impl"};
    for (const MegatronRow& row : megatron_rows()) {
      Words spellings = row.spellings;
      spellings.push_back(row.name());
      for (const std::string& one : spellings)
        if (std::count(one.begin(), one.end(), '_') > 1) all.insert(one);
    }
    return all;
  }();
  return names;
}

std::size_t count_megatron(const DocumentKeys& keys) {
  std::size_t count = 0;
  for (auto at = keys.everywhere.begin(); at != keys.everywhere.end(); at = keys.everywhere.upper_bound(at->first))
    count += names_of_megatron().count(at->first);
  return count;
}

bool has_section_of(const Json& root, const char* key) { return root.contains(key) && root[key].is_object(); }

// Sections of Megatron-Bridge's ConfigContainer (training/config.py at 067f987d), and `run`, which names the recipe.
constexpr const char* kBridgeSections[] = {"rng",
                                           "rerun_state_machine",
                                           "train",
                                           "validation",
                                           "model",
                                           "optimizer",
                                           "ddp",
                                           "scheduler",
                                           "dataset",
                                           "logger",
                                           "tokenizer",
                                           "checkpoint",
                                           "dist",
                                           "ft",
                                           "straggler",
                                           "nvrx_straggler",
                                           "profiling",
                                           "peft",
                                           "comm_overlap",
                                           "env_vars",
                                           "mixed_precision",
                                           "run",
                                           "tensor_inspect",
                                           "kd_config",
                                           "inprocess_restart"};

bool is_bridge(const Json& root, const DocumentKeys& keys) {
  bool has_section = false;
  for (const auto& [key, value] : root.items()) {
    if (key.starts_with("_")) continue;
    const bool is_known =
        std::find(std::begin(kBridgeSections), std::end(kBridgeSections), key) != std::end(kBridgeSections);
    if (!is_known) return false;
    has_section = has_section ||
                  ((key == "train" || key == "ddp" || key == "comm_overlap" || key == "model") && value.is_object());
  }
  return has_section && count_megatron(keys) > 0;
}

bool is_overlap(const Json& root) {
  if (root.empty()) return false;
  for (const auto& one : root.items()) {
    const bool is_field = std::any_of(megatron_rows().begin(), megatron_rows().end(),
                                      [&](const MegatronRow& row) { return row.in_bridge && row.name() == one.key(); });
    if (is_field) return true;
    if (one.value().is_structured()) return false;
  }
  return false;
}

bool is_megatron(const DocumentKeys& keys) {
  for (const char* key : {"num_layers", "hidden_size", "num_attention_heads"})
    if (!keys.has(std::string("*.") + key)) return false;
  constexpr std::size_t kLeast = 4;  // num_attention_heads is one
  return count_megatron(keys) >= kLeast;
}

DocumentKind kind_of_keys(const Json& root, const DocumentKeys& keys) {
  if (!root.is_object()) return DocumentKind::other;
  if (has_section_of(root, "trainer") && has_section_of(root, "model") && count_megatron(keys) > 2)
    return DocumentKind::nemo;
  if (is_bridge(root, keys)) return DocumentKind::bridge;
  if (is_overlap(root) && !root.contains("num_layers")) return DocumentKind::overlap;
  return is_megatron(keys) ? DocumentKind::megatron : DocumentKind::other;
}

// ---- programs ----

// Returns the words between signs, each with a sign before and after: "_train_ppo_v2_py_".
std::string between_signs(std::string_view text) {
  std::string made = "_";
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0)
      made += static_cast<char>(std::tolower(c));
    else if (made.back() != '_')
      made += '_';
  return made.back() == '_' ? made : made + '_';
}

bool is_word_of(const std::string& word, const std::string& program) {
  if (word.ends_with('/')) return ("/" + program).find("/" + word) != std::string::npos;
  const std::string name = program.substr(program.rfind('/') + 1);
  return between_signs(name).find("_" + word + "_") != std::string::npos;
}

std::optional<std::string> given_word(const CommandLine& line, const std::string& flag) {
  const bool is_beginning = flag.ends_with('-') || flag.ends_with('.');
  for (const Flag& one : line.flags)
    if (is_beginning ? one.name.starts_with(flag) : one.name == flag) return one.name;
  for (const std::string& word : line.overrides)
    if (is_beginning && word.substr(std::min(word.find_first_not_of("+~"), word.size())).starts_with(flag))
      return word.substr(0, word.find('='));
  return std::nullopt;
}

}  // namespace

DocumentKind kind_of_document(const Json& root) { return kind_of_keys(root, DocumentKeys(root)); }

std::pair<std::string, std::string> reader_of_document(const Json& root) {
  Words found;
  const FormatRow* row = format_of(DocumentKeys(root), true, found);
  return row == nullptr || row->reader.empty() ? std::pair<std::string, std::string>()
                                               : std::pair(row->reader, row->name);
}

void refuse_similar(const Json& root, const std::string& name) {
  const DocumentKeys keys(root);
  Words found;
  if (const FormatRow* row = format_of(keys, true, found)) throw refusal_of_format(*row, name, shown_keys(found));
}

void refuse_document(const Json& root, const std::string& name, const std::string& expected) {
  const DocumentKeys keys(root);
  Words found;
  if (const FormatRow* row = format_of(keys, false, found)) throw refusal_of_format(*row, name, shown_keys(found));
  Words top;
  if (root.is_object())
    for (const auto& [key, value] : root.items()) top.push_back(key);
  constexpr std::size_t kMost = 6;
  const bool is_long = top.size() > kMost;
  if (is_long) top.resize(kMost);
  throw input_error(fmt::format("{}: expected {}, got {}", name, expected,
                                top.empty() ? "no keys"
                                            : fmt::format("a document of no known program, with {}{}",
                                                          fmt::join(top, ", "), is_long ? ", …" : "")));
}

void require_document(const Json& root, const std::string& name) {
  refuse_similar(root, name);
  if (kind_of_document(root) != DocumentKind::other) return;
  refuse_document(root, name,
                  "a configuration of NeMo (trainer, model), overrides of Megatron-Bridge (model, train, ddp, "
                  "comm_overlap), MODEL_ARGS of Megatron-LM, or settings by Megatron-LM's names (num_layers, "
                  "hidden_size, num_attention_heads, …)");
}

void refuse_unparsed(std::string_view text, const std::string& name) {
  for (const FormatRow& row : format_table().texts)
    for (const std::string& part : row.any)
      if (text.find(part) != std::string_view::npos) throw refusal_of_format(row, name, "\"" + part + "\"");
  // DocumentKeys of YAML and sections and keys of TOML at the beginnings of lines are enough to know most formats.
  Json root = Json::object();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    at = end + 1;
    const bool is_section = row.starts_with('[');
    if (is_section) row.remove_prefix(std::min(row.find_first_not_of('['), row.size()));
    constexpr std::string_view kOfKeys = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/";
    const std::size_t key = std::min(row.find_first_not_of(kOfKeys), row.size());
    if (key == 0 || key == row.size() || !(is_section || row[key] == ':' || row.substr(key).starts_with(" =")))
      continue;
    Json& value = root[std::string(row.substr(0, key))];
    if (is_section && !value.is_object()) value = Json::object();
    if (is_section && row[key] == '.')
      value[std::string(row.substr(key + 1, row.substr(key + 1).find_first_of(".]")))] = true;
  }
  const DocumentKeys keys(root);
  Words found;
  if (const FormatRow* row = format_of(keys, false, found); row != nullptr && row->reader.empty())
    throw refusal_of_format(*row, name, shown_keys(found));
}

void refuse_program(const CommandLine& line, const std::string& name) {
  for (const FormatRow& row : format_table().programs) {
    for (const std::string& word : row.all)
      if (is_word_of(word, line.program)) throw refusal_of_format(row, name, line.program);
    for (const std::string& flag : row.any)
      if (const auto found = given_word(line, flag)) throw refusal_of_format(row, name, *found);
  }
}

}  // namespace stretto
