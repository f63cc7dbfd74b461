#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::testing {

struct MutationReport {
  int mutations = 0;  // mutations of any kind
  int malformed = 0;  // rejected before anything could run them: no kernel takes such operands
  int harmful = 0;    // by the oracle: the result differs, depends on the order, or does not exist
  // by verify() or, where verify() accepts, by comparing data flows; malformed ones included
  int rejected = 0;
  int rejected_by_flow = 0;    // by comparing data flows
  int of_instances = 0;        // harmful ones that give values the slots or buffers of others
  int rejected_unchanged = 0;  // rejected, but the oracle saw the right result in the orders that it tried
  // Harmful but accepted; for those that give values the slots of others, also those that only the data flows show.
  std::vector<std::string> missed;
  std::vector<std::string> false_alarms;  // harmless by construction but rejected, or harmful nevertheless
};

// Mutates verified schedules `count` times and asks verifier and oracle: all modes on two and three ranks, with and
// without bf16 reduction, one and two micro-batches; pipelines with messages of every kind. The oracle is the serial
// executor: two steps in several random legal orders; the result is metrics and parameters, bit by bit.
MutationReport run_mutations(int count, std::uint64_t seed);

// Mutates the work of ranks that are folded away; subjects have one rank a device, so that as many ranks as possible
// are folded.
MutationReport run_folded_mutations(int count, std::uint64_t seed);

}  // namespace stretto::testing
