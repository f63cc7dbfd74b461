#include "base/error.hpp"

#include <algorithm>
#include <numeric>

namespace stretto {
namespace {

// Levenshtein's distance, in which a swap of two neighbours also counts once (optimal string alignment): "modle" for
// "model" is one slip of the fingers. Only three rows of the table exist at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_spelling(std::string_view word, const std::vector<std::string>& candidates) {
  const std::size_t limit = std::max<std::size_t>(1, word.size() / 3);
  std::size_t best = limit + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    // The lengths alone bound the distance; a word of a megabyte must not cost a table of that size.
    const std::size_t shorter = std::min(word.size(), candidate.size());
    if (std::max(word.size(), candidate.size()) - shorter > limit) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  // A user who leaves out the end of a name is far from the name in edit distance: "h100" for "h100-sxm".
  for (const std::string& candidate : candidates)
    if (nearest.empty() && word.size() > 1 && candidate.starts_with(word)) nearest = candidate;
  return nearest;
}

}  // namespace stretto
