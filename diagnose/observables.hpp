#pragma once
#include <string>
#include <vector>

#include "diagnose/measured.hpp"

namespace stretto::diagnose {

// A step says more than its length: a prediction whose step is right and whose communication is not is right for
// the wrong reason. In milliseconds of one step of one rank.
struct Observables {
  double active_ms = 0;  // any communication moves bytes
  double hidden_ms = 0;  // of it, while an operation computes
  double host_ms = 0;    // nothing runs, or what is next waits for its launch (Part::host)

  double hidden_share() const { return active_ms > 0 ? hidden_ms / active_ms : 0; }
};
Observables predicted_observables(const MeasuredRank& rank);
Observables measured_observables(const MeasuredRank& rank);

// Calls of one communication ("dp reduce_scatter") that were matched.
struct CommunicationCalls {
  std::string name;
  std::int64_t calls = 0;
  double predicted_us = 0, measured_us = 0;  // of one call, while bytes move: mean
  double hidden = 0;                         // share of the measured time while an operation computes
  // Time of calls concurrent with compute over that of equal calls alone (medians); 0: one of both has no call.
  double stretch = 0;
};
// Returns them by measured time, the most first.
std::vector<CommunicationCalls> communication_calls(const Schedule& schedule, const MeasuredRank& rank);

}  // namespace stretto::diagnose
