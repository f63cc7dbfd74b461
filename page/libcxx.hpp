#pragma once
// Included before every file of the page: what the libc++ of Debian 12's emscripten (13) lacks of C++20.
#include <cstddef>
#include <version>

#ifndef __cpp_lib_bit_cast
namespace std {
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
}  // namespace std
#endif
