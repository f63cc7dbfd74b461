// libFuzzer entry point: for any bytes, parse_scenario returns a Scenario or throws an Error of one line.
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/fuzz_scenario.cpp base/error.cpp \
//     base/toml.cpp base/toml_file.cpp base/toml_parse.cpp model/scenario.cpp model/transformer.cpp -o fuzz_scenario
//   ./fuzz_scenario -max_total_time=60 scratch_corpus tests/fuzz/corpus/scenario
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/scenario.hpp"
#include "tests/fuzz/bounded.hpp"

// A first line "#set section.key=value" is passed as an override too, so that both entry points are fuzzed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const stretto::fuzz::Bounded bounded(size, 1024);  // a key of a few bytes is a node of its tree
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  if (text.rfind("#set ", 0) == 0) overrides.push_back(text.substr(5, text.find('\n') - 5));
  try {
    const stretto::Scenario scenario = stretto::parse_scenario(text, "fuzz.toml", overrides);
    if (scenario.num_microbatches() < 1 || stretto::parameter_count(scenario.model) < 1) std::abort();
  } catch (const stretto::Error& error) {
    const std::string message = error.what();
    if (message.empty() || message.find('\n') != std::string::npos || error.exit_code() != 2) std::abort();
  }
  return 0;
}
