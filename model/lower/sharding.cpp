#include "model/lower/sharding.hpp"

#include <cassert>

namespace stretto {

namespace {

// Returns the run of experts that a rank has, whole unless tp cuts them too; other parameters as they are.
Parameter run_of(const Parameter& whole, const Parallel& parallel) {
  Parameter run = whole;
  if (whole.experts == 0) return run;
  const std::int64_t ranks = parallel.expert_model_parallel_size;
  assert(whole.experts % ranks == 0);
  run.experts /= ranks;
  run.rows /= ranks;
  run.segments.resize(run.segments.size() / static_cast<std::size_t>(ranks));
  if (parallel.expert_tp() == 1) run.shard = Shard::none;
  return run;
}

// Returns how many ranks cut the parameter.
std::int64_t pieces_of(const Parameter& whole, const Parallel& parallel) {
  return whole.experts > 0 ? parallel.expert_tp() : parallel.tensor_model_parallel_size;
}

}  // namespace

Parameter part_of(const Parameter& whole, const Parallel& parallel) {
  const std::int64_t tp = pieces_of(whole, parallel);
  Parameter part = run_of(whole, parallel);
  if (part.shard == Shard::none || tp == 1) return part;
  // The bias of a column-parallel layer is one row, cut along its elements.
  std::int64_t& extent = part.shard == Shard::rows && part.rows > 1 ? part.rows : part.cols;
  assert(extent % tp == 0);
  extent /= tp;
  for (std::int64_t& segment : part.segments) {
    assert(segment % tp == 0);
    segment /= tp;
  }
  return part;
}

std::vector<ArrayCut> cuts_of(const Parameter& whole, const Parallel& parallel) {
  const std::int64_t tp = pieces_of(whole, parallel);
  const Expr place = whole.experts > 0 ? expert_tp_axis(parallel) : Coord::tp;
  const Parameter run = run_of(whole, parallel);
  const Expr first = run.elements() < whole.elements() ? Expr(Coord::ep) * Expr(run.elements()) : Expr(0);
  if (run.shard == Shard::none || tp == 1) return {{first, 1, run.elements(), run.elements()}};
  if (run.shard == Shard::columns) {
    assert(run.segments.empty());
    const std::int64_t cols = run.cols / tp;
    return {{place * Expr(cols) + first, run.rows, cols, run.cols}};
  }
  // Each segment is cut. The bias of a column-parallel layer is one row, cut along its elements.
  std::vector<std::int64_t> segments = run.segments;
  if (segments.empty()) segments.push_back(run.rows > 1 ? run.rows : run.cols);
  const std::int64_t row = run.rows > 1 ? run.cols : 1;
  std::vector<ArrayCut> cuts;
  std::int64_t begin = 0;
  for (const std::int64_t segment : segments) {
    const std::int64_t part = segment / tp * row;
    cuts.push_back({place * Expr(part) + Expr(begin) + first, 1, part, part});
    begin += segment * row;
  }
  assert(begin == run.elements());
  return cuts;
}

}  // namespace stretto
