#pragma once
#include "base/csv.hpp"

namespace stretto::sim {

// Microseconds that a measured kernel or collective can have taken. The least is a few cycles of a GPU, less than any
// kernel takes, also on the emulated device; the most is an hour. Kind: assumed.
constexpr double kLeastTime_us = 0.001, kMostTime_us = 3.6e9;

// Returns a cell of a table of such times. Throws Error(input) with file, line and column.
inline double time_us(const CsvRow& row, std::size_t column) { return row.number(column, kLeastTime_us, kMostTime_us); }

}  // namespace stretto::sim
