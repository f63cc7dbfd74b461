#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "model/interchange/megatron.hpp"
#include "model/interchange/nemo_recipe.hpp"
#include "model/interchange/recipe.hpp"
#include "model/interchange/torchtitan.hpp"
#include "model/scenario/overrides.hpp"

namespace stretto::cli {
namespace {

struct ImportedFlags {
  std::string file, flags, format;
  std::vector<std::string> set, environment;
  std::int64_t gpus = 0;
  Output output;
  Files files;
};

std::string script_of(const std::string& path) {
  ReadFile file = ReadFile::open(path);
  if (file.size() > kTomlMaxBytes) throw input_error(path + ": expected a file of at most 1 MiB");
  const std::vector<std::byte> bytes = std::move(file).take();
  return std::string(require_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
}

// Returns the text of a file that settings include: by its path; in the settings' folder; of a configuration also in a
// folder above it; of a script or program also by its name alone.
std::optional<std::string> further_file(const std::string& folder, const std::string& path) {
  namespace fs = std::filesystem;
  const std::string extension = fs::path(path).extension().string();
  const bool is_script = extension == ".sh" || extension == ".bash" || extension == ".slurm" ||
                         extension == ".sbatch" || extension == ".env" || extension == ".py";
  const bool is_config = extension == ".yaml" || extension == ".yml" || extension == ".toml";
  if (!is_script && !is_config) return std::nullopt;
  std::vector<fs::path> candidates = {fs::path(path), fs::path(folder) / path};
  std::error_code error;
  if (is_script) candidates.push_back(fs::path(folder) / fs::path(path).filename());
  if (is_config && fs::path(path).is_relative())
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

ImportOptions options_of(const ImportedFlags& given) {
  ImportOptions options;
  options.overrides = given.set;
  options.gpus = given.gpus;
  options.path = given.file;
  const std::string folder = std::filesystem::path(given.file).parent_path().string();
  if (!given.file.empty()) options.read = [folder](const std::string& path) { return further_file(folder, path); };
  for (const std::string& one : given.environment) {
    const std::size_t equal = one.find('=');
    if (equal == std::string::npos || equal == 0)
      throw input_error("--env: expected NAME=VALUE, got " + in_quotes(one));
    options.environment[one.substr(0, equal)] = one.substr(equal + 1);
  }
  return options;
}

Translation translated(const ImportedFlags& given) {
  if (given.file.empty() == given.flags.empty())
    throw input_error("expected one of FILE and --flags; see `stretto import --help`");
  if (given.gpus < 0 || given.gpus > (1 << 24))
    throw input_error("--gpus: expected 1 to 2^24, got " + std::to_string(given.gpus));
  const ImportOptions options = options_of(given);
  const std::string text = given.file.empty() ? given.flags : script_of(given.file);
  const std::string name = given.file.empty() ? "--flags" : given.file;
  if (!is_toml_text(text)) throw input_error(name + ": expected text in UTF-8");
  given.files.claim_outputs();
  const std::string format = given.format.empty() ? format_of(given.file) : given.format;
  if (format == "torchtitan") return from_torchtitan(text, name, options);
  if (format == "yaml") return from_recipe(text, name, options);
  if (format == "megatron") return from_megatron(text, name, options);
  // Bridge's settings are Python, or a part of its YAML.
  return from_python(text, name, options);
}

void import(const ImportedFlags& given) {
  const Translation made = translated(given);
  for (const std::string& note : made.notes) std::cerr << "note: " << note << "\n";
  if (given.output.empty())
    std::cout << made.text;
  else
    write_text(given.output, made.text);
}

}  // namespace

void add_import(CLI::App& app) {
  auto options = std::make_shared<ImportedFlags>();
  CLI::App* command = app.add_subcommand("import", "a scenario from the settings of another program");
  options->files.add_input(*command, "FILE", options->file,
                           "a launch script with flags, a log with Megatron-LM's printed arguments, a recipe in YAML "
                           "or of NeMo 2 in Python, or a "
                           "configuration of torchtitan");
  command->add_option("--flags", options->flags, "the flags themselves, instead of FILE: \"--num-layers 32 …\"");
  options->files.add_output(*command, "-o,--output", options->output, "the scenario to write; default: standard output",
                            true);
  command
      ->add_option("--format", options->format,
                   "whose: megatron (its command line), yaml (NeMo, Megatron-Bridge), torchtitan (its TOML), bridge "
                   "(CommOverlapConfig); default: by FILE's suffix")
      ->check(CLI::IsMember({"megatron", "yaml", "torchtitan", "bridge"}));
  command->add_option("--set", options->set, "a key of the scenario: --set model.vocab_size=32000 (repeatable)")
      ->transform([](const std::string& given) { return full_setting(given); })
      ->allow_extra_args(false);
  command->add_option("--gpus", options->gpus, "how many GPUs there are, where the settings leave it open")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--env", options->environment, "a variable that the script finds set: --env TP=8 (repeatable)")
      ->allow_extra_args(false);
  command->callback([options] { import(*options); });
}

}  // namespace stretto::cli
