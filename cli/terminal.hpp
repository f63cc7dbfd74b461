#pragma once
#include <iostream>
#include <streambuf>

namespace stretto::cli {

// While it lives, what goes out by std::cout is text for a terminal: control characters but tabs and ends of lines are
// shown as \xNN and not obeyed, whoever they come from (names in scenarios and files, paths). For one thread at a time.
class ShownText : public std::streambuf {
 public:
  ShownText() : inner_(std::cout.rdbuf(this)) {}
  ~ShownText() override { std::cout.rdbuf(inner_); }
  ShownText(const ShownText&) = delete;
  ShownText& operator=(const ShownText&) = delete;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override { return inner_->pubsync(); }

 private:
  std::streambuf* inner_;
};

}  // namespace stretto::cli
