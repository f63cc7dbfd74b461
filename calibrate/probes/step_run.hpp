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
  // Two layers, so that a layer's operations find the caches as another layer leaves them.
  std::int64_t layers = 2;
};
// Returns the scenario of `tp` · dp = `ranks` ranks with one micro-batch each.
Scenario scenario_of(const StepShape& shape, std::int64_t ranks, std::int64_t tp);

// Experts in place of the MLPs of a model in Llama's style: each token goes through two of `experts`, of width `ffn`,
// and through one more as wide, which all share and which has a gate. With `biased` sigmoids choose, with a bias of
// each expert, and experts have GELU in place of SwiGLU.
struct MixtureShape {
  std::int64_t experts = 0, ffn = 0;
  bool biased = false;
};
void add_experts(const MixtureShape& shape, Transformer& model);

// Fills the state. The time of a step does not depend on the weights, as long as nothing overflows or becomes denormal
// (a GPU takes less power for zeros, and may then clock higher); drawing proper weights would take longer than the
// probe. Parameters get small numbers of either sign in both precisions, all other persistent storages zeros.
void fill_state(const Schedule& schedule, host::RankMemory& memory);

// One step, ready to run on links that are not paced, with the times of its operations.
class StepRun {
 public:
  StepRun(const Scenario& scenario, const Machine& machine);
  using Times = TimesByOp;  // times of all instances and ranks
  Times run(Undisturbed& undisturbed);
  void add(const Times& times);  // adds the times of a run
  // Returns one sample for each operation template: the median over instances, ranks and the added runs.
  std::vector<Sample> samples() const { return compute_samples(step_.schedule, times_us_); }
  std::vector<std::string> notes() const { return step_.executor->notes(); }

 private:
  exec::ReadyStep step_;
  Times times_us_;
  int steps_ = 1;  // steps that run for one that is timed
};

}  // namespace stretto::calibrate
