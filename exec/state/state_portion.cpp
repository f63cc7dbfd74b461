#include "exec/state/state_portion.hpp"

#include <algorithm>
#include <cassert>
#include <map>

#include "exec/state/state_elements.hpp"

namespace stretto::exec {
namespace {

// Returns [rank] whether it is the one that saves, among the ranks that update the same elements of a piece.
std::vector<bool> savers_of(const Schedule& schedule, const StatePiece& piece, std::size_t turn) {
  const StateBucket& bucket = schedule.state.buckets[piece.bucket];
  const ModelArray& array = schedule.state.array_of(piece);
  const std::int64_t ranks = schedule.mesh.ranks();
  // Ranks with equal numbers have equal runs.
  std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> equal;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Coordinates at = schedule.mesh.coordinates_of(rank);
    if (schedule.role_of(at) != bucket.program) continue;
    std::vector<std::int64_t> key = {bucket.own_begin.eval(at)};
    for (const ArrayCut& cut : array.cuts) key.push_back(cut.begin.eval(at));
    equal[key].push_back(rank);
  }
  std::vector<bool> savers(static_cast<std::size_t>(ranks));
  for (const auto& [key, same] : equal) savers[static_cast<std::size_t>(same[turn % same.size()])] = true;
  return savers;
}

}  // namespace

StatePortion::StatePortion(const Schedule& schedule, const MemoryOf& memory_of, std::size_t first, StatePart part,
                           Of of)
    : schedule_(schedule) {
  const StateMap& state = schedule.state;
  const auto add = [&](const StatePiece& piece, std::int64_t rank, StatePart form, Share share) {
    for (const StateRun& run : runs_of(schedule, piece, form, rank, share)) runs_.push_back({&memory_of(rank), run});
  };
  std::vector<std::int64_t> here;
  for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
    if (memory_of.find(rank) != nullptr) here.push_back(rank);
  if (of == Of::saved) {
    // Each copy of the array is whole.
    const StatePiece& piece = state.pieces[first];
    const auto has_it = [&](std::int64_t rank) {
      return schedule.role_of(schedule.mesh.coordinates_of(rank)) == state.buckets[piece.bucket].program;
    };
    if (std::any_of(here.begin(), here.end(), has_it)) {
      const std::vector<bool> savers = savers_of(schedule, piece, first);
      for (const std::int64_t rank : here)
        if (savers[static_cast<std::size_t>(rank)])
          for (const StatePart form : exact_forms(schedule, piece, part)) add(piece, rank, form, Share::owned);
    }
  } else {
    for (const StatePiece& copy : state.copies(first))
      for (const std::int64_t rank : here) {
        add(copy, rank, part, Share::held);
        if (part == StatePart::parameters) add(copy, rank, StatePart::master, Share::held);
      }
  }
  std::vector<Stretch> all;
  all.reserve(runs_.size());
  for (const Run& of_rank : runs_) all.push_back({of_rank.run.begin, of_rank.run.elements});
  stretches_ = joined(std::move(all));
  for (const Stretch& stretch : stretches_) {
    places_.push_back(elements_);
    elements_ += stretch.count;
  }
}

std::int64_t StatePortion::place_of(std::int64_t element) const {
  const auto after = std::upper_bound(stretches_.begin(), stretches_.end(), element,
                                      [](std::int64_t e, const Stretch& stretch) { return e < stretch.begin; });
  assert(after != stretches_.begin());
  const auto stretch = after - 1;
  return places_[static_cast<std::size_t>(stretch - stretches_.begin())] + element - stretch->begin;
}

void StatePortion::gather(std::span<double> values) const {
  assert(std::ssize(values) == elements_);
  for (const Run& from : runs_) read_run(schedule_, *from.memory, from.run, values.data() + place_of(from.run.begin));
}

void StatePortion::scatter(std::span<const double> values) const {
  assert(std::ssize(values) == elements_);
  for (const Run& to : runs_) write_run(schedule_, *to.memory, to.run, values.data() + place_of(to.run.begin));
}

std::vector<std::size_t> arrays_of(const StateMap& state) {
  std::vector<std::size_t> firsts;
  for (std::size_t first = 0; first < state.pieces.size(); first += state.copies(first).size()) firsts.push_back(first);
  return firsts;
}

std::string name_in_files(const StateMap& state, std::size_t first, StatePart part) {
  return prefix_in_files(part) + state.full_name(state.pieces[first]);
}

}  // namespace stretto::exec
