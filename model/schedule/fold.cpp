#include "model/schedule/fold.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace stretto {
namespace {

// The longest body that is looked for: one micro-batch of a layer-folded order has a handful of entries.
constexpr std::size_t kMaxPeriod = 64;

struct Step {
  std::int64_t layer = 0, micro_batch = 0;
};

bool equal_after(const FoldedCall& a, const FoldedCall& b, Step shift) {
  if ((a.call == nullptr) != (b.call == nullptr)) return false;
  if (a.call) {
    return a.call->waits.empty() && b.call->waits.empty() && a.call->block == b.call->block &&
           a.call->first == b.call->first && a.call->count == b.call->count && a.call->chunk == b.call->chunk &&
           a.call->slot == b.call->slot && a.call->buffer == b.call->buffer && a.call->joined == b.call->joined &&
           a.call->sequence == b.call->sequence && a.call->concurrent == b.call->concurrent &&
           a.call->layer + shift.layer == b.call->layer &&
           a.call->micro_batch + shift.micro_batch == b.call->micro_batch;
  }
  return a.count == b.count && a.layer_step == b.layer_step && a.micro_batch_step == b.micro_batch_step &&
         std::equal(a.body.begin(), a.body.end(), b.body.begin(), b.body.end(),
                    [&](const FoldedCall& x, const FoldedCall& y) { return equal_after(x, y, shift); });
}

std::size_t repeats(std::span<const FoldedCall> items, std::size_t period, Step step) {
  std::size_t equal = 0;  // items that equal the item one period before
  while (equal + period < items.size() && equal_after(items[equal], items[equal + period], step)) ++equal;
  return 1 + equal / period;
}

std::vector<FoldedCall> fold_pass(std::vector<FoldedCall> items, const std::vector<Step>& steps) {
  std::vector<FoldedCall> folded;
  for (std::size_t at = 0; at < items.size();) {
    std::size_t best_period = 0, best_count = 1;
    Step best_step;
    for (const Step step : steps)
      for (std::size_t period = 1; period <= kMaxPeriod && at + 2 * period <= items.size(); ++period) {
        const std::size_t count = repeats(std::span(items).subspan(at), period, step);
        if (count >= 2 && count * period > best_count * best_period)
          best_period = period, best_count = count, best_step = step;
      }
    if (best_period == 0) {
      folded.push_back(std::move(items[at++]));
      continue;
    }
    FoldedCall repetition;
    repetition.count = static_cast<std::int64_t>(best_count);
    repetition.layer_step = best_step.layer;
    repetition.micro_batch_step = best_step.micro_batch;
    for (std::size_t i = 0; i < best_period; ++i) repetition.body.push_back(std::move(items[at + i]));
    folded.push_back(std::move(repetition));
    at += best_period * best_count;
  }
  return folded;
}

}  // namespace

std::vector<FoldedCall> fold(const std::vector<Call>& order) {
  std::vector<FoldedCall> items(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) items[i].call = &order[i];
  items = fold_pass(std::move(items), {{1, 0}, {-1, 0}});
  return fold_pass(std::move(items), {{0, 1}});
}

}  // namespace stretto
