#pragma once
// For tests of attention under context parallelism: the parts of a sequence that ranks have.
#include <cstdint>
#include <vector>

#include "model/schedule/work.hpp"

namespace stretto::testing {

struct AttentionParts {
  SequenceParts queries, keys;
  bool kv_apart = true;
};

// Returns all that an even number of ranks has as queries and keys of one pass.
inline std::vector<AttentionParts> attention_parts(std::int64_t ranks) {
  std::vector<AttentionParts> all;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    // a ring
    for (std::int64_t other = 0; other < ranks; ++other) all.push_back({{ranks, rank, 1}, {ranks, other, 1}});
    // all keys gathered, or queries cut
    all.push_back({{ranks, rank, 1}, {ranks, 0, ranks}});
  }
  // Ranks exchange heads within two groups that are a ring; all exchange heads.
  for (const std::int64_t group : {std::int64_t{0}, ranks / 2})
    for (const std::int64_t other : {std::int64_t{0}, ranks / 2})
      all.push_back({{ranks, group, ranks / 2}, {ranks, other, ranks / 2}});
  all.push_back({{ranks, 0, ranks}, {ranks, 0, ranks}, false});
  return all;
}

inline Attention of_parts(Attention work, const AttentionParts& parts) {
  work.queries = parts.queries;
  work.keys = parts.keys;
  work.kv_apart = parts.kv_apart;
  return work;
}

}  // namespace stretto::testing
