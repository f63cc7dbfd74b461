#pragma once
#include <functional>
#include <optional>

#include "model/verify/verify.hpp"

namespace stretto {

// Returns whether the schedule is to be verified; sees its plan and its bound step.
using IsWanted = std::function<bool(const Schedule& schedule, const MemoryPlan& plan, const BoundStep& step)>;

// Does what plan_and_verify() does, but returns nullopt, with nothing verified, where the plan says that the schedule
// is not wanted: of a search's schedules many do not fit. Throws as plan_and_verify() does.
std::optional<VerifiedSchedule> plan_and_verify_wanted(Schedule schedule, const IsWanted& is_wanted);

}  // namespace stretto
