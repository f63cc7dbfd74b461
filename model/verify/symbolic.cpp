#include "model/verify/symbolic.hpp"

#include <algorithm>
#include <cassert>

namespace stretto {
namespace {

// Takes from every operand the run at the current element, cut to the shortest of these runs, and combines them into
// one run of the result.
template <class Combine>
Runs zip(std::span<const Runs> operands, Combine combine) {
  Runs result;
  std::vector<std::size_t> at(operands.size(), 0);
  std::vector<std::int64_t> used(operands.size(), 0);  // elements of operands[o][at[o]]
  std::vector<Run> stretch(operands.size());
  while (true) {
    std::int64_t length = std::numeric_limits<std::int64_t>::max();
    for (std::size_t o = 0; o < operands.size(); ++o) {
      if (at[o] == operands[o].size()) return result;
      stretch[o] = operands[o][at[o]];
      if (stretch[o].index != Run::kUniform) stretch[o].index += used[o];
      length = std::min(length, stretch[o].length - used[o]);
    }
    Run combined = combine(std::span<const Run>(stretch));
    combined.length = length;
    append(result, combined);
    for (std::size_t o = 0; o < operands.size(); ++o) {
      used[o] += length;
      if (used[o] == operands[o][at[o]].length) ++at[o], used[o] = 0;
    }
  }
}

std::int64_t first_index(std::span<const Run> runs) {
  for (const Run& run : runs)
    if (run.index != Run::kUniform) return run.index;
  return Run::kUniform;
}

}  // namespace

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) over a combination that depends on the order.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = hash * 0x9e3779b97f4a7c15u + value + 0xd1b54a32d192ed03u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::int64_t length_of(const Runs& runs) {
  std::int64_t length = 0;
  for (const Run& run : runs) length += run.length;
  return length;
}

void append(Runs& to, Run run) {
  if (run.length == 0) return;
  if (!to.empty() && to.back().hash == run.hash) {
    Run& last = to.back();
    const bool is_uniform = last.index == Run::kUniform;
    if (is_uniform ? run.index == Run::kUniform : run.index == last.index + last.length) {
      last.length += run.length;
      return;
    }
  }
  to.push_back(run);
}

void append(Runs& to, const Runs& runs) {
  for (const Run& run : runs) append(to, run);
}

Runs slice(const Runs& runs, std::int64_t begin, std::int64_t length) {
  Runs result;
  std::int64_t at = 0;  // index of the run's first element
  for (Run run : runs) {
    const std::int64_t from = std::max(begin, at), to = std::min(begin + length, at + run.length);
    if (from < to) {
      if (run.index != Run::kUniform) run.index += from - at;
      at += run.length;
      run.length = to - from;
      result.push_back(run);
    } else {
      at += run.length;
    }
  }
  assert(length_of(result) == length);
  return result;
}

void overwrite(Runs& runs, std::int64_t begin, const Runs& with) {
  const std::int64_t end = begin + length_of(with), length = length_of(runs);
  Runs result = slice(runs, 0, begin);
  append(result, with);
  append(result, slice(runs, end, length - end));
  runs = std::move(result);
}

std::uint64_t fingerprint(const Runs& runs) {
  std::uint64_t hash = runs.size();
  for (const Run& run : runs)
    hash = mix(mix(mix(hash, run.hash), static_cast<std::uint64_t>(run.index)), static_cast<std::uint64_t>(run.length));
  return hash;
}

Runs map_elements(std::uint64_t work, std::span<const Runs> operands) {
  return zip(operands, [&](std::span<const Run> runs) {
    Run result{0, work, first_index(runs)};
    for (const Run& run : runs) {
      const std::int64_t distance = run.index == Run::kUniform ? Run::kUniform : run.index - result.index;
      result.hash = mix(mix(result.hash, run.hash), static_cast<std::uint64_t>(distance));
    }
    return result;
  });
}

Runs sum_elements(std::span<const Runs> operands) {
  return zip(operands, [](std::span<const Run> runs) {
    Run result{0, 0, first_index(runs)};
    for (const Run& run : runs) {
      const bool is_aligned = run.index == Run::kUniform || run.index == result.index;
      result.hash += is_aligned ? run.hash : mix(run.hash, static_cast<std::uint64_t>(run.index - result.index));
    }
    return result;
  });
}

// A run of a family counts as a difference of two hashes, of its end and of its beginning: the differences telescope,
// so that two halves count as the whole.
std::uint64_t sum_over(const Runs& runs) {
  std::uint64_t sum = 0;
  for (const Run& run : runs) {
    if (run.index != Run::kUniform)
      sum += mix(run.hash, static_cast<std::uint64_t>(run.index + run.length)) -
             mix(run.hash, static_cast<std::uint64_t>(run.index));
    else if (run.hash != 0)
      sum += static_cast<std::uint64_t>(run.length) * mix(run.hash, 0);
  }
  return sum;
}

}  // namespace stretto
