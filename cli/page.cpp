#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/own_folder.hpp"
#include "cli/commands.hpp"

namespace stretto::cli {
namespace {

struct PageOptions {
  Output output;
  Files files;
};

// Returns the built page: among the other files that come with Stretto, or in the build folder next to this program's.
std::filesystem::path page_file() {
  std::error_code problem;
  const std::filesystem::path built = own_folder().parent_path() / "page/page.html";
  try {
    return data_path("page.html");
  } catch (const Error&) {
    if (std::filesystem::exists(built, problem)) return built;
    throw input_error(
        "page: this Stretto was built without its page, which needs emscripten; build it with scripts/page");
  }
}

void page_command(PageOptions& options) {
  options.files.claim_outputs();
  std::ifstream file(page_file(), std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw runtime_failure(page_file().string() + ": cannot be read");
  write_text(options.output, text.str());
}

}  // namespace

void add_page(CLI::App& app) {
  auto options = std::make_shared<PageOptions>();
  CLI::App* command = app.add_subcommand("page", "the predictor as one static web page, which needs no server");
  options->files.add_output(*command, "FILE", options->output, "the page to write, such as stretto.html")->required();
  command->callback([options] { page_command(*options); });
}

}  // namespace stretto::cli
