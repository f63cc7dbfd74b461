#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "sim/platform.hpp"
#include "tests/fuzz/bounded.hpp"

// The input is a platform file. For any bytes the result is a usable Platform, or an Error of one line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const fuzz::Bounded bounded(size, 1024);  // a key of a few bytes is a node of its tree
  try {
    const sim::Platform platform =
        sim::parse_platform(std::string(reinterpret_cast<const char*>(data), size), "fuzz.toml");
    if (platform.memory_bytes < 1 || platform.cores < 1) std::abort();
    if (platform.accelerator && platform.accelerator->attention.empty()) std::abort();
    if (platform.gpu)
      for (const sim::Curve& curve : platform.gpu->beside_moving)
        if (!std::isfinite(sim::value_of(curve, 7))) std::abort();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.empty() || message.find('\n') != std::string::npos || error.exit_code() != 2) std::abort();
  }
  return 0;
}
