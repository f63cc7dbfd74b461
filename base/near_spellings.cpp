#include "base/near_spellings.hpp"

#include <algorithm>
#include <set>

namespace stretto {
namespace {

constexpr std::string_view kBetweenWords = "_-. ";
constexpr std::size_t kLongest = 64;  // letters of a word that are looked at

std::set<std::string> distinct_words(std::string_view text) {
  std::set<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kBetweenWords), text.size());
    // Six letters: "recompute" and "recomputation" are one word.
    if (end > 1) words.emplace(text.substr(0, std::min<std::size_t>(end, 6)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::set<std::string> pairs_of(std::string_view text) {
  std::set<std::string> pairs;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) pairs.emplace(text.substr(i, 2));
  return pairs;
}

std::size_t common(const std::set<std::string>& a, const std::set<std::string>& b) {
  return static_cast<std::size_t>(
      std::count_if(a.begin(), a.end(), [&](const std::string& one) { return b.contains(one); }));
}

}  // namespace

std::vector<std::string> near_spellings(std::string_view word, const std::vector<std::string>& candidates,
                                        std::size_t count) {
  word = word.substr(0, kLongest);
  const std::set<std::string> words = distinct_words(word), pairs = pairs_of(word);
  std::vector<std::pair<double, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    const std::set<std::string> of_pairs = pairs_of(candidate);
    const double share = 2.0 * double(common(pairs, of_pairs)) / double(pairs.size() + of_pairs.size() + 1);
    if (share > 0) ranked.emplace_back(-double(common(words, distinct_words(candidate))) - share, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (ranked.size() > count) ranked.resize(count);
  std::vector<std::string> nearest;
  for (auto& one : ranked) nearest.push_back(std::move(one.second));
  return nearest;
}

}  // namespace stretto
