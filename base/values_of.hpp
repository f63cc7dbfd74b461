#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

namespace stretto {

// The name of an enumeration's value, of the names of all in their order; "?" behind the last. For its name_of().
template <class Enum, std::size_t n>
constexpr const char* name_in(const char* const (&names)[n], Enum value) {
  const auto i = static_cast<std::size_t>(value);
  return i < n ? names[i] : "?";
}

// All values of an enumeration: those from 0 on that its name_of() names.
template <class Enum>
std::vector<Enum> values_of() {
  std::vector<Enum> values;
  for (int i = 0; name_of(static_cast<Enum>(i)) != std::string_view("?"); ++i) values.push_back(static_cast<Enum>(i));
  return values;
}

}  // namespace stretto
