#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/measured.hpp"
#include "diagnose/observables.hpp"

namespace stretto::diagnose {

// Why a measured step differs from the predicted one. Each millisecond of the difference has one cause.
enum class Cause : std::uint8_t {
  slower_kernel,
  exposed_communication,
  waiting_for_host,
  straggler,           // one rank is late, or this rank waits for one
  unscheduled_kernel,  // a kernel that the schedule does not have
  moved_kernel,        // kernels of a kind run in another place than the operations of that kind, which have none
  missing_kernel,      // an operation without a kernel: it was fused with another, or did not run
  waiting_for_cores,
};
const char* name_of(Cause cause);  // "slower kernel", …
constexpr int kCauses = 8;

// A part of the difference between the measured and the predicted step, in milliseconds of one step of one rank.
struct Gap {
  Cause cause = Cause::slower_kernel;
  std::string name;                              // "fc1.fprop", "dp reduce_scatter", "rank 3", a kernel
  double predicted_ms = 0, measured_ms = 0;      // of the step's time, without what is the straggler's alone
  double gap_ms = 0;                             // measured − predicted
  std::string detail;                            // "1.8 times as long: 8 calls of 230 instead of 128 us"
  std::string advice;                            // what to try; "" where there is no advice
  std::uint32_t communicator = kNoCommunicator;  // of a communication of the schedule
  bool is_of_rank = false;                       // a straggler that is known
};

// Predicted and measured times of the calls of one operation (one entry of Schedule::operations) on the diagnosed rank.
struct OperationLength {
  std::string name, kind;
  std::int64_t calls = 0, kernels = 0;       // operations that were matched, and their kernels
  double predicted_us = 0, measured_us = 0;  // of one call, mean over the matched calls
};

// The explanation of one rank's step. Of a trace that is no whole step only kernels are compared (`is_whole`), and the
// gaps do not add up to anything.
struct Diagnosis {
  std::int64_t rank = 0;  // the rank whose step is explained: others wait for it
  std::int64_t traced_ranks = 0;
  bool is_whole = true;  // false: no period was found, and only kernels are compared
  double predicted_ms = 0, measured_ms = 0;
  std::vector<double> steps_ms;  // steps of this rank in the trace
  double matched = 0;            // share of the kernels' time that was matched to operations, all ranks
  std::int64_t kernels = 0, matched_kernels = 0, operations = 0, matched_operations = 0;  // of the rank
  std::vector<Gap> gaps;                 // the most first; with a whole step they add up to measured − predicted
  double of_cause[kCauses] = {};         // sums of gaps
  std::vector<OperationLength> lengths;  // by predicted time, the most first
  Observables predicted, measured;       // of a whole step
  std::vector<CommunicationCalls> communication;
  std::vector<std::string> streams, notes;

  double gap_ms() const { return measured_ms - predicted_ms; }
};

// Explains the difference between the measured and the predicted step. The rank whose own work has grown most is
// explained: others wait for it. Where others have the same program, what they do not have in common with it is the
// straggler's; what they have is a slower kernel, or the host. Throws Error(input) when the trace is not one of this
// scenario: less than half of the kernels' time or of the predicted computation is matched, or products have other
// shapes. `on_gpu`: for the advice.
Diagnosis explain(const Schedule& schedule, const std::vector<MeasuredRank>& ranks, const std::string& scenario,
                  bool on_gpu);

}  // namespace stretto::diagnose
