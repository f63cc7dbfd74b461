#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stretto {

// The cause of a failure; it decides the program's exit code.
enum class ErrorKind {
  input,    // what the user gave is wrong: exit code 2
  runtime,  // the input is fine but the work failed (disk full, rank dead): exit code 1
};

// The one exception type for failures that a user can cause or must know of. Our own bugs are asserts.
// what() is one line, already readable: "file:line: key: what was expected".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return kind_ == ErrorKind::input ? 2 : 1; }

 private:
  ErrorKind kind_;
};

inline Error input_error(const std::string& message) { return Error(ErrorKind::input, message); }
inline Error runtime_failure(const std::string& message) { return Error(ErrorKind::runtime, message); }

// Returns the candidate with the least edit distance to `word`, or "" when no candidate is close enough to be what
// `word` was meant to be. The distance is at most a third of the word's length, and at least 1 is allowed.
std::string nearest_spelling(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace stretto
