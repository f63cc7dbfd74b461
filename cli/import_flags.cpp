#include <iostream>
#include <memory>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/toml.hpp"
#include "cli/commands.hpp"
#include "model/scenario/megatron.hpp"

namespace stretto::cli {
namespace {

struct ImportedFlags {
  std::string file, flags, format = "megatron";
  Output output;
  Files files;
};

void import(const ImportedFlags& options) {
  if (options.file.empty() == options.flags.empty())
    throw input_error("expected one of FILE and --flags; see `stretto import --help`");
  std::string text = options.flags;
  if (!options.file.empty()) {
    ReadFile file = ReadFile::open(options.file);
    if (file.size() > kTomlMaxBytes) throw input_error(options.file + ": expected a script of at most 1 MiB");
    const std::vector<std::byte> bytes = std::move(file).take();
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  const std::string name = options.file.empty() ? "--flags" : options.file;
  if (!is_toml_text(text)) throw input_error(name + ": expected text in UTF-8");
  options.files.claim_outputs();
  const Translation made = options.format == "bridge" ? from_bridge(text, name) : from_megatron(text, name);
  for (const std::string& note : made.notes) std::cerr << "note: " << note << "\n";
  if (options.output.empty())
    std::cout << made.text;
  else
    write_text(options.output, made.text);
}

}  // namespace

void add_import(CLI::App& app) {
  auto options = std::make_shared<ImportedFlags>();
  CLI::App* command = app.add_subcommand("import", "a scenario from the settings of another program");
  options->files.add_input(*command, "FILE", options->file, "a shell script with flags; or Python or YAML for bridge");
  command->add_option("--flags", options->flags, "the flags themselves, instead of FILE: \"--num-layers 32 …\"");
  options->files.add_output(*command, "-o,--output", options->output, "the scenario to write; default: standard output",
                            true);
  command->add_option("--format", options->format, "whose: megatron (its command line), bridge (CommOverlapConfig)")
      ->check(CLI::IsMember({"megatron", "bridge"}));
  command->callback([options] { import(*options); });
}

}  // namespace stretto::cli
