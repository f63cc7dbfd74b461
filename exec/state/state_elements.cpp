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
    case Dtype::f16:
    case Dtype::i16:
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
  if (run.half == StateRun::Half::lower) {
    const auto lower = memory.view<std::int16_t>(schedule, run.storage, run.offset, run.elements);
    for (std::size_t i = 0; i < lower.size(); ++i) values[i] = float_of(static_cast<float>(values[i]), lower[i]);
    return;
  }
  for_elements(schedule, memory, run, values, [](const auto& element, double& value) { value = value_of(element); });
}

void write_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, const double* values) {
  if (run.half == StateRun::Half::lower) {
    const auto lower = memory.view<std::int16_t>(schedule, run.storage, run.offset, run.elements);
    for (std::size_t i = 0; i < lower.size(); ++i) lower[i] = halves_of(static_cast<float>(values[i])).lower;
    return;
  }
  if (run.half == StateRun::Half::upper) {
    const auto upper = memory.view<Bf16>(schedule, run.storage, run.offset, run.elements);
    for (std::size_t i = 0; i < upper.size(); ++i) upper[i] = halves_of(static_cast<float>(values[i])).upper;
    return;
  }
  for_elements(schedule, memory, run, values, [](auto& element, const double& value) { assign(element, value); });
}

std::vector<StatePart> exact_forms(const Schedule& schedule, const StatePiece& piece, StatePart part) {
  const auto& master = schedule.state.buckets[piece.bucket].window(StatePart::master);
  if (part != StatePart::parameters || !master) return {part};
  if (schedule.storages[master->storage].dtype == Dtype::i16) return {StatePart::parameters, StatePart::master};
  return {StatePart::master};
}

}  // namespace stretto::exec
