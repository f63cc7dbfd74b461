#include <algorithm>
#include <map>
#include <set>

#include "interchange/command_line.hpp"
#include "interchange/recipe_settings.hpp"
#include "interchange/yaml.hpp"

namespace stretto {

using Json = nlohmann::json;

namespace {

// Puts the values of variables for ${NAME} and ${NAME:-otherwise}; names without a value are added to `unknown`.
std::string substituted(std::string text, const std::map<std::string, std::string>& environment,
                        std::set<std::string>& unknown) {
  for (std::size_t at = 0; (at = text.find("${", at)) != std::string::npos;) {
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    std::string name = text.substr(at + 2, end - at - 2), value;
    const std::size_t otherwise = name.find(":-");
    if (otherwise != std::string::npos) value = name.substr(otherwise + 2);
    name = name.substr(0, otherwise);
    if (const auto found = environment.find(name); found != environment.end())
      value = found->second;
    else if (otherwise == std::string::npos)
      unknown.insert(name);
    text.replace(at, end + 1 - at, value);
    at += value.size();
  }
  return text;
}

}  // namespace

CommandLine command_line_of_test(const Yaml& yaml, const std::string& name,
                                 const std::map<std::string, std::string>& environment) {
  CommandLine line;
  line.program = "pretrain_gpt.py";
  // Folders are those of models (tests/test_utils/recipes).
  constexpr std::pair<const char*, const char*> kPrograms[] = {{"/bert/", "pretrain_bert.py"},
                                                               {"/t5/", "pretrain_t5.py"},
                                                               {"/hybrid/", "pretrain_hybrid.py"},
                                                               {"/multimodal-llava/", "pretrain_vlm.py"}};
  for (const auto& [folder, program] : kPrograms)
    if (name.find(folder) != std::string::npos) line.program = program;
  line.processes = 8;  // GPUS_PER_NODE (tests/functional_tests/shell_test_utils/_run_training.sh:202)
  for (const auto& [name, value] : yaml.root["MODEL_ARGS"].items()) {
    if (!name.starts_with("--") || value == false) continue;
    Flag flag{name, {}, 1, {}};
    if (const auto found = yaml.lines.find("MODEL_ARGS." + name); found != yaml.lines.end()) flag.line = found->second;
    const auto add = [&](const Json& one) {
      if (one == true) return;
      // "[2 2]" becomes two words.
      std::string text = one.is_string() ? substituted(one.get<std::string>(), environment, flag.unknown) : one.dump();
      std::replace_if(
          text.begin(), text.end(), [](char c) { return c == '[' || c == ']' || c == ','; }, ' ');
      if (!one.is_string() || flag.name == "--pipeline-model-parallel-layout" || flag.name == "--moe-layer-freq")
        return flag.values.push_back(one.is_string() ? substituted(one.get<std::string>(), environment, flag.unknown)
                                                     : one.dump());
      for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        flag.values.push_back(text.substr(at, end - at));
        at = end;
      }
    };
    if (value.is_array())
      for (const Json& one : value) add(one);
    else
      add(value);
    line.flags.push_back(std::move(flag));
  }
  if (yaml.root.contains("ENV_VARS") && yaml.root["ENV_VARS"].is_object())
    for (const auto& [name, value] : yaml.root["ENV_VARS"].items())
      line.exports[name] = value.is_string() ? value.get<std::string>() : value.dump();
  return line;
}

}  // namespace stretto
