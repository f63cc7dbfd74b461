#include "exec/export.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "cli/commands.hpp"

namespace stretto::cli {
namespace {

struct ExportCommand {
  std::string checkpoint, output, format = "huggingface";
};

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportCommand>();
  CLI::App* command = app.add_subcommand("export", "a checkpoint's weights as other programs name them");
  command->add_option("CHECKPOINT", options->checkpoint, "a checkpoint that train wrote")->required();
  command->add_option("-o,--output", options->output, "the safetensors file to write")->required();
  command->add_option("--format", options->format, "whose names: huggingface (GPT-2 or Llama, as the model is)")
      ->check(CLI::IsMember({"huggingface"}));
  command->callback([options] {
    exec::export_to_huggingface(options->checkpoint, options->output);
    std::cout << fmt::format("wrote {}\n", options->output);
  });
}

}  // namespace stretto::cli
