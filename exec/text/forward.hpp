#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/host/memory.hpp"
#include "exec/state/model_state.hpp"
#include "model/scenario.hpp"
#include "model/verify/verify.hpp"

namespace stretto::exec {

// The forward pass of a scenario's model over one sequence, on the calling thread: the operations of its training step
// up to the logits, in one rank without overlap, with the kernels and the rounding of training. Nothing is kept from
// one call to the next, so each costs the whole sequence.
class Forward {
 public:
  // The sequence has `length` tokens, at most the model's seq_length. Experts take all rows that come, since a capacity
  // would make tokens depend on later ones. Throws as build_schedule() does.
  Forward(const Scenario& scenario, std::int64_t length);
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  std::int64_t length() const { return length_; }
  const Schedule& schedule() const { return verified_.schedule; }
  // The memory that holds the parameters, for load_trained().
  MemoryOf memory_of();
  // Returns the logits of the token that follows `tokens`, by token, without padding. Takes 1 to length() tokens.
  // Throws Error(runtime) for a token that the model does not have.
  std::vector<double> logits_after(std::span<const std::int32_t> tokens);

 private:
  std::int64_t length_, vocab_size_;
  VerifiedSchedule verified_;
  BoundProgram program_;
  std::unique_ptr<host::RankMemory> memory_;
  host::BoundOperands operands_;
  std::uint32_t loss_ = 0;  // the operation of the loss, whose first operand is the logits
};

}  // namespace stretto::exec
