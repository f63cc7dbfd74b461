#pragma once
#include <vector>

#include "sim/accelerator/gemm_table.hpp"

namespace stretto::calibrate {

// Whether the shapes are a table by themselves: three values or more of m, n and k, and a time for every m and n.
bool is_gemm_grid(const std::vector<sim::GemmTime>& times);

std::size_t count_shapes(const std::vector<sim::GemmTime>& times);

// The table times measured / table, whose logarithm is the mean over the measured shapes, each weighted by the inverse
// square of its distance in log m, log n and log k. The measured shapes are on the grid, and exact, as long as it has
// no more than 50,000 points. `sms` as GemmTable::time_us takes it.
sim::GemmTable corrected_gemms(const sim::GemmTable& table, int sms, const std::vector<sim::GemmTime>& times);

}  // namespace stretto::calibrate
