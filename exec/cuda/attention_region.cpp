#include "exec/cuda/attention_region.hpp"

#include <algorithm>

namespace stretto::cuda {
namespace {

// Positions [begin, end) of a sequence.
struct Interval {
  std::int64_t begin = 0, end = 0;
};

// Returns the positions that are held, in their order.
std::vector<Interval> held(const SequenceParts& parts, std::int64_t seq) {
  std::vector<Interval> all;
  for (const SequenceRun& run : runs_of(parts, seq, 1, 0)) all.push_back({run.position, run.position + run.length});
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return all;
}

// Returns how many of the positions are before `end`.
std::int64_t count_before(const std::vector<Interval>& all, std::int64_t end) {
  std::int64_t count = 0;
  for (const Interval& one : all) count += std::clamp(end - one.begin, std::int64_t{0}, one.end - one.begin);
  return count;
}

// Cuts intervals where one of `by` begins or ends: each piece is in one of `by`, or meets none.
std::vector<Interval> cut(const std::vector<Interval>& all, const std::vector<Interval>& by) {
  std::vector<std::int64_t> edges;
  for (const Interval& one : by) edges.insert(edges.end(), {one.begin, one.end});
  std::vector<Interval> pieces;
  for (Interval rest : all) {
    for (const std::int64_t edge : edges)  // ascending
      if (edge > rest.begin && edge < rest.end) {
        pieces.push_back({rest.begin, edge});
        rest.begin = edge;
      }
    pieces.push_back(rest);
  }
  return pieces;
}

// Adds a region to those of earlier queries, or to the last of them where both together are one.
void add(std::vector<AttentionRegion>& regions, const AttentionRegion& next) {
  if (!regions.empty()) {
    AttentionRegion& last = regions.back();
    const std::int64_t keys = last.keys + (last.is_causal ? next.queries : 0);
    if (last.is_causal == next.is_causal && keys == next.keys) {
      last.queries += next.queries;
      last.keys = next.keys;
      return;
    }
  }
  regions.push_back(next);
}

}  // namespace

std::vector<AttentionRegion> regions_of(const Attention& work) {
  if (!work.causal) return {{0, work.query_tokens(), work.key_tokens(), false}};
  const std::vector<Interval> keys = held(work.keys, work.seq);
  std::vector<AttentionRegion> regions;
  std::int64_t first = 0;
  for (const Interval& piece : cut(held(work.queries, work.seq), keys)) {
    const std::int64_t queries = piece.end - piece.begin, seen = count_before(keys, piece.end);
    // A query that is one of the keys sees itself, and the next query one key more.
    const bool is_causal = seen > count_before(keys, piece.begin);
    if (seen > 0) add(regions, {first, queries, seen, is_causal});
    first += queries;
  }
  return regions;
}

bool has_parts(const Attention& work) { return work.queries.count < work.queries.of || work.keys.count < work.keys.of; }

}  // namespace stretto::cuda
