#pragma once
#include <string>
#include <vector>

#include "validate/validated_step.hpp"

namespace stretto::validate {

// The answer for a user who changes a setting: pairs of steps of one model and source that differ in one setting, or in
// two that trade GPUs for each other. Another source may have measured another release. Shares are 0 to 1.
struct PairKind {
  std::string what;  // "tp", "tp ↔ pp", "dp and batch" (weak scaling), "recompute", …
  std::size_t pairs = 0;
  std::size_t apart = 0;       // of which the measured times are more than kApart apart
  std::size_t right_sign = 0;  // of these, predicted in the right order
  double median_error = 0;     // of |predicted ratio / measured ratio − 1|
  double within = 0;           // share of pairs with at most kWithin of it
};
constexpr double kApart = 0.03, kWithin = 0.04;

// Pairs among the steps of one group, by kind, most frequent kinds first.
std::vector<PairKind> pairs_of(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group);

// The answer for a user who picks a layout: of the layouts of one model on as many GPUs with the same batch, at least
// kLayouts of them, how much slower than the best measured one is the one predicted best?
struct Ranking {
  std::size_t choices = 0;                   // sets of layouts
  std::size_t good = 0;                      // with a regret of at most kApart
  std::size_t best = 0;                      // with none
  double mean = 0, worst = 0;                // regret: measured time of the pick / that of the best − 1
  double random_mean = 0, random_worst = 0;  // of a layout taken at random: the mean of all, and of the worst choice
};
constexpr std::size_t kLayouts = 4;
Ranking ranking_of(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group);

}  // namespace stretto::validate
