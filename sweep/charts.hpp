#pragma once
#include <optional>
#include <vector>

#include "report/html_plot.hpp"
#include "report/prediction.hpp"
#include "sweep/search.hpp"

namespace stretto::sweep {

// Returns all predicted points, step against memory, with the Pareto front `front` joined, the memory of each device as
// a line, and an area of kTie (sweep/tables.hpp) from the fastest point of each group of ties on. Points of several
// machines or batches have tokens per second and GPU in place of the step. `own`: the scenario as it is, or null.
// nullopt where no point is predicted.
std::optional<Plot> pareto_plot(const Space& space, const SearchResult& result, const std::vector<std::size_t>& front,
                                const Prediction* own);

// Returns curves over the number of GPUs: tokens per second and GPU of the points with these indices, and the shares of
// their steps that are exposed communication, in all and by axis. `steps`: predictions of the first of these points.
// Empty for less than two.
std::vector<Plot> scaling_plots(const Space& space, const SearchResult& result, const std::vector<std::size_t>& points,
                                const std::vector<Prediction>& steps);

}  // namespace stretto::sweep
