#include "base/json_cost.hpp"

#include <cstddef>
#include <string>

namespace stretto {

void charge_json(std::string_view text, Budget& budget) {
  constexpr int kMostDepth = 64;
  constexpr std::size_t kValueBytes = 64;  // of a value in nlohmann's tree, with its node of a map
  budget.look(text.size());
  std::size_t values = 1;
  int depth = 0, line = 1;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (c == ',' || c == ':') ++values;
    if (c == '[' || c == '{') {
      ++values;
      if (++depth > kMostDepth)
        throw input_error(budget.file() + ":" + std::to_string(line) + ": expected values inside each other at most " +
                          std::to_string(kMostDepth) + " times, got more");
    }
    if (c == ']' || c == '}') --depth;
    if (c == '"')
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
  }
  budget.keep(text.size() + values * kValueBytes);
}

}  // namespace stretto
