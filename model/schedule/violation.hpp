#pragma once
#include <string>

namespace stretto {

// What the verifier finds (model/verify/verify.hpp).
struct Violation {
  enum class Kind { malformed, uninitialised_read, race, order_mismatch, deadlock, wrong_value };
  Kind kind = Kind::malformed;
  std::string message;  // names the two operations and the edge that is missing
};

}  // namespace stretto
