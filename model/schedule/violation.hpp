#pragma once
#include <string>

namespace stretto {

// A finding of the verifier (model/verify/verify.hpp). A schedule with any finding must not be run.
struct Violation {
  enum class Kind { malformed, uninitialised_read, race, order_mismatch, deadlock, wrong_value };
  Kind kind = Kind::malformed;
  std::string message;  // names the two operations and the missing edge
};

}  // namespace stretto
