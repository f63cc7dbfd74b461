#pragma once
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

namespace stretto::cli {

// While it lives, what goes out by a stream (std::cout, std::cerr) is text for a terminal, as printable_lines() has it:
// whoever a name, a path or a message comes from, its control characters are shown and not obeyed. So nobody who prints
// needs to remember it. Several threads may write.
class ShownText : public std::streambuf {
 public:
  explicit ShownText(std::ostream& stream) : stream_(stream), inner_(stream.rdbuf(this)) {}
  ~ShownText() override;
  ShownText(const ShownText&) = delete;
  ShownText& operator=(const ShownText&) = delete;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override { return inner_->pubsync(); }

 private:
  friend void keep_standard_output_for_data();
  friend void write_to_standard_output(const std::string& data);
  std::ostream& stream_;
  std::streambuf* inner_;
  std::streambuf* data_ = nullptr;  // standard output, when text goes elsewhere
  std::mutex mutex_;                // guards held_
  std::string held_;                // the beginning of a character, whose end is to come
};

// From here on what std::cout is told goes to standard error, so that standard output holds nothing but data. Does
// nothing without a ShownText.
void keep_standard_output_for_data();
// As it is, wherever text goes. A failure shows in the state of std::cout.
void write_to_standard_output(const std::string& data);
// Goes to the beginning of the terminal's line on standard error, and empties it.
void clear_line();

}  // namespace stretto::cli
