#include "base/user_folder.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>

namespace {

// Sets a variable of the environment for the time of a test; null: none.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* now = std::getenv(name)) before_ = now;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }
  const char* name_;
  std::optional<std::string> before_;
};

std::string folder_with(const char* xdg, const char* home) {
  const Variable data("XDG_DATA_HOME", xdg), user("HOME", home);
  return stretto::user_folder("XDG_DATA_HOME", ".local/share");
}

}  // namespace

TEST_CASE("files of a user are in an absolute folder or nowhere, and never in the current folder", "[user_folder]") {
  CHECK(folder_with("/data", "/home/u") == "/data/stretto");
  CHECK(folder_with(nullptr, "/home/u") == "/home/u/.local/share/stretto");
  CHECK(folder_with("", "/home/u") == "/home/u/.local/share/stretto");
  CHECK(folder_with("data", "/home/u") == "/home/u/.local/share/stretto");
  for (const char* home : {static_cast<const char*>(nullptr), "", ".", "u"}) {
    CHECK(folder_with(nullptr, home).empty());
    CHECK(folder_with("data", home).empty());
    CHECK(folder_with("/data", home) == "/data/stretto");
  }
}
