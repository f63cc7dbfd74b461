#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

namespace stretto {

// Returns the name of an enumeration's value from the list of all names in order; "?" for a value beyond the last.
// Every name_of() of an enumeration calls it.
template <class Enum, std::size_t n>
constexpr const char* name_in(const char* const (&names)[n], Enum value) {
  const auto i = static_cast<std::size_t>(value);
  return i < n ? names[i] : "?";
}

// Returns all values of an enumeration: from 0 on, as long as name_of() knows a name.
template <class Enum>
std::vector<Enum> values_of() {
  std::vector<Enum> values;
  for (int i = 0; name_of(static_cast<Enum>(i)) != std::string_view("?"); ++i) values.push_back(static_cast<Enum>(i));
  return values;
}

}  // namespace stretto
