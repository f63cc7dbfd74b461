#pragma once
#include <cassert>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "exec/data.hpp"
#include "exec/executor.hpp"
#include "exec/host/memory.hpp"
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// Functions that read and write the ranks' memory between steps, for every executor. Call them only while no step runs.

// Finds a rank's memory. Made from a function that returns a reference, when all ranks are in this process, or a
// pointer, null for ranks of other processes. The functions below skip those ranks: their own processes handle them.
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
// Returns the memory of the ranks that `executor` runs in this process.
MemoryOf memory_of(Executor& executor);

// Sets parameters, optimizer state and padding to 0.
void clear_state(const Schedule& schedule, const MemoryOf& memory_of);
// Draws parameters as the state map says: a pure function of (seed, tensor, element), equal in every layout. Optimizer
// state and padding become 0.
void initialise_state(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of);

// A full tensor: uncut, without padding of the vocabulary, in f64 whatever type the schedule computes in (f32 → f64 →
// f32 is exact).
struct FullTensor {
  std::string name;  // Parameter::full_name() after prefix_in_files()
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
// Returns a parameter of a model without padding, as initialise_state() draws it.
FullTensor initial_tensor(const Parameter& parameter, const Scenario& scenario);
// Returns "adam.m." or "adam.v." for optimizer state, otherwise "".
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
// Reads each element from a rank that updates it; all these ranks must be in this process. Parameters come from the
// master copy if there is one. Gradients are the reduced ones of the last step.
std::vector<FullTensor> gather_state(const Schedule& schedule, const MemoryOf& memory_of, StatePart part);
// Returns an array of the state map that is not of the model, with its first values; nullopt where `full_name` is an
// array of the model.
std::optional<FullTensor> initial_outside_model(const Schedule& schedule, const std::string& full_name);
// Writes to every rank that holds a copy or a shard; parameters to the master copy too. Throws Error(input) naming the
// tensor that is missing or has another shape.
void scatter_state(const Schedule& schedule, const MemoryOf& memory_of, StatePart part,
                   const std::function<const FullTensor&(const std::string& full_name)>& find);

// Returns the 64-bit dropout key of a layer in a step.
std::uint64_t dropout_key(const Scenario& scenario, std::int64_t step, std::int64_t layer);
// Both write inputs of `step` to every rank: write_batch tokens, targets, documents and dropout keys of every
// micro-batch, write_hyper the optimizer's scalars.
void write_batch(const Schedule& schedule, const Scenario& scenario, const TokenSource& source, std::int64_t step,
                 const MemoryOf& memory_of);
void write_hyper(const Schedule& schedule, const Scenario& scenario, std::int64_t step, const MemoryOf& memory_of);

// Returns a linear warm-up, then a decay from lr to min_lr as lr_decay_style says, then min_lr: a cosine (Loshchilov &
// Hutter, arXiv 1608.03983), a line, or warm-up, stable, decay (Hu et al., arXiv 2404.06395); with `constant` lr for
// ever. `step` counts from 0.
double learning_rate(const Training& training, std::int64_t step);

struct StepMetrics {
  double loss = 0;           // mean negative log-likelihood per token of the global batch, nats
  double gradient_norm = 0;  // before clipping
};
// Reads the metrics, which are equal on every rank.
StepMetrics read_metrics(const Schedule& schedule, const MemoryOf& memory_of, std::int64_t rank = 0);

}  // namespace stretto::exec
