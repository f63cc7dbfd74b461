#pragma once
#include <cassert>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "exec/checkpoint.hpp"
#include "exec/data.hpp"
#include "exec/executor.hpp"
#include "exec/host/memory.hpp"
#include "exec/launch/process_group.hpp"
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// What goes into and comes out of the ranks' memory between steps, whatever executor runs them. All functions need
// every lane to be idle.

// A rank's memory, by its number. Made of a function that returns a reference, when all ranks are in this process, or a
// pointer, null for those that are not: what is theirs is left to theirs.
class MemoryOf {
 public:
  template <class Find>
  requires std::is_invocable_v<Find&, std::int64_t> MemoryOf(Find find) {  // NOLINT: a function is one
    if constexpr (std::is_pointer_v<std::invoke_result_t<Find&, std::int64_t>>)
      find_ = std::move(find);
    else
      find_ = [find = std::move(find)](std::int64_t rank) -> host::RankMemory* { return &find(rank); };
  }
  host::RankMemory* find(std::int64_t rank) const { return find_(rank); }
  host::RankMemory& operator()(std::int64_t rank) const {
    host::RankMemory* memory = find_(rank);
    assert(memory != nullptr);
    return *memory;
  }

 private:
  std::function<host::RankMemory*(std::int64_t)> find_;
};
// Of the ranks that an executor has here.
MemoryOf memory_of(Executor& executor);

// All that lasts from step to step becomes 0: parameters, optimizer state, padding.
void clear_state(const Schedule& schedule, const MemoryOf& memory_of);
// Parameters as the state map says. Random numbers are those of (seed, tensor, element), whatever the layout. Optimizer
// state 0; padding 0.
void initialise_state(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of);

// Full tensors, as no parallelism cuts them and without padding of the vocabulary, in f64 whatever the schedule
// computes in (f32 → f64 → f32 is exact).
struct FullTensor {
  std::string name;  // Parameter::full_name() behind prefix_in_files()
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
// "adam.m." or "adam.v." for optimizer state, otherwise "".
inline const char* prefix_in_files(StatePart part) {
  switch (part) {
    case StatePart::adam_m:
      return "adam.m.";
    case StatePart::adam_v:
      return "adam.v.";
    case StatePart::parameters:
    case StatePart::gradients:
    case StatePart::master:
      return "";
  }
  return "";
}
// Each element from the rank that updates it, parameters in their most exact form. Gradients are the reduced ones that
// the optimizer of the last step used. Of ranks in other processes these are got through `processes`: then all
// processes must call this, and rank 0 has the result, the others nothing.
std::vector<FullTensor> gather_state(const Schedule& schedule, const MemoryOf& memory_of, StatePart part,
                                     launch::ProcessGroup* processes = nullptr);
// Into every rank that holds a copy or a shard, parameters in all their forms. Throws Error(input) naming the tensor
// that is missing or has another shape.
void scatter_state(const Schedule& schedule, const MemoryOf& memory_of, StatePart part,
                   const std::function<const FullTensor&(const std::string& full_name)>& find);

// What dropout in a layer is drawn from in a step.
std::uint64_t dropout_key(const Scenario& scenario, std::int64_t step, std::int64_t layer);
// Tokens, targets and keys of dropout of every rank and micro-batch for `step`, and the optimizer's scalars.
void write_batch(const Schedule& schedule, const Scenario& scenario, const TokenSource& source, std::int64_t step,
                 const MemoryOf& memory_of);
void write_hyper(const Schedule& schedule, const Scenario& scenario, std::int64_t step, const MemoryOf& memory_of);

// Linear warm-up, then a cosine from lr to min_lr (Loshchilov & Hutter, arXiv 1608.03983), then min_lr. `step` counts
// from 0.
double learning_rate(const Training& training, std::int64_t step);

struct StepMetrics {
  double loss = 0;           // mean negative log-likelihood per token of the global batch, nats
  double gradient_norm = 0;  // before clipping
};
// Every rank has them.
StepMetrics read_metrics(const Schedule& schedule, const MemoryOf& memory_of, std::int64_t rank = 0);

}  // namespace stretto::exec
