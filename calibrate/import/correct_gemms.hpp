#pragma once
#include <vector>

#include "sim/accelerator/gemm_table.hpp"

namespace stretto::calibrate {

// Returns whether the shapes form a table by themselves: three values or more of m, n and k, and a time for every m and
// n.
bool is_gemm_grid(const std::vector<sim::GemmTime>& times);

std::size_t count_shapes(const std::vector<sim::GemmTime>& times);

// Returns the grid, scaled by measured / grid, where all times are of one type, which those returned lack. The
// logarithm of that factor is the mean over the measured shapes, each weighted by the inverse square of its distance in
// log m, log n and log k. The measured shapes are on the grid, and exact, as long as the grid has at most 50,000
// points. `sms` is the argument of GemmTable::time_us.
std::vector<sim::GemmTime> corrected_gemms(const sim::GemmGrid& table, int sms,
                                           const std::vector<sim::GemmTime>& times);

}  // namespace stretto::calibrate
