#pragma once
#include <optional>
#include <string>

#include "base/toml.hpp"

namespace stretto {

// Where a number comes from. Every number of a platform or profile has a source: a constant without one is a defect.
struct Source {
  std::string kind = "measured";  // or "published", "fitted" (to published steps), "assumed", "derived"
  std::string origin;             // the probe, the paper, the reason
  double spread_pct = 0;          // (max − min) / median over repeated measurements, median over the points
};

// One number with its source. The number lies in [low, high] with 80 % probability; both are 0 where that is not known.
struct Quantity {
  double value = 0;
  Source source;
  double low = 0, high = 0;
  std::optional<double> sourced = {};  // of a fitted number: its value before the fit, from its sources alone
};

// Reads the keys kind, source and spread_pct of a table. Throws Error(input).
Source read_source(TomlTable& table);
// Reads a table { value, kind, source, spread_pct, low, high, sourced }; the last four may be absent. Throws
// Error(input).
Quantity read_quantity(TomlTable table, Limits<double> limits = {});

// Return the TOML text that the readers above read.
std::string source_text(const Source& source);
std::string quantity_text(const Quantity& quantity);

}  // namespace stretto
