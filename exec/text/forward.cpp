#include "exec/text/forward.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <variant>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "model/build_schedule.hpp"

namespace stretto::exec {
namespace {

// Returns the scenario in one rank, with one sequence of `length` tokens as its batch.
Scenario for_forward(const Scenario& given, std::int64_t length) {
  Scenario scenario = given;
  scenario.model.seq_length = length;
  scenario.model.hidden_dropout = scenario.model.attention_dropout = 0;
  scenario.cluster = {};
  scenario.parallel = {};
  scenario.overlap = {};
  scenario.training.recompute = {};
  scenario.training.reset_attention_mask = scenario.training.reset_position_ids = scenario.training.eod_mask_loss =
      false;
  scenario.training.micro_batch_size = scenario.training.global_batch_size = 1;
  return scenario;
}

}  // namespace

Forward::Forward(const Scenario& scenario, std::int64_t length)
    : length_(length),
      vocab_size_(scenario.model.vocab_size),
      verified_(plan_and_verify(build_schedule(for_forward(scenario, length), free_memory_bytes()))),
      program_(bind(verified_.schedule, 0)),
      memory_(std::make_unique<host::RankMemory>(verified_.schedule, verified_.plan.roles[program_.role])),
      operands_(host::bind_operands(verified_.schedule, program_, *memory_)) {
  assert(length <= scenario.model.seq_length);
  host::prepare_blas();
  while (!std::holds_alternative<CrossEntropy>(program_.work_of(loss_))) ++loss_;
}

MemoryOf Forward::memory_of() {
  return MemoryOf([this](std::int64_t) -> host::RankMemory& { return *memory_; });
}

std::vector<double> Forward::logits_after(std::span<const std::int32_t> tokens) {
  assert(!tokens.empty() && static_cast<std::int64_t>(tokens.size()) <= length_);
  for (std::uint32_t op = 0; op < loss_; ++op) {
    const Work& work = program_.work_of(op);
    assert(!is_communication(work));
    const auto operands = operands_.of(op);
    if (std::holds_alternative<Embedding>(work)) {
      // No token depends on later tokens, so the rest may be any.
      auto* ids = static_cast<std::int32_t*>(operands.front().data);
      std::fill_n(ids, length_, 0);
      std::copy(tokens.begin(), tokens.end(), ids);
    }
    host::run_work(work, operands);
  }
  const Operand& all = operands_.of(loss_).front();
  const std::int64_t row = static_cast<std::int64_t>(tokens.size()) - 1;
  const std::byte* from = static_cast<const std::byte*>(all.data) + row * all.ld * bytes_of(all.dtype);
  std::vector<double> logits(static_cast<std::size_t>(vocab_size_));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const std::byte* at = from + i * static_cast<std::size_t>(bytes_of(all.dtype));
    if (all.dtype == Dtype::f64) {
      std::memcpy(&logits[i], at, sizeof(double));
    } else if (all.dtype == Dtype::f32) {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      logits[i] = value;
    } else {
      assert(all.dtype == Dtype::bf16);
      Bf16 value;
      std::memcpy(&value, at, sizeof value);
      logits[i] = to_float(value);
    }
  }
  return logits;
}

}  // namespace stretto::exec
