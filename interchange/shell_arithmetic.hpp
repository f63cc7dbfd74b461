#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/budget.hpp"

namespace stretto::shell {

// The value of $((…)) in 64 bits, which wrap around as in the shell. A division by 0 and unreadable text give 0, with a
// message; a name without a value is `missing`.
struct Sum {
  std::int64_t value = 0;
  std::string missing;
  std::string trouble;
};
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
// Evaluates the text between $(( and )). `lookup` returns the value of a shell variable, or nothing if it has none.
// Throws only as the budget does.
Sum sum_of(std::string_view expression, const Lookup& lookup, Budget& budget);

}  // namespace stretto::shell
