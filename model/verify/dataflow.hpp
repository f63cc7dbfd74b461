#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// The data-flow check finds rewrites that lost or changed an operation, while verify() finds races. It executes a
// schedule symbolically on all ranks for two steps and gives every array a name that says how the array was computed:
// the kind of the operation with its dimensions, and the names of all operands. Equal names mean equal numbers, bit for
// bit, where sums are in equal order. See docs/verifier.md.

// The order of the terms in Σ x² over the gradient buckets and their shards. Sums over ranks are always in rank order,
// and accumulation into a gradient is always in the order of the schedule.
enum class SumOrder {
  same,  // bucket by bucket: for schedules that cut equal buckets
  any,   // for schedules whose buckets differ: equal elements are summed in another order
};

struct DataFlow {
  // Name of a result → hash of its contents. Results are the learnable arrays (each element as the rank that updates it
  // has it), the scalars and the inputs of every rank.
  std::map<std::string, std::uint64_t> results;
};

// Executes a verified schedule symbolically. The learnable arrays are those of its state map. Optimizer state and
// padding start as zero; token inputs (i32) differ between ranks, other inputs are equal on all. Takes time and memory
// for all ranks of the mesh: use it for small ones, since a rewrite does not depend on their number. Throws
// Error(input) when the schedule cannot be bound or deadlocks.
DataFlow trace_dataflow(const Schedule& schedule, SumOrder order);

// Returns one line for each result that differs or that only one of the two has.
std::vector<std::string> differences(const DataFlow& expected, const DataFlow& actual);

// Returns no lines when `rewritten` computes what `plain` computes. Both must have been verified.
std::vector<std::string> verify_equivalent(const Schedule& plain, const Schedule& rewritten,
                                           SumOrder order = SumOrder::any);

}  // namespace stretto
