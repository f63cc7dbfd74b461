#pragma once
#include <string>
#include <string_view>

namespace stretto {

// How text may look where it is printed. On a pipe and in a file: no colours.
struct Ink {
  enum class Colours { none, sixteen, all };  // `all`: 24 bits, which a terminal announces by COLORTERM
  Colours colours = Colours::none;
  int columns = 100;  // a first screen is no wider

  bool on() const { return colours != Colours::none; }
  // Return the text with a style (ECMA-48, SGR); without colours the text alone.
  std::string bold(std::string_view text) const;
  std::string faint(std::string_view text) const;
  std::string warning(std::string_view text) const;  // yellow
  // Returns the text in a colour of report/colours.hpp, by its name and value on a dark page.
  std::string coloured(std::string_view text, std::string_view colour) const;

 private:
  std::string styled(std::string_view text, std::string_view codes) const;
};

}  // namespace stretto
