#pragma once
#include <functional>

#include "model/scenario.hpp"
#include "sim/platform.hpp"
#include "sweep/families.hpp"
#include "sweep/point.hpp"

namespace stretto::sweep {

// Completes a point whose settings read as `scenario`, in two parts. The order is from cheap to dear, and the first
// reason ends it. Both are thread-safe.

// Decides by closed forms that need no schedule of the point: bytes of its state, and the bound of its step, which
// becomes Point::bound_ms. The point is Status::open where they do not decide.
void look_at(Point& point, const Scenario& scenario, const sim::Platform& platform, Families& families);

// Returns whether the point's bound is above `limit_ms`, which makes it Status::slower.
bool is_slower(Point& point, double limit_ms);

// Decides an open point: a bound above `limit_ms` is Status::slower; then come its memory in closed form, its schedule
// with the memory that is planned for it, verification and simulation. Errors of kind input become Status::refused.
void decide(Point& point, const Scenario& scenario, const sim::Platform& platform, Families& families, double limit_ms);

}  // namespace stretto::sweep
