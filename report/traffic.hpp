#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"
#include "report/exposure.hpp"

namespace stretto {

// Returns the bytes that an operation's rank sends: over its edge of the ring for a collective (model/ring.hpp), the
// message for a send. 0 for a receive and for compute.
std::int64_t sent_bytes(const Schedule& schedule, const Operation& operation);

// The bytes that a rank sends in a step, mean over ranks.
struct Traffic {
  double sent_bytes = 0;
  // The part that moves while a compute lane computes: for each communicator, the share of its transfer time that is
  // not exposed (report/exposure.hpp).
  double hidden_bytes = 0;
  // SMs (thread blocks) that the largest of the communicators takes from compute; 0: no communicator has channels of
  // its own.
  int ctas = 0;
};

// For the timeline's step, or a longer one (report/exposure.hpp). `mean` is mean_breakdown() of that step.
Traffic traffic_of(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                   const Breakdown& mean, const Repeated& repeated = {});

}  // namespace stretto
