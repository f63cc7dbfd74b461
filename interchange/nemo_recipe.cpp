#include "interchange/nemo_recipe.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "interchange/bridge_recipes.hpp"
#include "interchange/command_line.hpp"
#include "interchange/megatron.hpp"
#include "interchange/recipe.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Returns the section and key of Megatron-Bridge's configuration for "trainer.strategy.KEY" of a recipe of NeMo 2;
// "" for what says nothing of a step.
std::string bridge_path(const std::string& path) {
  const auto key_of = [&](const char* section) {
    const std::string beginning = std::string(section) + ".";
    const std::string key = path.starts_with(beginning) ? path.substr(beginning.size()) : "";
    return key.find('.') == std::string::npos ? key : "";
  };
  if (const std::string key = key_of("trainer.strategy"); !key.empty()) return "model." + key;
  if (const std::string key = key_of("model.config"); !key.empty()) return "model." + key;
  if (const std::string key = key_of("data"); key == "seq_length")
    return "model.seq_length";
  else if (key.ends_with("_batch_size"))
    return "train." + key;
  return path == "trainer.max_steps" ? "train.train_iters" : "";
}

struct NemoProgram {
  std::set<std::string> recipes;  // "llama3_8b_pretrain"
  std::vector<std::string> overrides, others;
  std::optional<std::int64_t> nodes, devices;
};

// Reads a number after "num_nodes=" or " = "; nothing where it is a variable.
std::optional<std::int64_t> number_at(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789_"), text.size());
  const Json value = value_of_word(std::string(text.substr(0, end)));
  return value.is_number_integer() && value > 0 && value < (1 << 20) ? std::optional(value.get<std::int64_t>())
                                                                     : std::nullopt;
}

void take_call(std::string_view text, std::size_t call, const std::string& task, NemoProgram& program) {
  std::size_t begin = call;  // of "llama3_8b" before ".pretrain_recipe("
  while (begin > 0 && is_of_name(text[begin - 1])) --begin;
  const std::string model(text.substr(begin, call - begin));
  if (model.empty()) return;
  program.recipes.insert(model + "_" + task);
  const std::string_view arguments = text.substr(call, std::min(text.find(')', call), text.size()) - call);
  for (const auto& [key, value] : {std::pair{"num_nodes=", &program.nodes}, {"num_gpus_per_node=", &program.devices}})
    if (const std::size_t at = arguments.find(key); at != std::string_view::npos)
      if (const auto number = number_at(arguments.substr(at + std::string_view(key).size()))) *value = number;
}

// Takes "recipe.trainer.strategy.tensor_model_parallel_size = 2".
void take_assignment(std::string_view row, NemoProgram& program) {
  const std::size_t equal = row.find(" = "), dot = row.find('.');
  if (equal == std::string_view::npos || dot == std::string_view::npos || dot > equal) return;
  const std::string path(row.substr(dot + 1, equal - dot - 1));
  if (!std::all_of(path.begin(), path.end(), [](char c) { return is_of_name(c) || c == '.'; })) return;
  std::string value(row.substr(equal + 3));
  value = value.substr(0, value.find(" #"));
  while (!value.empty() && value.back() == ' ') value.pop_back();
  if (path == "trainer.num_nodes" || path == "trainer.devices") {
    if (const auto number = number_at(value)) (path == "trainer.devices" ? program.devices : program.nodes) = number;
  } else if (const std::string ours = bridge_path(path); !ours.empty()) {
    program.overrides.push_back(ours + "=" + value);
  } else if (path.starts_with("trainer.") || path.starts_with("model.") || path.starts_with("optim.")) {
    program.others.push_back(path);
  }
}

NemoProgram read_program(std::string_view text) {
  NemoProgram program;
  for (const char* task : {"pretrain", "finetune"}) {
    const std::string call = std::string(".") + task + "_recipe(";
    for (std::size_t at = 0; (at = text.find(call, at)) != std::string_view::npos; ++at)
      take_call(text, at, task, program);
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    at = end + 1;
    row.remove_prefix(std::min(row.find_first_not_of(" \t"), row.size()));
    if (!row.starts_with('#')) take_assignment(row, program);
  }
  return program;
}

}  // namespace

Translation from_python(std::string_view text, const std::string& name, const ImportOptions& options) {
  const bool is_program = text.find("import ") != std::string_view::npos || text.find("def ") != std::string_view::npos;
  if (!is_program) return from_bridge(text, name);
  const NemoProgram program = read_program(text);
  if (program.recipes.size() != 1)
    throw input_error(
        name +
        ": this is a program in Python, which is not read here unless it takes one recipe of NeMo 2 by its name, as "
        "llm.llama3_8b.pretrain_recipe(…): import the command that starts it, YAML of its configuration "
        "(NeMo: --to-yaml FILE; Megatron-Bridge: config.to_yaml(FILE)), or what Megatron-LM prints of its arguments");
  const std::string recipe = *program.recipes.begin();
  if (!bridge_recipe(recipe))
    throw input_error(
        name + ": " + recipe +
        ": expected a recipe that is known here; export its configuration (--to-yaml FILE) and import that");
  CommandLine line;
  line.flags.push_back({"--recipe", {recipe + "_config"}, 0, {}});
  line.overrides = program.overrides;
  // Its vocabulary is the model's own, and not that of Megatron-Bridge's stand-in for a tokenizer.
  line.overrides.push_back("tokenizer.tokenizer_model=" + recipe);
  line.processes = program.devices;
  line.nodes = program.nodes;
  line.notes.push_back("what the program leaves as it is, is as in Megatron-Bridge's recipe " + recipe +
                       ", whose settings may differ from NeMo 2's");
  std::string others;
  for (const std::string& one : program.others) others += (others.empty() ? "" : ", ") + one;
  if (!others.empty()) line.notes.push_back("not known here, and left out: " + others);
  return from_recipe_command(line, name, options);
}

}  // namespace stretto
