// One program for many readers, because linking them takes longest. Its name says which one is fuzzed: fuzz_yaml is a
// link to it. For any bytes each reader returns or throws an Error of one line, within 1 s of processor time and 256
// MiB of memory.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "base/utf8.hpp"
#include "calibrate/import/measurements.hpp"
#include "exec/text/tokenizer.hpp"
#include "interchange/megatron.hpp"
#include "interchange/recipe.hpp"
#include "interchange/shell_run.hpp"
#include "interchange/torchtitan.hpp"
#include "interchange/yaml.hpp"
#include "model/scenario/hf_config.hpp"
#include "sweep/journal.hpp"
#include "tests/fuzz/bounded.hpp"
#include "tests/fuzz/input_file.hpp"
#include "trace/trace.hpp"
#include "validate/published.hpp"

namespace {

using namespace stretto;

// Checks what `stretto import` checks before any reader (cli/import_flags.cpp).
std::string_view script(std::string_view text) {
  if (text.size() > kTomlMaxBytes) throw input_error("input: too large");
  text = require_text(text, "input");
  if (!is_toml_text(text)) throw input_error("input: expected text in UTF-8");
  return text;
}

shell::Outside outside() {
  shell::Outside made;
  made.script = "run.sh";
  made.read = [](const std::string& path) {
    return path.ends_with("common.sh") ? std::optional<std::string>("export COMMON=1\n") : std::nullopt;
  };
  return made;
}

struct Reader {
  const char* name;
  void (*read)(std::string_view input);
};

const Reader kReaders[] = {
    {"yaml", [](std::string_view input) { parse_yaml(script(input), "input"); }},
    {"recipe", [](std::string_view input) { from_recipe(script(input), "input"); }},
    {"shell", [](std::string_view input) { shell::run(script(input), "input", outside()); }},
    {"flags", [](std::string_view input) { from_megatron(script(input), "input"); }},
    {"torchtitan", [](std::string_view input) { from_torchtitan(script(input), "input"); }},
    {"bridge", [](std::string_view input) { from_bridge(script(input), "input"); }},
    {"hf_config", [](std::string_view input) { parse_hf_config(script(input), "input"); }},
    {"tokenizer",
     [](std::string_view input) { exec::Tokenizer::parse(input, "input").encode("the end of 12,345 words"); }},
    {"journal",
     [](std::string_view input) {
       static const fuzz::InputFile file;
       sweep::Journal(file.with(input), true);
     }},
    {"published",
     [](std::string_view input) {
       static const fuzz::InputFile file;
       validate::read_published(file.with(input));
     }},
    {"measurements",
     [](std::string_view input) {
       static const fuzz::InputFile file;
       calibrate::read_measurements({file.with(input), "", 0, 0});
     }},
    {"sqlite",
     [](std::string_view input) {
       static const fuzz::InputFile file;
       trace::read_trace(file.with(input));
     }},
    {"gzip", [](std::string_view input) { trace::parse_trace(input, "rank-3.json.gz"); }},
};

const Reader* reader = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  const std::string name = std::filesystem::path((*argv)[0]).filename().string();
  for (const Reader& one : kReaders)
    if (name == std::string("fuzz_") + one.name) reader = &one;
  if (reader == nullptr) {
    std::fprintf(stderr, "%s: expected the name fuzz_READER of a reader in fuzz_readers.cpp\n", name.c_str());
    std::exit(2);
  }
  ::setenv("STRETTO_DATA", STRETTO_SCENARIOS, 0);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Bounded bounded;
  try {
    reader->read({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.empty() || message.find('\n') != std::string::npos || error.exit_code() != 2) {
      std::fprintf(stderr, "not an error of one line and code 2: %s\n", message.c_str());
      std::abort();
    }
  }
  return 0;
}
