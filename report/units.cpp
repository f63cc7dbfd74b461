#include "report/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace stretto {
namespace {

// Returns the decimals for three significant digits or more, at most three.
int decimals_for(double largest) { return largest >= 100 ? 1 : largest >= 10 ? 2 : 3; }

// Returns the largest unit that is at most the value. Each name is `base` times the previous; `smallest` is
// the first name's value.
Unit scaled(double largest, double base, double smallest, std::initializer_list<const char*> names) {
  Unit unit{smallest, *names.begin(), 0};
  for (const char* name : names) {
    if (name != *names.begin()) {
      if (!(largest >= base * unit.per_unit) || !std::isfinite(largest)) break;
      unit.per_unit *= base;
    }
    unit.name = name;
  }
  unit.decimals = decimals_for(largest / unit.per_unit);
  return unit;
}

}  // namespace

std::string Unit::number(double value) const {
  if (!std::isfinite(value)) return "–";
  const std::string digits = fmt::format("{:.{}f}", value / per_unit, decimals);
  return digits.find_first_not_of("-0.") == std::string::npos && digits.front() == '-' ? digits.substr(1) : digits;
}

std::string Unit::text(double value) const {
  return std::isfinite(value) && !name.empty() ? number(value) + " " + name : number(value);
}

Unit time_unit(double largest_ms) {
  if (largest_ms > 0 && largest_ms < 1) return {1e-3, "µs", decimals_for(largest_ms * 1e3)};
  return scaled(largest_ms, 1e3, 1, {"ms", "s"});
}

Unit byte_unit(double largest_bytes) {
  Unit unit = scaled(largest_bytes, 1024, 1, {"B", "KiB", "MiB", "GiB", "TiB"});
  if (unit.per_unit == 1) unit.decimals = 0;
  return unit;
}

Unit count_unit(double largest) {
  Unit unit = scaled(largest, 1e3, 1, {"", "K", "M", "B", "T"});
  if (unit.per_unit == 1) unit.decimals = 0;
  return unit;
}

Unit rate_unit(double largest_FLOPs) {
  return scaled(largest_FLOPs, 1e3, 1e6, {"MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"});
}

std::string time_text(double ms) { return time_unit(std::abs(ms)).text(ms); }
std::string size_text(double bytes) { return byte_unit(std::abs(bytes)).text(bytes); }
std::string count_text(double count) { return count_unit(std::abs(count)).text(count); }
std::string rate_text(double FLOPs_per_s) { return rate_unit(std::abs(FLOPs_per_s)).text(FLOPs_per_s); }
std::string percent_text(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : std::string("–");
}

std::string with_commas(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string three_digits(double value) {
  if (!std::isfinite(value)) return "–";
  if (value == 0) return "0";
  // The power of ten of the rounded value: 9.996 is 10.0.
  const std::string scientific = fmt::format("{:.2e}", value);
  const int power = std::stoi(scientific.substr(scientific.find('e') + 1));
  std::string digits = fmt::format("{:.{}f}", value, std::max(0, 2 - power));
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  for (std::size_t at = point; at > first + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string short_time(double ms) {
  const Unit unit = time_unit(std::abs(ms));
  return three_digits(ms / unit.per_unit) + " " + unit.name;
}

std::string short_count(double count) {
  const Unit unit = count_unit(std::abs(count));
  return three_digits(count / unit.per_unit) + (unit.name.empty() ? "" : unit.name == "K" ? " k" : " " + unit.name);
}

std::string change_text(double relative) {
  if (!std::isfinite(relative)) return "–";
  if (std::abs(relative) < 0.0005) return "0";
  return fmt::format("{}{:.1f} %", relative < 0 ? "−" : "+", 100 * std::abs(relative));
}

}  // namespace stretto
