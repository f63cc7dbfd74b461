#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::testing {

// Runs jobs of three ranks with an intruder that sends random data: a stranger at the rendezvous and at the ports of
// communicators, or a false rank 1 that knows the token and the greeting.
struct HostileReport {
  std::int64_t lived = 0, failed = 0;  // numbers of jobs
  std::vector<std::string> wrong;    // "seed 7: …": a stranger had an effect, a job took too long or reported nothing
  std::int64_t most_more_bytes = 0;  // largest growth of memory since before the first conversation
  double longest_s = 0;
};
HostileReport run_hostile(std::uint64_t first_seed, int conversations);

}  // namespace stretto::testing
