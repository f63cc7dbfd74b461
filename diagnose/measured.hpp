#pragma once
#include <string>
#include <vector>

#include "diagnose/account.hpp"
#include "diagnose/lanes.hpp"
#include "diagnose/period.hpp"
#include "predict/predict_step.hpp"
#include "trace/trace.hpp"

namespace stretto::diagnose {

// Compilers fuse what lies between products, so that many operations have no kernel of their own; a step has kernels
// for this share of those that compute.
constexpr double kLeastOperations = 0.25;

// One step of one rank, measured and predicted.
struct MeasuredRank {
  const trace::RankTrace* trace = nullptr;
  bool is_own = false;          // a trace of Stretto's, which names operations
  BoundProgram program;         // of this rank; its indices are those of the rank that it is folded with
  PredictedRank predicted;      // `program` there is the representative's, which has equal indices
  std::vector<Period> periods;  // the steps that were found
  Period period;                // the one of median length, which is diagnosed
  PlacedStep placed;            // its kernels
  Picoseconds clock = 0;        // what this rank's clock lacks to the first rank's; 0 where it is not known
  Account expected, measured;   // of the predicted step and of this one

  std::int64_t rank() const { return program.rank; }
  const trace::Kernel& kernel(const PlacedKernel& placed) const { return trace->kernels[placed.kernel]; }
  Picoseconds length() const { return period.end - period.begin; }
};

// Finds the step of each rank and matches its kernels. The section must not be empty and outlive the result, as must
// the prediction. Throws Error(input) for ranks that the scenario does not have, and for one rank twice.
std::vector<MeasuredRank> measure_ranks(const predict::PredictedStep& step, const trace::Section& section,
                                        trace::Origin origin);

// Sets PlacedKernel::transfer and MeasuredRank::clock. A trace of Stretto's says when bytes began to move. NCCL's
// kernels run from the arrival of their rank on: where several ranks of a group are traced, the last one's arrival is
// the beginning, on clocks that are set by the ends of common collectives (they end on all ranks at about the same
// time); for one rank alone, calls of one operation are assumed to take the shortest one's time, but no less than
// predicted, and the rest is waiting.
void find_transfers(const Schedule& schedule, std::vector<MeasuredRank>& ranks, trace::Origin origin);

// Fills `expected` and `measured`.
void account_for(const Schedule& schedule, std::vector<MeasuredRank>& ranks);

// Returns the key of exposed communication, named "dp reduce_scatter"; of messages "pp messages".
TimeKey key_of_communication(const Schedule& schedule, const Operation& operation);
// Returns an operation's name without the number of a bucket (".b3") or of a piece (".3"): runs with other overlaps
// have other buckets, and cut products into other pieces.
std::string without_part(const std::string& name);
// Returns the name without arguments and templates of a kernel, for people.
std::string short_name(const std::string& kernel);

}  // namespace stretto::diagnose
