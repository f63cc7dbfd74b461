#include "report/ink.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "report/colours.hpp"

namespace stretto {
namespace {

// The nearest of the sixteen colours of a terminal, by what a colour stands for: communicators differ in hue.
int nearest_of_sixteen(std::string_view name) {
  if (name.starts_with("comm-tp")) return 31;
  if (name.starts_with("comm-ep")) return 36;
  if (name.starts_with("comm-cp")) return 35;
  if (name.starts_with("comm-dp")) return 33;
  if (name.starts_with("comm-pp")) return 34;
  return name.starts_with("comm-") ? 32 : 90;
}

}  // namespace

std::string Ink::styled(std::string_view text, std::string_view codes) const {
  return on() ? fmt::format("\x1b[{}m{}\x1b[0m", codes, text) : std::string(text);
}
std::string Ink::bold(std::string_view text) const { return styled(text, "1"); }
std::string Ink::faint(std::string_view text) const { return styled(text, "2"); }
std::string Ink::warning(std::string_view text) const { return styled(text, "33"); }

std::string Ink::coloured(std::string_view text, std::string_view colour) const {
  if (colours == Colours::sixteen) return styled(text, std::to_string(nearest_of_sixteen(colour)));
  const auto found =
      std::find_if(palette().begin(), palette().end(), [&](const Colour& one) { return one.name == colour; });
  if (found == palette().end()) return std::string(text);
  const auto part = [&](std::size_t at) { return std::stoi(found->dark.substr(at, 2), nullptr, 16); };
  return styled(text, fmt::format("38;2;{};{};{}", part(1), part(3), part(5)));
}

}  // namespace stretto
