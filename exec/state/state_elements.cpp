#include "exec/state/state_elements.hpp"

#include <cassert>
#include <cstddef>

#include "base/bf16.hpp"
#include "base/parallel.hpp"

namespace stretto::exec {
namespace {

double value_of(double element) { return element; }
double value_of(float element) { return element; }
double value_of(Bf16 element) { return to_float(element); }
void assign(double& element, double value) { element = value; }
void assign(float& element, double value) { element = static_cast<float>(value); }
void assign(Bf16& element, double value) { element = to_bf16(static_cast<float>(value)); }

// Calls fn(elements) with a span of the run's elements, of their type.
template <class Fn>
void with_elements(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, Fn fn) {
  switch (schedule.storages[run.storage].dtype) {
    case Dtype::f64:
      return fn(memory.view<double>(schedule, run.storage, run.offset, run.elements));
    case Dtype::f32:
      return fn(memory.view<float>(schedule, run.storage, run.offset, run.elements));
    case Dtype::bf16:
      return fn(memory.view<Bf16>(schedule, run.storage, run.offset, run.elements));
    case Dtype::i32:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::e2m1x2:
      break;
  }
  assert(false && "learnable arrays are of a floating type");
}

// Calls act(element, value) for all elements of a run.
template <class Act, class Value>
void for_elements(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, Value* values, Act act) {
  with_elements(schedule, memory, run, [&](auto elements) {
    parallel_for(run.elements, kThreadElements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) act(elements[static_cast<std::size_t>(i)], values[i]);
    });
  });
}

}  // namespace

void read_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, double* values) {
  for_elements(schedule, memory, run, values, [](const auto& element, double& value) { value = value_of(element); });
}

void write_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, const double* values) {
  for_elements(schedule, memory, run, values, [](auto& element, const double& value) { assign(element, value); });
}

StatePart exact_form(const Schedule& schedule, const StatePiece& piece, StatePart part) {
  const bool has_master = schedule.state.buckets[piece.bucket].window(StatePart::master).has_value();
  return part == StatePart::parameters && has_master ? StatePart::master : part;
}

}  // namespace stretto::exec
