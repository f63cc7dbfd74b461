#pragma once
#include <string>
#include <vector>

#include "validate/validated_step.hpp"

namespace stretto::validate {

// How well predictions help a user who changes a setting: pairs of steps of one model and source that differ in one
// setting, or in two that trade GPUs for each other. Another source may have measured another release. Shares are 0 to
// 1.
struct PairKind {
  // "precision", "tp", "tp ↔ pp", "dp and batch" (weak scaling), "recompute", …; "container": nothing but the release
  // of the software, which predictions mostly do not know, so that their error is how much steps differ between
  // releases
  std::string what;
  std::size_t pairs = 0;
  std::size_t apart = 0;       // pairs whose measured times are more than kApart apart
  std::size_t right_sign = 0;  // pairs among these that are predicted in the right order
  double median_error = 0;     // median of |predicted ratio / measured ratio − 1|
  double within = 0;           // share of pairs whose error is at most kWithin
};
constexpr double kApart = 0.03, kWithin = 0.04;

// Returns pairs among the steps of one group, by kind, most frequent kinds first. `wider`: steps of the group in 16
// bits that this one in a low precision belongs to. A pair "precision" is one of each, of one model, source, batch and
// number of GPUs; layouts may differ, as they do in recipes.
std::vector<PairKind> pairs_of(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group,
                               const std::vector<std::size_t>& wider = {});

// How well predictions help a user who picks a layout: of the layouts of one model on one number of GPUs with one
// batch, at least kLayouts of them, how much slower than the best measured one is the one predicted best?
struct Ranking {
  std::size_t choices = 0;                   // number of sets of layouts
  std::size_t good = 0;                      // sets with a regret of at most kApart
  std::size_t best = 0;                      // sets without regret
  double mean = 0, worst = 0;                // regret: measured time of the pick / time of the best − 1
  double random_mean = 0, random_worst = 0;  // regret of a random layout: the mean of all, and of the worst set
};
constexpr std::size_t kLayouts = 4;
Ranking ranking_of(const std::vector<ValidatedStep>& steps, const std::vector<std::size_t>& group);

}  // namespace stretto::validate
