#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/steal.hpp"
#include "calibrate/probes/run.hpp"
#include "exec/ready_step.hpp"
#include "model/scenario.hpp"

namespace stretto::calibrate {

// A model whose training step is a probe.
struct StepShape {
  std::int64_t hidden, heads, seq, micro_batch, vocab;
  std::int64_t query_groups = 0;  // above 0: Llama's style, else GPT-2's
  // Two, so that a layer's operations find the caches as another layer leaves them.
  std::int64_t layers = 2;
};
// Of `tp` · dp = `ranks` ranks with one micro-batch each.
Scenario scenario_of(const StepShape& shape, std::int64_t ranks, std::int64_t tp);

// What a step takes does not depend on what the weights are, as long as nothing overflows or becomes denormal (a GPU
// takes less power for zeros, and may then clock higher); drawing them properly would take longer than the probe. Of
// what lives across steps, parameters get small numbers of either sign in both precisions, all else zeros.
void fill_state(const Schedule& schedule, host::RankMemory& memory);

// One step, ready to run on links that are not paced, and the times of its operations.
class StepRun {
 public:
  StepRun(const Scenario& scenario, const Machine& machine);
  using Times = TimesByOp;  // of all instances and ranks
  Times run(Undisturbed& undisturbed);
  void add(const Times& times);  // of a run
  // A sample an operation template: the median over instances, ranks and the runs that were added.
  std::vector<Sample> samples() const { return compute_samples(step_.schedule, times_us_); }
  std::vector<std::string> notes() const { return step_.executor->notes(); }

 private:
  exec::ReadyStep step_;
  Times times_us_;
  int steps_ = 1;  // run for one that is timed
};

}  // namespace stretto::calibrate
