#pragma once
// Random edits of a schedule or its memory plan, as a wrong rewrite could make them.
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::testing {

struct Mutant {
  Schedule schedule;
  std::optional<MemoryPlan> plan;  // when it is the plan that has been edited
  std::string what;                // "drop edge: dp.all_gather.b3 no longer waits for adamw.b3"
  bool harmless = false;           // by construction
  bool of_instances = false;       // gives values the slots or buffers of others: for verify() alone to find
  std::size_t role = 0;            // whose program was edited
};

// One edit of one kind, both drawn at random among those that are possible.
Mutant mutate(const Schedule& schedule, const MemoryPlan& plan, std::mt19937_64& random);

// An edit of what one rank does that is not a representative; nothing where no rank is folded away, or none differs.
std::optional<Mutant> mutate_folded_rank(const Schedule& schedule, const MemoryPlan& plan, std::mt19937_64& random);

}  // namespace stretto::testing
