#include "exec/host/memory.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/parallel.hpp"

namespace stretto::host {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr unsigned char kPoison = 0xff;  // all bits set is a NaN in f32, f64 and bf16

}  // namespace

void RankMemory::Free::operator()(std::byte* p) const { std::free(p); }

RankMemory::RankMemory(const Schedule& schedule, const RolePlan& plan)
    : offset_bytes_(plan.offset_bytes), bytes_(plan.bytes) {
  const std::size_t size = (static_cast<std::size_t>(plan.bytes) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, size == 0 ? kAlignment : size);
  if (memory == nullptr)
    throw runtime_failure("out of memory: schedule " + schedule.name + " needs " + std::to_string(plan.bytes) +
                          " bytes a rank");
  arena_.reset(static_cast<std::byte*>(memory));
  madvise(memory, size, MADV_HUGEPAGE);  // reduces TLB misses; ignored where it is not supported
  parallel_for(static_cast<std::int64_t>(size), 1 << 24, [&](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte*>(memory) + begin, kPoison, static_cast<std::size_t>(end - begin));
  });
}

BoundOperands bind_operands(const Schedule& schedule, const BoundProgram& program,
                            const std::function<std::byte*(StorageId)>& base) {
  BoundOperands bound;
  bound.first.reserve(program.ops.size() + 1);
  bound.first.push_back(0);
  for (const BoundOp& op : program.ops) {
    const Operation& operation = schedule.operations[op.op];
    for (std::size_t i = 0; i < operation.accesses.size(); ++i) {
      const BoundView view = resolve(schedule, program, op, i);
      const Dtype dtype = schedule.storages[view.storage].dtype;
      bound.operands.push_back({base(view.storage) + view.offset * bytes_of(dtype), dtype, view.rows, view.cols,
                                view.ld, operation.accesses[i].mode});
    }
    bound.first.push_back(static_cast<std::uint32_t>(bound.operands.size()));
  }
  return bound;
}

}  // namespace stretto::host
