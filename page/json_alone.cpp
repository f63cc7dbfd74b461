// The page reads traces that are JSON. What else the command reads is refused here by its name, because the page has
// neither SQLite nor zlib; the browser unpacks gzip before (page/ui/src/trace/file.ts).
#include <string>

#include "base/error.hpp"
#include "trace/inflater.hpp"
#include "trace/nsight.hpp"

namespace stretto::trace {

struct Inflater::Stream {};

Inflater::Inflater(std::string name) : name_(std::move(name)) {
  throw input_error(name_ + ": is gzip in gzip; expected JSON");
}

Inflater::~Inflater() = default;

std::size_t Inflater::inflate_to(std::vector<char>&, const std::function<std::span<const char>()>&) { return 0; }

TraceFile read_nsight(const std::string& path) {
  throw input_error(path + ": is SQLite of Nsight Systems, which this page does not read; `stretto diagnose` does");
}

}  // namespace stretto::trace
