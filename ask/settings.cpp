#include "ask/settings.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"
#include "interchange/megatron.hpp"
#include "interchange/nemo_recipe.hpp"
#include "interchange/recipe.hpp"
#include "interchange/torchtitan.hpp"

namespace stretto::ask {
namespace {

std::string script_of(const std::string& path) {
  ReadFile file = ReadFile::open(path);
  if (file.size() > kTomlMaxBytes) throw input_error(path + ": expected a file of at most 1 MiB");
  const std::vector<std::byte> bytes = std::move(file).take();
  return std::string(require_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
}

// Returns the text of a file that settings include: by its path; in the settings' folder, or by its name alone there;
// in a folder above it, from which the scripts of a repository are started.
std::optional<std::string> further_file(const std::string& folder, const std::string& path) {
  namespace fs = std::filesystem;
  const std::string extension = fs::path(path).extension().string();
  const bool is_script = extension == ".sh" || extension == ".bash" || extension == ".slurm" ||
                         extension == ".sbatch" || extension == ".env" || extension == ".py" || extension == ".conf";
  const bool is_config = extension == ".yaml" || extension == ".yml" || extension == ".toml";
  if (!is_script && !is_config) return std::nullopt;
  std::vector<fs::path> candidates = {fs::path(path), fs::path(folder) / path};
  std::error_code error;
  if (is_script) candidates.push_back(fs::path(folder) / fs::path(path).filename());
  if (fs::path(path).is_relative())
    for (fs::path above = fs::absolute(folder, error); above.has_relative_path(); above = above.parent_path())
      candidates.push_back(above.parent_path() / path);
  for (const fs::path& candidate : candidates)
    if (fs::is_regular_file(candidate, error)) return script_of(candidate.string());
  return std::nullopt;
}

std::string format_of(const std::string& file) {
  const std::string extension = std::filesystem::path(file).extension().string();
  if (extension == ".toml") return "torchtitan";
  if (extension == ".yaml" || extension == ".yml" || extension == ".json") return "yaml";
  if (extension == ".py") return "bridge";
  return "megatron";
}

ImportOptions options_of(const ImportRequest& given) {
  ImportOptions options;
  options.overrides = given.set;
  options.gpus = given.gpus;
  options.path = given.file;
  const std::string folder = std::filesystem::path(given.file).parent_path().string();
  options.read = [folder](const std::string& path) { return further_file(folder, path); };
  for (const std::string& one : given.environment) {
    const std::size_t equal = one.find('=');
    if (equal == std::string::npos || equal == 0)
      throw input_error("--env: expected NAME=VALUE, got " + in_quotes(one));
    options.environment[one.substr(0, equal)] = one.substr(equal + 1);
  }
  return options;
}

}  // namespace

Translation imported(const ImportRequest& given) {
  if (given.file.empty() == given.flags.empty())
    throw input_error("expected one of FILE and --flags; see `stretto import --help`");
  if (given.gpus < 0 || given.gpus > (1 << 24))
    throw input_error("--gpus: expected 1 to 2^24, got " + std::to_string(given.gpus));
  const ImportOptions options = options_of(given);
  const std::string text = given.file.empty() ? given.flags : script_of(given.file);
  const std::string name = given.file.empty() ? "--flags" : given.file;
  if (!is_toml_text(text)) throw input_error(name + ": expected text in UTF-8");
  const std::string format = given.format.empty() ? format_of(given.file) : given.format;
  if (format == "torchtitan") return from_torchtitan(text, name, options);
  if (format == "yaml") return from_recipe(text, name, options);
  if (format == "megatron") return from_megatron(text, name, options);
  if (format != "bridge")
    throw input_error("format: expected megatron, yaml, torchtitan or bridge, got " + in_quotes(format));
  // Bridge's settings are Python, or a part of its YAML.
  return from_python(text, name, options);
}

Translation exported(const Request& of, const std::string& format) {
  if (format != "megatron" && format != "bridge" && format != "torchtitan")
    throw input_error("format: expected megatron, bridge or torchtitan, got " + in_quotes(format));
  const Scenario scenario = Asked(of).scenario;
  if (format == "bridge") return to_bridge(scenario);
  return format == "torchtitan" ? to_torchtitan(scenario) : to_megatron(scenario);
}

}  // namespace stretto::ask
