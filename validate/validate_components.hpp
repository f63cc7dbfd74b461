#pragma once
#include <string>
#include <vector>

#include "sim/accelerator/accelerator.hpp"

namespace stretto::validate {

// predicted / measured − 1| over the points of a table that were left out one by one.
struct ComponentErrors {
  std::string left_out;  // "GEMM", "GEMM in fp8", "GEMM in fp8, k", "all_reduce", "all_reduce, number of GPUs"
  std::string range;     // "all", "above 300 us", "above 200 us", "below 256 KiB", "to 16 MiB", "above 16 MiB"
  std::size_t points = 0;
  double median_pct = 0, p95_pct = 0;
};

// Tests an accelerator's tables on shapes and sizes that they do not have, by leaving out points that they have:
//
//   GEMM             each shape from its two neighbours on an axis: on each axis by itself, and the geometric mean of
//                    the axes on which it has two; in each precision that the table has. "k": those of k alone
//   collective       each size from the others of its series, except the smallest and the largest
//   number of GPUs   each series from those of fewer and more GPUs, on one node or with equally many on each
//
// The tables themselves predict (sim/accelerator). Ranges without points are left out.
std::vector<ComponentErrors> validate_components(const sim::Accelerator& accelerator);

}  // namespace stretto::validate
