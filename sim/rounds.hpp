#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "sim/inputs.hpp"

namespace stretto::sim {

// A part [begin, begin + period) of a simulated step, after which the step is in the state in which it was before.
struct Round {
  Picoseconds begin = 0, period = 0;
  // false: of the slowest ranks alone. Others have shorter rounds and wait for them; a longer step takes a period
  // longer, but its breakdown is not known.
  bool is_of_all = true;
};

struct Twins;

// The operations of a step that are equal but for micro-batches that are `micro_batches` apart, from micro-batch `from`
// on: all of a round that does not depend on times. Programs of one role share them. A value type.
class StepTwins {
 public:
  StepTwins(const Schedule& schedule, const std::vector<BoundProgram>& programs, std::int64_t micro_batches,
            std::int64_t from);

  std::int64_t micro_batches() const { return micro_batches_; }
  std::int64_t from() const { return from_; }
  const std::string& why_not() const { return why_not_; }  // "": all programs have twins
  const Twins& of(std::size_t program) const { return *of_[program]; }

 private:
  std::int64_t micro_batches_, from_;
  std::vector<std::shared_ptr<const Twins>> of_;  // [program]
  std::string why_not_;
};

// Looks for a moment t at which a simulated step is in the state in which it is at t + T, but for a round of
// micro-batches: every lane of every rank is at an operation whose twin it is at a period later, or waits for both, and
// whatever is active became ready exactly T apart. Work left of it follows from the operations that were active since
// the first of it began; all of those have twins with all four times exactly T later, and so have all that end in a
// quarter of a period after t. The host issues the operations of the round exactly T later, or at most T later and
// before they can begin. Neither the step before nor the next is active. So a step with a round more has the part
// [t, t + T) once more, and takes T longer. Returns the part; nullopt where the step has none, with the reason in
// `why_not`.
//
// With stragglers (Costs::of_rank) ranks that communicate within a micro-batch make a component, and each component has
// a round of its own. The longest counts: when the slowest component comes to the first communication that it shares
// with others, all faster ones have come to rest before, and wait. With more rounds they come to the same rest earlier,
// so all that follows is as it was, later by the rounds of the slowest (sim/components.hpp).
//
// `timeline` has the rows of all of `inputs.programs`, in order, and `twins` are theirs. The caller guarantees that the
// programs of the longer step begin and end like these and have further rounds like those after micro-batch
// `twins.from()` between: orders of pipelines do, when `twins.micro_batches()` is a multiple of their round.
std::optional<Round> find_round(const SimInputs& inputs, const Timeline& timeline, const StepTwins& twins,
                                std::string& why_not);

}  // namespace stretto::sim
