#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::testing {

// Jobs of three ranks that are visited by somebody who says random things: a stranger at the rendezvous and at the
// ports of communicators, or a false rank 1 that knows the token and the greeting.
struct HostileReport {
  std::int64_t lived = 0, failed = 0;  // jobs
  std::vector<std::string> wrong;      // "seed 7: …": a stranger had an effect, a job took too long or said nothing
  std::int64_t most_more_bytes = 0;    // of memory than before the first conversation, at any time
  double longest_s = 0;
};
HostileReport run_hostile(std::uint64_t first_seed, int conversations);

}  // namespace stretto::testing
