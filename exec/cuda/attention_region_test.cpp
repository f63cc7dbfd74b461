#include "exec/cuda/attention_region.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "base/rng.hpp"

namespace stretto::cuda {
namespace {

std::vector<std::int64_t> positions_of(const SequenceParts& parts, std::int64_t seq) {
  std::vector<std::int64_t> all;
  for (const SequenceRun& run : runs_of(parts, seq, 1, 0))
    for (std::int64_t i = 0; i < run.length; ++i) all.push_back(run.position + i);
  std::sort(all.begin(), all.end());
  return all;
}

Attention attention_of(std::int64_t seq, const SequenceParts& queries, const SequenceParts& keys, bool causal = true) {
  Attention work{Pass::forward, 1, 1, 1, seq, 8, causal};
  work.queries = queries;
  work.keys = keys;
  return work;
}

// Checks for every query and key that the regions say what their positions say.
void check_regions(const Attention& work) {
  INFO(describe(Work(work)));
  const std::vector<std::int64_t> queries = positions_of(work.queries, work.seq),
                                  keys = positions_of(work.keys, work.seq);
  std::vector<std::vector<bool>> sees(queries.size(), std::vector<bool>(keys.size()));
  std::int64_t next = 0, keys_before = 0;
  for (const AttentionRegion& region : regions_of(work)) {
    CHECK(region.first_query >= next);
    CHECK(region.keys >= keys_before);
    // A causal region's first query sees a key, or its row of scores would be empty.
    CHECK((!region.is_causal || region.keys >= region.queries));
    next = region.first_query + region.queries;
    keys_before = region.keys;
    for (std::int64_t i = 0; i < region.queries; ++i)
      for (std::int64_t k = 0; k < region.keys - (region.is_causal ? region.queries - 1 - i : 0); ++k)
        sees.at(static_cast<std::size_t>(region.first_query + i)).at(static_cast<std::size_t>(k)) = true;
  }
  CHECK(next == work.query_tokens());
  std::int64_t wrong = 0;
  for (std::size_t q = 0; q < queries.size(); ++q)
    for (std::size_t k = 0; k < keys.size(); ++k) wrong += sees[q][k] != (!work.causal || keys[k] <= queries[q]);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("regions of attention are what positions say, for all pairs of parts") {
  for (const std::int64_t of : {1, 2, 3, 4, 6})
    for (const std::int64_t held_queries : {std::int64_t{1}, of / 2, of})
      for (const std::int64_t held_keys : {std::int64_t{1}, of / 2, of})
        for (std::int64_t q = 0; held_queries > 0 && q + held_queries <= of; ++q)
          for (std::int64_t k = 0; held_keys > 0 && k + held_keys <= of; ++k)
            for (const bool causal : {true, false})
              check_regions(attention_of(of * 6, {of, q, held_queries}, {of, k, held_keys}, causal));
}

TEST_CASE("regions of attention are what positions say, for random parts") {
  for (std::uint64_t i = 0; i < 300; ++i) {
    const auto drawn = [&](std::uint64_t what, std::int64_t end) {
      return static_cast<std::int64_t>(uniform(i, 5, what) * double(end));
    };
    // Queries and keys may be cut differently.
    const auto parts = [&](std::uint64_t what) {
      const std::int64_t of = std::int64_t{1} << drawn(what, 4), count = 1 + drawn(what + 1, of);
      return SequenceParts{of, drawn(what + 2, of - count + 1), count};
    };
    check_regions(attention_of(16 * (1 + drawn(0, 4)), parts(10), parts(20)));
  }
}

TEST_CASE("few regions are enough for context parallelism") {
  constexpr std::int64_t kSeq = 48, kOf = 4, kPart = kSeq / kOf, kChunk = kPart / 2;
  using Regions = std::vector<AttentionRegion>;
  const auto regions = [](std::int64_t query, std::int64_t key, std::int64_t held = 1) {
    return regions_of(attention_of(kSeq, {kOf, query, held}, {kOf, key, held}));
  };
  for (std::int64_t rank = 0; rank < kOf; ++rank)
    for (std::int64_t other = 0; other < kOf; ++other)
      CHECK(regions(rank, other) == (other == rank  ? Regions{{0, kPart, kPart, true}}
                                     : other < rank ? Regions{{0, kPart, kChunk, false}}
                                                    : Regions{{kChunk, kChunk, kPart, false}}));
  // The tokens of two ranks that exchange heads, and those of all.
  CHECK(regions(0, 0, 2) == Regions{{0, 2 * kPart, 2 * kPart, true}});
  CHECK(regions(2, 0, 2) == Regions{{0, 2 * kPart, kPart, false}});
  CHECK(regions(0, 2, 2) == Regions{{kPart, kPart, 2 * kPart, false}});
  CHECK(regions(0, 0, 4) == Regions{{0, kSeq, kSeq, true}});
  for (std::int64_t rank = 0; rank + 1 < kOf; ++rank)
    CHECK(regions_of(attention_of(kSeq, {kOf, rank, 1}, {kOf, 0, kOf})) ==
          Regions{{0, kChunk, (rank + 1) * kChunk, true}, {kChunk, kChunk, (2 * kOf - rank) * kChunk, true}});
  // The last rank's chunks are neighbours.
  CHECK(regions_of(attention_of(kSeq, {kOf, kOf - 1, 1}, {kOf, 0, kOf})) == Regions{{0, kPart, 5 * kChunk, true}});
  CHECK(has_parts(attention_of(kSeq, {kOf, 0, 1}, {kOf, 0, kOf})));
  CHECK_FALSE(has_parts(attention_of(kSeq, {kOf, 0, kOf}, {kOf, 0, kOf})));
  CHECK_FALSE(has_parts(attention_of(kSeq, {}, {})));
}

}  // namespace stretto::cuda
