#pragma once
#include <string>

namespace stretto {

// A unit that numbers are shown in: the same on a terminal and on a page. JSON has fixed units instead.
struct Unit {
  double per_unit = 1;  // values are divided by it
  std::string name;     // "" of a plain number
  int decimals = 1;

  std::string number(double value) const;  // "12.3"; "–" for what is no number
  std::string text(double value) const;    // "12.3 ms"
};
// Chosen by the largest of the values that are shown together: it has three significant digits or more.
Unit time_unit(double largest_ms);     // of values in milliseconds: µs, ms, s
Unit byte_unit(double largest_bytes);  // of values in bytes: powers of 1024
Unit count_unit(double largest);       // K, M, B (10^9), T
Unit rate_unit(double largest_FLOPs);  // of values in FLOP/s: MFLOP/s to EFLOP/s

// One value in its own unit: "1.645 s", "59.85 GiB", "70.55 B", "478.7 TFLOP/s".
std::string time_text(double ms);
std::string size_text(double bytes);
std::string count_text(double count);
std::string rate_text(double FLOPs_per_s);
std::string percent_text(double share);  // of 0 to 1: "48.4 %"

}  // namespace stretto
