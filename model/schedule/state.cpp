#include "model/schedule/state.hpp"

#include <algorithm>
#include <cassert>
#include <memory>

#include "base/full_name.hpp"
#include "base/values_of.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

const char* name_of(StatePart part) { return name_in({"parameters", "gradients", "adam_m", "adam_v", "master"}, part); }

std::string StateMap::full_name(const StatePiece& piece) const {
  return stretto::full_name(piece.layer, array_of(piece).name);
}

std::span<const StatePiece> StateMap::copies(std::size_t first) const {
  const auto begin = pieces.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = std::find_if(begin, pieces.end(), [&](const StatePiece& other) {
    return other.array != begin->array || other.layer != begin->layer;
  });
  return {std::to_address(begin), std::to_address(end)};
}

std::vector<StateRun> runs_of(const Schedule& schedule, const StatePiece& piece, StatePart part, std::int64_t rank,
                              Share share) {
  const StateBucket& bucket = schedule.state.buckets[piece.bucket];
  const std::optional<StateBucket::Window>& window = bucket.window(part);
  const Coordinates at = schedule.mesh.coordinates_of(rank);
  std::vector<StateRun> runs;
  if (!window || schedule.role_of(at) != bucket.program) return runs;
  const auto& masters = bucket.window(StatePart::master);
  const bool is_cut = masters && schedule.storages[masters->storage].dtype == Dtype::i16;
  const StateRun::Half half = !is_cut                         ? StateRun::Half::none
                              : part == StatePart::parameters ? StateRun::Half::upper
                              : part == StatePart::master     ? StateRun::Half::lower
                                                              : StateRun::Half::none;
  // The elements of the bucket that the rank has.
  const std::int64_t start = window->begin.eval(at);
  std::int64_t begin = start, end = start + schedule.storages[window->storage].elements;
  if (share == Share::owned) {
    const std::int64_t own = bucket.own_begin.eval(at);
    begin = std::max(begin, own);
    end = std::min(end, own + bucket.own_elements);
  }
  const ModelArray& array = schedule.state.array_of(piece);
  std::int64_t offset = piece.offset;  // offset of the cut in the bucket
  for (const ArrayCut& cut : array.cuts) {
    const std::int64_t in_array = cut.begin.eval(at);
    const std::int64_t end_row = std::min(cut.rows, (end - offset + cut.cols - 1) / cut.cols);
    for (std::int64_t row = std::max<std::int64_t>(0, begin - offset) / cut.cols; row < end_row; ++row) {
      const std::int64_t of_row = offset + row * cut.cols;
      const std::int64_t from = std::max(of_row, begin), number = in_array + row * cut.ld + from - of_row;
      const std::int64_t elements = std::min(std::min(of_row + cut.cols, end) - from, array.elements() - number);
      if (elements > 0) runs.push_back({number, elements, window->storage, from - start, half});
    }
    offset += cut.rows * cut.cols;
  }
  return runs;
}

}  // namespace stretto
