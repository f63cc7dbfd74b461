#include "base/time_left.hpp"

#include <fmt/format.h>

#include <cmath>

namespace stretto {

std::string TimeLeft::text(double seconds) {
  if (!(seconds >= 0.5) || !std::isfinite(seconds)) return "";
  const double whole = std::round(seconds);
  const double minutes = std::floor(whole / 60), hours = std::floor(minutes / 60), days = std::floor(hours / 24);
  if (days >= 1) return fmt::format(", {:.0f} d {:.0f} h left", days, hours - 24 * days);
  if (hours >= 1) return fmt::format(", {:.0f} h {:.0f} min left", hours, minutes - 60 * hours);
  if (minutes >= 1) return fmt::format(", {:.0f} min {:.0f} s left", minutes, whole - 60 * minutes);
  return fmt::format(", {:.0f} s left", whole);
}

}  // namespace stretto
