#include "model/schedule/process_group.hpp"

#include <algorithm>
#include <cassert>

namespace stretto {
namespace {

// One digit of a rank number in the decomposition of the mesh that has the axes of the group, from the slowest axis on.
struct Digit {
  std::int64_t size = 1, stride = 1, value = 0;
  bool varies = false;  // the digit differs between members of the group
};

std::vector<Digit> digits_of(const Mesh& mesh, const std::vector<Coord>& along, std::int64_t rank) {
  std::vector<Digit> digits;
  std::int64_t stride = mesh.ranks();
  for (const MeshAxis& axis : mesh.decomposition_with(along)) {
    stride /= axis.size;
    const bool varies = std::find(along.begin(), along.end(), axis.coord) != along.end();
    digits.push_back({axis.size, stride, rank / stride % axis.size, varies});
  }
  return digits;
}

std::int64_t size_of(const std::vector<Digit>& digits) {
  std::int64_t size = 1;
  for (const Digit& digit : digits)
    if (digit.varies) size *= digit.size;
  return size;
}

// Returns the place of the rank among the members, in the order of their numbers.
std::int64_t place_of(const std::vector<Digit>& digits) {
  std::int64_t place = 0;
  for (const Digit& digit : digits)
    if (digit.varies) place = place * digit.size + digit.value;
  return place;
}

std::int64_t member_at(const std::vector<Digit>& digits, std::int64_t place) {
  std::int64_t rank = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    rank += (digit->varies ? place % digit->size : digit->value) * digit->stride;
    if (digit->varies) place /= digit->size;
  }
  return rank;
}

// Counts members with numbers below `end`, digit by digit: `left` members have the digits of `end` so far.
std::int64_t members_below(const Mesh& mesh, const std::vector<Digit>& digits, std::int64_t end) {
  std::int64_t left = size_of(digits), below = 0;
  if (end >= mesh.ranks()) return left;
  if (end <= 0) return 0;
  for (const Digit& digit : digits) {
    const std::int64_t last = end / digit.stride % digit.size;
    if (digit.varies) {
      left /= digit.size;
      below += last * left;
    } else if (digit.value != last) {
      return digit.value < last ? below + left : below;
    }
  }
  return below;
}

}  // namespace

ProcessGroup process_group_of(const Mesh& mesh, const Communicator& communicator, std::int64_t rank) {
  const std::vector<Digit> digits = digits_of(mesh, communicator.axes, rank);
  const std::vector<std::int64_t>& subset = communicator.subset;
  if (subset.empty()) return {member_at(digits, 0), size_of(digits)};
  if (std::find(subset.begin(), subset.end(), place_of(digits)) == subset.end()) return {};
  return {member_at(digits, subset.front()), static_cast<std::int64_t>(subset.size())};
}

std::int64_t members_within(const Mesh& mesh, const Communicator& communicator, std::int64_t rank, std::int64_t begin,
                            std::int64_t end) {
  const std::vector<Digit> digits = digits_of(mesh, communicator.axes, rank);
  if (communicator.subset.empty()) return members_below(mesh, digits, end) - members_below(mesh, digits, begin);
  return std::count_if(communicator.subset.begin(), communicator.subset.end(), [&](std::int64_t place) {
    const std::int64_t member = member_at(digits, place);
    return member >= begin && member < end;
  });
}

std::int64_t ring_member(const Mesh& mesh, const Communicator& communicator, std::int64_t rank, std::int64_t offset) {
  const std::vector<Digit> digits = digits_of(mesh, communicator.axes, rank);
  const std::vector<std::int64_t>& subset = communicator.subset;
  std::int64_t size = size_of(digits), place = place_of(digits);
  if (!subset.empty()) {
    size = static_cast<std::int64_t>(subset.size());
    place = std::find(subset.begin(), subset.end(), place) - subset.begin();
    assert(place < size);
  }
  place = ((place + offset) % size + size) % size;
  return member_at(digits, subset.empty() ? place : subset[static_cast<std::size_t>(place)]);
}

}  // namespace stretto
