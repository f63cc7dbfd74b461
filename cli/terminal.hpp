#pragma once
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

#include "report/ink.hpp"

namespace stretto::cli {

// While the object lives, text on a stream (std::cout, std::cerr) passes through printable_lines(): control characters
// from any name, path or message are shown and not obeyed. So no code that prints needs to remember it. Several threads
// may write.
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
  friend void print_screen(const std::string& text, const Ink& ink);
  friend Ink ink_of_output(const std::string& when);
  std::ostream& stream_;
  std::streambuf* inner_;
  std::streambuf* data_ = nullptr;  // standard output, when text goes elsewhere
  std::mutex mutex_;                // guards held_
  std::string held_;                // the beginning of a character whose other bytes are still to come
};

// Redirects std::cout to standard error, so that standard output holds only data. Does nothing without a ShownText.
void keep_standard_output_for_data();
// Writes data unchanged to standard output, wherever text goes. A failure shows in the state of std::cout.
void write_to_standard_output(const std::string& data);
// Returns how standard output shows text. `when`: "auto", "always" or "never". auto: colours on a terminal, unless
// NO_COLOR is set (no-color.org) or text goes to standard error; 24 bits where COLORTERM says so.
Ink ink_of_output(const std::string& when);
// Prints a text that has the styles of `ink` and no other control characters: without colours none is obeyed, and names
// in the text have passed printable(). Signs outside ASCII are spelled in
// ASCII where the locale's variables (LC_ALL, LC_CTYPE, LANG) name one that is not UTF-8.
void print_screen(const std::string& text, const Ink& ink);
// Moves to the beginning of the terminal's line on standard error, and empties it.
void clear_line();

}  // namespace stretto::cli
