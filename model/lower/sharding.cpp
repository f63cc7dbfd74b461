#include "model/lower/sharding.hpp"

#include <cassert>

namespace stretto {
namespace {

// Position `at` of a rank's part, along the axis that is cut, as a position in the whole.
std::int64_t along_axis(const Parameter& whole, std::int64_t extent, std::int64_t tp, std::int64_t t, std::int64_t at) {
  std::int64_t begin = 0;
  for (const std::int64_t segment : whole.segments) {
    if (at < segment / tp) return begin + t * (segment / tp) + at;
    at -= segment / tp;
    begin += segment;
  }
  return begin + t * ((extent - begin) / tp) + at;
}

}  // namespace

Parameter part_of(const Parameter& whole, std::int64_t tp) {
  Parameter part = whole;
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

std::int64_t index_in_whole(const Parameter& whole, std::int64_t tp, std::int64_t t, std::int64_t index) {
  if (whole.shard == Shard::none || tp == 1) return index;
  if (whole.shard == Shard::rows && whole.rows > 1)
    return along_axis(whole, whole.rows, tp, t, index / whole.cols) * whole.cols + index % whole.cols;
  const std::int64_t cols = whole.cols / tp;
  return index / cols * whole.cols + along_axis(whole, whole.cols, tp, t, index % cols);
}

}  // namespace stretto
