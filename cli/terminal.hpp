#pragma once
#include <iostream>
#include <streambuf>
#include <string>

namespace stretto::cli {

// While it lives, what goes out by std::cout is text for a terminal: control characters but tabs and ends of lines are
// shown as \xNN and not obeyed, whoever they come from (names in scenarios and files, paths). For one thread at a time.
class ShownText : public std::streambuf {
 public:
  ShownText() : inner_(std::cout.rdbuf(this)) {}
  ~ShownText() override { std::cout.rdbuf(data_ ? data_ : inner_); }
  ShownText(const ShownText&) = delete;
  ShownText& operator=(const ShownText&) = delete;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override { return inner_->pubsync(); }

 private:
  friend void keep_standard_output_for_data();
  friend void write_to_standard_output(const std::string& data);
  std::streambuf* inner_;
  std::streambuf* data_ = nullptr;  // standard output, when text goes elsewhere
};

// From here on what std::cout is told goes to standard error, so that standard output holds nothing but data. Does
// nothing without a ShownText.
void keep_standard_output_for_data();
// As it is, wherever text goes. A failure shows in the state of std::cout.
void write_to_standard_output(const std::string& data);

}  // namespace stretto::cli
