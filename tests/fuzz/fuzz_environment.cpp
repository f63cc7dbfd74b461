#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "base/error.hpp"
#include "exec/launch/world.hpp"
#include "tests/fuzz/bounded.hpp"

// The input is an environment, NAME=value line by line. The result must be a World with consistent numbers, nothing, or
// an Error that names a variable.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const fuzz::Bounded bounded(size, 64);
  std::map<std::string, std::string> variables;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
    begin = end + 1;
  }
  try {
    const auto world = launch::world_from_environment([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
    if (!world) return 0;
    const bool is_right = world->size >= 1 && world->rank >= 0 && world->rank < world->size && world->local_rank >= 0 &&
                          world->local_rank < world->size && world->port > 0 && world->port < 65536 &&
                          world->address.size() <= size && !world->launcher.empty();
    if (!is_right) std::abort();
  } catch (const Error& error) {
    if (*error.what() == '\0' || error.exit_code() != 2) std::abort();
  }
  return 0;
}
