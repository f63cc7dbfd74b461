#include <iostream>
#include <memory>

#include "ask/settings.hpp"
#include "cli/commands.hpp"
#include "model/scenario/overrides.hpp"

namespace stretto::cli {
namespace {

struct ImportedFlags : ask::ImportRequest {
  Output output;
  Files files;
};

void import(const ImportedFlags& given) {
  given.files.claim_outputs();
  const Translation made = ask::imported(given);
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
