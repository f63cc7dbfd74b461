#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "tests/fuzz/bounded.hpp"
#include "trace/shapes.hpp"
#include "trace/trace.hpp"

// The input is a trace in JSON. For any bytes the result is a usable trace, or an Error of one line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const fuzz::Bounded bounded(size, 4096);  // an event of a few bytes is a kernel, its names and its stream
  try {
    const trace::TraceFile file = trace::parse_trace({reinterpret_cast<const char*>(data), size}, "rank-3.json");
    if (file.sections.empty()) std::abort();
    for (const trace::Section& section : file.sections)
      for (const trace::RankTrace& rank : section.ranks) {
        if (rank.kernels.empty()) std::abort();
        for (const trace::Kernel& kernel : rank.kernels) {
          if (kernel.end < kernel.start || kernel.name >= rank.names.size() || kernel.stream >= rank.streams.size())
            std::abort();
          if (kernel.message >= std::ssize(rank.messages) || kernel.call >= std::ssize(rank.calls)) std::abort();
          trace::product_of(rank, kernel);
        }
      }
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.empty() || message.find('\n') != std::string::npos || error.exit_code() != 2) std::abort();
  }
  return 0;
}
