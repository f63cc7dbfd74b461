#pragma once
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace stretto::testing {

// Returns the message that `run` throws, which must be of that kind; "no error" when nothing is thrown.
inline std::string message_of(const std::function<void()>& run, ErrorKind kind = ErrorKind::input) {
  try {
    run();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "no error";
}

}  // namespace stretto::testing
