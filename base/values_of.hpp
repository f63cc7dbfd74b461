#pragma once
#include <string_view>
#include <vector>

namespace stretto {

// All values of an enumeration: those from 0 on that its name_of() names. A name that is forgotten does not compile
// (-Werror=switch), so the list is whole.
template <class Enum>
std::vector<Enum> values_of() {
  std::vector<Enum> values;
  for (int i = 0; name_of(static_cast<Enum>(i)) != std::string_view("?"); ++i) values.push_back(static_cast<Enum>(i));
  return values;
}

}  // namespace stretto
