#include "diagnose/period.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace stretto::diagnose {
namespace {

using trace::Kernel;
using trace::KernelClass;
using trace::kNoTime;
using trace::RankTrace;

// Two windows are repetitions where this share of their kernels is equal, and a window is a step where it has this
// share of the names that repeat at all. Optimizers and logs differ a little from step to step.
constexpr double kEqualShare = 0.9;
// More occurrences of a name than this are not looked at: a name of steps occurs once in each.
constexpr std::size_t kMostSteps = 256;

// Makes periods of kernels whose step is known: [kernel], kNoStep: none. Each ends where the next begins computing.
constexpr std::size_t kNoStep = ~std::size_t{0};
std::vector<Period> periods_of(const RankTrace& trace, const std::vector<std::size_t>& step_of, std::size_t steps) {
  const std::uint32_t compute = compute_stream(trace);
  std::vector<Period> periods(steps);
  std::vector<bool> has_begun(steps, false);
  std::vector<Picoseconds> last(steps, 0);
  for (std::uint32_t i = 0; i < trace.kernels.size(); ++i) {
    if (step_of[i] == kNoStep) continue;
    Period& period = periods[step_of[i]];
    const Kernel& kernel = trace.kernels[i];
    period.kernels.push_back(i);
    last[step_of[i]] = std::max(last[step_of[i]], kernel.end);
    if (kernel.stream != compute || has_begun[step_of[i]]) continue;
    period.begin = kernel.start;
    has_begun[step_of[i]] = true;
  }
  std::vector<Period> found;
  for (std::size_t s = 0; s < steps; ++s) {
    if (!has_begun[s]) continue;
    const bool has_next = s + 1 < steps && has_begun[s + 1];
    // The last step ends with its last kernel: the wait for the next step's first one is not known.
    periods[s].end = has_next ? periods[s + 1].begin : last[s];
    periods[s].is_whole = true;
    found.push_back(std::move(periods[s]));
  }
  return found;
}

std::vector<Period> by_marks(const RankTrace& trace) {
  const auto& marks = trace.marks;
  if (marks.empty()) return {};
  std::vector<std::size_t> step_of(trace.kernels.size(), kNoStep);
  for (std::size_t i = 0; i < trace.kernels.size(); ++i) {
    const Kernel& kernel = trace.kernels[i];
    const Picoseconds at = kernel.launched == kNoTime ? kernel.start : kernel.launched;
    const auto after = std::upper_bound(marks.begin(), marks.end(), at,
                                        [](Picoseconds t, const trace::StepMark& mark) { return t < mark.begin; });
    if (after == marks.begin()) continue;
    const bool is_last = after == marks.end();
    if (is_last && at > marks.back().end) continue;
    step_of[i] = static_cast<std::size_t>(after - marks.begin()) - 1;
  }
  std::vector<Period> found = periods_of(trace, step_of, marks.size());
  // Where the last step ends is not known.
  if (found.size() > 1) found.pop_back();
  return found;
}

using Counts = std::map<std::uint32_t, std::int64_t>;  // [name]

// Returns the share of kernels that two windows have in common.
double equal_share(const Counts& a, const Counts& b) {
  std::int64_t common = 0, all = 0;
  for (const auto& [name, count] : a) {
    const auto found = b.find(name);
    common += found == b.end() ? 0 : std::min(count, found->second);
    all += count;
  }
  std::int64_t other = 0;
  for (const auto& [name, count] : b) other += count;
  return all + other == 0 ? 1 : double(2 * common) / double(all + other);
}

std::vector<Period> by_repetition(const RankTrace& trace) {
  const std::uint32_t compute = compute_stream(trace);
  std::vector<std::uint32_t> sequence;  // kernels of the compute stream
  std::map<std::uint32_t, std::vector<std::size_t>> places;
  for (std::uint32_t i = 0; i < trace.kernels.size(); ++i) {
    if (trace.kernels[i].stream != compute) continue;
    places[trace.kernels[i].name].push_back(sequence.size());
    sequence.push_back(i);
  }
  std::vector<const std::vector<std::size_t>*> candidates;
  std::size_t repeating = 0;
  for (const auto& [name, at] : places) {
    repeating += at.size() >= 2;
    if (at.size() >= 2 && at.size() <= kMostSteps) candidates.push_back(&at);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](auto* a, auto* b) { return a->size() < b->size(); });
  const auto counts = [&](std::size_t begin, std::size_t end) {
    Counts of;
    for (std::size_t i = begin; i < end; ++i) ++of[trace.kernels[sequence[i]].name];
    return of;
  };
  // A name occurs once in a step, or in each of its micro-batches or layers: every n-th place is tried.
  const auto repeats = [&](const std::vector<std::size_t>& cuts) {
    if (cuts.size() == 2 && sequence.size() - cuts[1] < (cuts[1] - cuts[0]) / 2) return false;
    Counts before = counts(cuts[0], cuts[1]);
    if (double(before.size()) < kEqualShare * double(repeating)) return false;
    for (std::size_t i = 1; i + 1 < cuts.size(); ++i) {
      Counts now = counts(cuts[i], cuts[i + 1]);
      if (equal_share(before, now) < kEqualShare) return false;
      before = std::move(now);
    }
    return true;
  };
  constexpr std::size_t kTried = 8;
  for (std::size_t c = 0; c < std::min(kTried, candidates.size()); ++c) {
    const std::vector<std::size_t>& at = *candidates[c];
    std::vector<std::size_t> cuts;
    for (std::size_t n = 1; n <= at.size() / 2; ++n) {
      cuts.clear();
      for (std::size_t i = 0; i < at.size(); i += n) cuts.push_back(at[i]);
      if (repeats(cuts)) break;
      cuts.clear();
    }
    if (cuts.empty()) continue;
    // A step begins after the optimizer's last kernel.
    const auto after_optimizer = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = end; i > begin; --i)
        if (trace.kernels[sequence[i - 1]].cls == KernelClass::optimizer) return i;
      return begin;
    };
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) cuts[i] = after_optimizer(cuts[i], cuts[i + 1]);
    cuts.back() = after_optimizer(cuts.back(), sequence.size());
    std::vector<std::size_t> step_of(trace.kernels.size(), kNoStep);
    std::vector<Picoseconds> begins;
    for (const std::size_t cut : cuts)
      begins.push_back(cut < sequence.size() ? trace.kernels[sequence[cut]].start : trace.kernels.back().start + 1);
    if (!std::is_sorted(begins.begin(), begins.end())) continue;
    for (std::size_t i = 0; i < trace.kernels.size(); ++i) {
      const auto after = std::upper_bound(begins.begin(), begins.end(), trace.kernels[i].start);
      if (after != begins.begin() && after != begins.end())
        step_of[i] = static_cast<std::size_t>(after - begins.begin()) - 1;
    }
    std::vector<Period> found = periods_of(trace, step_of, begins.size() - 1);
    if (found.empty()) continue;
    found.back().end = begins[begins.size() - 1];
    return found;
  }
  return {};
}

}  // namespace

Period all_of(const RankTrace& trace) {
  Period all;
  all.kernels.resize(trace.kernels.size());
  std::iota(all.kernels.begin(), all.kernels.end(), 0u);
  all.begin = trace.kernels.front().start;
  for (const Kernel& kernel : trace.kernels) all.end = std::max(all.end, kernel.end);
  return all;
}

std::uint32_t compute_stream(const RankTrace& trace) {
  std::vector<Picoseconds> computing(trace.streams.size(), 0);
  for (const Kernel& kernel : trace.kernels)
    if (!trace::is_communication(kernel.cls)) computing[kernel.stream] += kernel.length() + 1;
  return static_cast<std::uint32_t>(std::max_element(computing.begin(), computing.end()) - computing.begin());
}

std::vector<Period> find_periods(const RankTrace& trace) {
  std::vector<Period> found = by_marks(trace);
  if (found.empty()) found = by_repetition(trace);
  if (found.empty()) return {all_of(trace)};
  if (found.size() > 1) found.erase(found.begin());
  return found;
}

}  // namespace stretto::diagnose
