#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/host/kernels/kernels.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"

namespace stretto::host {

// One rank's arena, allocated once from the memory plan: `bytes()` is exactly RolePlan::bytes. Owns its bytes, which
// begin poisoned (NaN in any float type), so that a read of unwritten bytes shows in the results. Has no locks: the
// schedule orders all accesses. Throws Error(runtime) when memory cannot be allocated.
class RankMemory {
 public:
  RankMemory(const Schedule& schedule, const RolePlan& plan);

  // Returns whether this rank holds the storage.
  bool has(StorageId storage) const { return offset_bytes_[storage] != RolePlan::kNowhere; }
  // Returns the first byte of a storage that this rank holds. The pointer is valid as long as this object.
  std::byte* at(StorageId storage) {
    assert(has(storage));
    return arena_.get() + offset_bytes_[storage];
  }
  std::int64_t bytes() const { return bytes_; }

  // Element access for tests, the trainer and checkpoints. `offset` and `elements` are in elements of the storage; T
  // must have the size of the storage's dtype.
  template <class T>
  std::span<T> view(const Schedule& schedule, StorageId storage, std::int64_t offset, std::int64_t elements) {
    assert(bytes_of(schedule.storages[storage].dtype) == static_cast<std::int64_t>(sizeof(T)));
    assert(offset + elements <= schedule.storages[storage].elements);
    static_cast<void>(schedule);
    return {reinterpret_cast<T*>(at(storage)) + offset, static_cast<std::size_t>(elements)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::vector<std::int64_t> offset_bytes_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> arena_;
};

// The operands of all operations of one rank, resolved once: [first[op], first[op + 1]) belong to ops[op]. They point
// into the rank's memory, which must outlive this object.
struct BoundOperands {
  std::vector<std::uint32_t> first;
  std::vector<Operand> operands;
  std::span<const Operand> of(std::uint32_t op) const {
    return {operands.data() + first[op], operands.data() + first[op + 1]};
  }
};
// Resolves the operands. `base` returns the address of the beginning of a storage, on the host or on a device.
BoundOperands bind_operands(const Schedule& schedule, const BoundProgram& program,
                            const std::function<std::byte*(StorageId)>& base);
inline BoundOperands bind_operands(const Schedule& schedule, const BoundProgram& program, RankMemory& memory) {
  return bind_operands(schedule, program, [&](StorageId storage) { return memory.at(storage); });
}

}  // namespace stretto::host
