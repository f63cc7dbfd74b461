#include "model/lower/sharding.hpp"

#include <cassert>

namespace stretto {

Parameter part_of(const Parameter& whole, const Parallel& parallel) {
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  Parameter part = whole;
  if (whole.experts > 0 && parallel.experts_apart()) {
    const std::int64_t ranks = parallel.expert_model_parallel_size;
    assert(whole.experts % ranks == 0 && parallel.expert_tp() == 1);
    part.experts /= ranks;
    part.rows /= ranks;
    part.segments.resize(part.segments.size() / static_cast<std::size_t>(ranks));
    part.shard = Shard::none;
    return part;
  }
  if (whole.shard == Shard::none || tp == 1) return part;
  // The bias of a column-parallel layer is one row, cut along its elements.
  std::int64_t& extent = whole.shard == Shard::rows && whole.rows > 1 ? part.rows : part.cols;
  assert(extent % tp == 0);
  extent /= tp;
  for (std::int64_t& segment : part.segments) {
    assert(segment % tp == 0);
    segment /= tp;
  }
  return part;
}

std::vector<ArrayCut> cuts_of(const Parameter& whole, const Parallel& parallel) {
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  if (whole.experts > 0 && parallel.experts_apart()) {
    const std::int64_t part = whole.elements() / parallel.expert_model_parallel_size;
    return {{Expr(Coord::ep) * Expr(part), 1, part, part}};
  }
  if (whole.shard == Shard::none || tp == 1) return {{0, 1, whole.elements(), whole.elements()}};
  if (whole.shard == Shard::columns) {
    assert(whole.segments.empty());
    const std::int64_t cols = whole.cols / tp;
    return {{Expr(Coord::tp) * Expr(cols), whole.rows, cols, whole.cols}};
  }
  // Each segment is cut. The bias of a column-parallel layer is one row, cut along its elements.
  std::vector<std::int64_t> segments = whole.segments;
  if (segments.empty()) segments.push_back(whole.rows > 1 ? whole.rows : whole.cols);
  const std::int64_t row = whole.rows > 1 ? whole.cols : 1;
  std::vector<ArrayCut> cuts;
  std::int64_t begin = 0;
  for (const std::int64_t segment : segments) {
    const std::int64_t part = segment / tp * row;
    cuts.push_back({Expr(Coord::tp) * Expr(part) + Expr(begin), 1, part, part});
    begin += segment * row;
  }
  assert(begin == whole.elements());
  return cuts;
}

}  // namespace stretto
