#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {
namespace {

// From one position to the next each pair's cosine and sine follow by one complex product. They are computed anew at
// every position that is a multiple of this number, so that rounding (about 1e-16 a position, in f64) stays below
// 1e-13.
constexpr std::int64_t kAnew = 64;

// Rotation of one pair: the angle at the current position, and its increment for one position.
struct Angle {
  double cos, sin, step_cos, step_sin;
};

// Moves to a position. Positions of a run are visited one after the other. The angle of a position must not depend on
// the run, so the iteration begins at the multiple of kAnew before it.
void move_to(std::int64_t position, bool begins, const Rope& work, Angle* angles) {
  if (begins && position % kAnew != 0)
    for (std::int64_t before = position - position % kAnew; before < position; ++before)
      move_to(before, false, work, angles);
  const std::int64_t half = work.head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    Angle& angle = angles[i];
    if (position % kAnew == 0) {
      const double step = work.scaling.applied_to(std::pow(work.base, -double(i) / double(half))),
                   now = double(position) * step;
      angle = {std::cos(now), std::sin(now), std::cos(step), std::sin(step)};
    } else {
      const double c = angle.cos, s = angle.sin;
      angle.cos = c * angle.step_cos - s * angle.step_sin;
      angle.sin = s * angle.step_cos + c * angle.step_sin;
    }
  }
}

// (a, b) ← (a·cos − b·sin, b·cos + a·sin), where a and b are the halves of a head. A plain loop: halves are shorter
// than kSimdWidth.
template <class T>
void turn(T* head, const T* cos, const T* sin, std::int64_t half) {
  T* other = head + half;
  for (std::int64_t i = 0; i < half; ++i) {
    const T a = head[i], b = other[i];
    head[i] = a * cos[i] - b * sin[i];
    other[i] = b * cos[i] + a * sin[i];
  }
}

// `documents` is null where positions count from the beginning of the sequence.
template <class T>
void rope(const Rope& work, const Operand& qkv, const Operand* documents) {
  const std::int64_t half = work.head_dim / 2, turned = work.heads + work.kv_heads;
  const double direction = work.pass == Pass::forward ? 1 : -1;
  Angle* angles = thread_scratch<Angle>(half);
  T* cos = thread_scratch<T>(2 * half);
  T* sin = cos + half;
  const auto to = [&](std::int64_t position, bool begins) {
    move_to(position, begins, work, angles);
    for (std::int64_t pair = 0; pair < half; ++pair) {
      cos[pair] = static_cast<T>(angles[pair].cos);
      sin[pair] = static_cast<T>(direction * angles[pair].sin);
    }
  };
  const auto turn_row = [&](std::int64_t row) {
    for (std::int64_t head = 0; head < turned; ++head) turn(row_of<T>(qkv, row) + head * work.head_dim, cos, sin, half);
  };
  const std::int64_t tokens = work.parts.tokens(work.seq);  // tokens of a sequence that are held
  if (documents != nullptr) {
    for (std::int64_t sample = 0; sample < work.rows / tokens; ++sample) {
      const std::int32_t* first = row_of<std::int32_t>(*documents, sample);
      for (const SequenceRun& run : runs_of(work.parts, work.seq, work.rows / tokens, sample))
        for (std::int64_t i = 0; i < run.length; ++i) {
          const std::int64_t position = run.position + i;
          to(position - first[position], i == 0 || first[position] == position);
          turn_row(run.row + i);
        }
    }
    return;
  }
  for (const SequenceRun& run : runs_of(work.parts, work.seq, 1, 0))
    for (std::int64_t i = 0; i < std::min(run.length, work.rows - run.row); ++i) {
      to(run.position + i, i == 0);
      for (std::int64_t row = run.row + i; row < work.rows; row += tokens) turn_row(row);
    }
}

}  // namespace

void run_kernel(const Rope& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.by_document ? 2u : 1u) && work.pass != Pass::wgrad && work.head_dim % 2 == 0);
  assert(has_shape(operands[0], work.rows, (work.heads + 2 * work.kv_heads) * work.head_dim));
  assert(operands[0].mode == AccessMode::accumulate);
  const Operand* documents = work.by_document ? &operands[1] : nullptr;
  with_compute_type(operands[0].dtype, [&](auto type) { rope<decltype(type)>(work, operands[0], documents); });
}

}  // namespace stretto::host
