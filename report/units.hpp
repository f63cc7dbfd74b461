#pragma once
#include <cstdint>
#include <string>

namespace stretto {

// A unit in which numbers are shown, on a terminal and on a page. JSON has fixed units instead.
struct Unit {
  double per_unit = 1;  // values are divided by it
  std::string name;     // "" for a plain number
  int decimals = 1;

  std::string number(double value) const;  // "12.3"; "–" for a value that is not finite
  std::string text(double value) const;    // "12.3 ms"
};
// Units for values that are shown together, chosen by the largest: it has three significant digits or more.
Unit time_unit(double largest_ms);     // for values in milliseconds: µs, ms, s
Unit byte_unit(double largest_bytes);  // for values in bytes: powers of 1024
Unit count_unit(double largest);       // K, M, B (10^9), T
Unit rate_unit(double largest_FLOPs);  // for values in FLOP/s: MFLOP/s to EFLOP/s

// Return one value in its own unit: "1.645 s", "59.85 GiB", "70.55 B", "478.7 TFLOP/s".
std::string time_text(double ms);
std::string size_text(double bytes);
std::string count_text(double count);
std::string rate_text(double FLOPs_per_s);
std::string percent_text(double share);  // of a share from 0 to 1: "48.4 %"

// Return values as people say them, with three significant digits and commas between thousands; JSON has all digits.
std::string with_commas(std::int64_t count);  // "13,068"
std::string three_digits(double value);       // "59.0", "1,139", "0.513", "0"
std::string short_time(double ms);            // "14.4 s", "513 ms"
std::string short_count(double count);        // "72.9 k", "1.12 M", "8.03 B" (10^9)
std::string change_text(double relative);     // −0.2518: "−25.2 %", 0.03: "+3.0 %"; below 0.05 % "0"

}  // namespace stretto
