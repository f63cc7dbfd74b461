#include "interchange/primus.hpp"

#include "base/error.hpp"
#include "interchange/megatron.hpp"
#include "interchange/printed_arguments.hpp"
#include "interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// Replaces each "${NAME:otherwise}" by what the environment or the text says; a value that is only one reference has
// the type of what it says.
Json substituted_value(const Json& value, const ImportOptions& options) {
  if (!value.is_string()) return value;
  std::string text = value;
  bool is_whole = false;
  for (std::size_t at = 0; (at = text.find("${", at)) != std::string::npos;) {
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    const std::string inner = text.substr(at + 2, end - at - 2);
    const std::size_t colon = inner.find(':');
    const auto found = options.environment.find(inner.substr(0, colon));
    const std::string said = found != options.environment.end() ? found->second
                             : colon == std::string::npos       ? ""
                                                                : inner.substr(colon + 1);
    is_whole = at == 0 && end + 1 == text.size();
    text.replace(at, end + 1 - at, said);
    at += said.size();
  }
  if (!is_whole) return text;
  if (text.empty() || text == "null") return nullptr;
  if (text == "true" || text == "false") return text == "true";
  return value_of_word(text);
}

class Primus {
 public:
  Primus(const std::string& name, const ImportOptions& options) : name_(name), options_(options) {}

  // Adds the arguments of a file in primus/configs, those that it extends first.
  void add_file(const std::string& folder, const std::string& file, int depth = 0) {
    constexpr int kMaxDepth = 12;
    if (depth > kMaxDepth || ++files_ > 64)
      throw input_error(name_ + ": " + file + ": expected files that extend each other at most 12 times, got more");
    const std::string path = "primus/configs/" + folder + file;
    const auto text = options_.read ? options_.read(path) : std::nullopt;
    if (!text) throw input_error(name_ + ": " + file + ": expected " + path + " in a folder above the file, got none");
    const Yaml yaml = parse_yaml(*text, path);
    if (!yaml.root.is_object()) return;
    if (yaml.root.contains("extends") && yaml.root["extends"].is_array())
      for (const Json& base : yaml.root["extends"])
        // A file of another folder says nothing of Megatron-LM's arguments.
        if (base.is_string() && !base.get_ref<const std::string&>().starts_with(".."))
          add_file(folder, base, depth + 1);
    add(yaml.root);
  }
  void add(const Json& table) {
    for (const auto& [key, value] : table.items())
      if (key != "extends" && !value.is_object()) arguments_[key] = substituted_value(value, options_);
  }
  Json arguments_ = Json::object();

 private:
  const std::string& name_;
  const ImportOptions& options_;
  int files_ = 0;
};

}  // namespace

std::optional<CommandLine> primus_command(const Json& root, const std::string& name, const ImportOptions& options) {
  const Json* found = nullptr;
  for (const char* module : {"/modules/pre_trainer", "/modules/post_trainer", "/modules/sft_trainer"})
    if (const Json::json_pointer path(module); found == nullptr && root.is_object() && root.contains(path))
      found = &root[path];
  if (found == nullptr || !found->is_object()) return std::nullopt;
  const Json& trainer = *found;
  if (trainer.value("framework", Json()) != "megatron" || !trainer.value("model", Json()).is_string())
    return std::nullopt;
  Primus primus(name, options);
  if (const Json config = trainer.value("config", Json()); config.is_string())
    primus.add_file("modules/megatron/", config);
  const Json model = substituted_value(trainer["model"], options);
  primus.add_file("models/megatron/", model.is_string() ? model.get<std::string>() : model.dump());
  if (const Json overrides = trainer.value("overrides", Json()); overrides.is_object()) primus.add(overrides);
  if (const Json type = primus.arguments_.value("model_type", Json()); type.is_string() && type != "gpt")
    throw input_error(name + ": model_type: expected \"gpt\", a decoder of attention and MLPs, got " + type.dump() +
                      ", whose layers are not modelled yet");
  CommandLine line = command_line_of_arguments(primus.arguments_, {});
  line.processes = 8;  // GPUS_PER_NODE of its examples/run_pretrain.sh
  line.notes.push_back("settings are those of Primus' files of the module and the model, and of overrides");
  return line;
}

}  // namespace stretto
