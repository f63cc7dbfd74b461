// libFuzzer entry point: for any bytes, parse_scenario returns a Scenario or throws an Error of one line.
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
