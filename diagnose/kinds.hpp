#pragma once
#include "model/schedule/schedule.hpp"
#include "trace/trace.hpp"

namespace stretto::diagnose {

// How well a kernel fits an operation, from 0 to 1; below 0: not at all.
struct Fit {
  double first = -1;    // as its first kernel
  double further = -1;  // as a further one: frameworks run one operation as several kernels
};
Fit fit_of(const Operation& operation, trace::KernelClass cls);

// Returns the side of an operation: forward, backward, or unknown for what belongs to neither.
trace::Side side_of(Phase phase);

}  // namespace stretto::diagnose
