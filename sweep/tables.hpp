#pragma once
#include <string>
#include <vector>

#include "predict/resolution.hpp"
#include "report/table.hpp"
#include "sweep/search.hpp"

namespace stretto::sweep {

// Predictions of two layouts that differ by less cannot be ranked; of two that differ in an overlap mode
// predict::kBetweenStacks.
constexpr double kTie = predict::kResolved;

// Returns a table of the points with these indices, in this order: values of the axes that differ anywhere, step,
// tokens, MFU, memory, and the distance to the first one, "tie" where it is too small to rank.
Table points_table(const Space& space, const SearchResult& result, const std::vector<std::size_t>& points);
// Returns the values of the axes that differ anywhere, and the data-parallel size: "tp 4, pp 2, …".
std::string name_of_layout(const Space& space, const Point& point);
// Returns for each number of GPUs the index of the best point, ascending; empty unless there are several numbers.
std::vector<std::size_t> best_by_gpus(const std::vector<Point>& points);
// Returns a line: how many points were looked at and what became of them.
std::string counts_text(const SearchResult& result);
// Returns that in detail, with the commonest reasons of refusals.
std::string summary_text(const SearchResult& result, std::int64_t combinations);
// Returns how many of the points, in this order, cannot be ranked against the first.
std::size_t ties(const SearchResult& result, const std::vector<std::size_t>& points);
// Returns all points as CSV: one column for each axis, then those of Point.
std::string csv_of(const Space& space, const SearchResult& result);
// Returns the settings as --set options of a command line.
std::string set_options(const Point& point);
// Returns why there is no point that fits.
std::string why_none(const SearchResult& result);

}  // namespace stretto::sweep
