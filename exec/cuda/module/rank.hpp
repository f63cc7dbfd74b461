#pragma once
#include <cstdint>

#include "exec/cuda/module/arena.hpp"
#include "exec/executor.hpp"
#include "exec/host/memory.hpp"
#include "exec/operand.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::cuda {

// A rank's memory on the current device, and the part of it that the host sees. `schedule` and `plan` must outlive it.
class Rank {
 public:
  Rank(const Schedule& schedule, const BoundProgram& program, const RolePlan& plan, Arena::By by);

  const RolePlan& plan() const { return plan_; }
  std::byte* data() const { return arena_.data(); }
  host::RankMemory& seen() { return seen_; }
  std::span<const exec::Operand> operands_of(std::uint32_t op) const { return operands_.of(op); }  // in the arena

  // Copies the storages of a part from the host's memory to the device's, or back. The copy may still be in flight when
  // this returns, and streams do not wait for it.
  void copy(exec::Executor::Contents part, bool up);
  void clear(int byte);
  // Writes different numbers between -1 and 1, in bf16 and f32: GEMMs of equal numbers take less power and run at
  // higher clocks than those of a training step, where another algorithm may then be the fastest.
  void write_noise();

 private:
  const Schedule& schedule_;
  const RolePlan& plan_;
  Arena arena_;
  host::RankMemory seen_;
  host::BoundOperands operands_;
};

}  // namespace stretto::cuda
