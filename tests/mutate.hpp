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
  std::optional<MemoryPlan> plan;  // set when the plan has been edited
  std::string what;                // "drop edge: dp.all_gather.b3 no longer waits for adamw.b3"
  bool harmless = false;           // harmless by construction
  bool of_instances = false;       // gives values the slots or buffers of others, which only verify() can find
  std::size_t role = 0;            // role whose program was edited
};

// Makes one edit of one kind, both drawn at random among those that are possible.
Mutant mutate(const Schedule& schedule, const MemoryPlan& plan, std::mt19937_64& random);

// Edits the work of one rank that is not a representative; nothing where no rank is folded away, or none differs.
std::optional<Mutant> mutate_folded_rank(const Schedule& schedule, const MemoryPlan& plan, std::mt19937_64& random);

}  // namespace stretto::testing
