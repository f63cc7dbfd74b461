#include "exec/cuda/module/rank.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "base/bf16.hpp"
#include "base/rng.hpp"
#include "exec/cuda/module/check.hpp"

namespace stretto::cuda {
namespace {

// Returns the plan of the host's copy of a rank's visible storages, packed.
RolePlan visible_part(const Schedule& schedule, const RolePlan& plan) {
  RolePlan part;
  part.offset_bytes.assign(schedule.storages.size(), RolePlan::kNowhere);
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    const bool is_visible = is_persistent(storage.kind) || storage.kind == BufferKind::input ||
                            storage.kind == BufferKind::scalar || storage.kind == BufferKind::gradient;
    if (!is_visible || plan.offset_bytes[id] == RolePlan::kNowhere) continue;
    part.offset_bytes[id] = part.bytes;
    part.bytes += (storage.bytes() + 63) / 64 * 64;
  }
  return part;
}

bool belongs_to(BufferKind kind, exec::Executor::Contents part) {
  switch (part) {
    case exec::Executor::Contents::state:
      return is_persistent(kind);
    case exec::Executor::Contents::inputs:
      return kind == BufferKind::input;
    case exec::Executor::Contents::results:
      return kind == BufferKind::scalar;
    case exec::Executor::Contents::all:
      return true;
  }
  return false;
}

}  // namespace

Rank::Rank(const Schedule& schedule, const BoundProgram& program, const RolePlan& plan, Arena::By by)
    : schedule_(schedule),
      plan_(plan),
      arena_(plan.bytes, by, program.rank),
      seen_(schedule, visible_part(schedule, plan)),
      operands_(host::bind_operands(
          schedule, program, [this](StorageId storage) { return arena_.data() + plan_.offset_bytes[storage]; })) {}

void Rank::copy(exec::Executor::Contents part, bool up) {
  for (StorageId id = 0; id < schedule_.storages.size(); ++id) {
    const Storage& storage = schedule_.storages[id];
    if (!seen_.has(id) || !belongs_to(storage.kind, part)) continue;
    std::byte* there = arena_.data() + plan_.offset_bytes[id];
    const auto bytes = static_cast<std::size_t>(storage.bytes());
    check(up ? cudaMemcpy(there, seen_.at(id), bytes, cudaMemcpyHostToDevice)
             : cudaMemcpy(seen_.at(id), there, bytes, cudaMemcpyDeviceToHost),
          "copying between host and device");
  }
}

void Rank::clear(int byte) {
  check(cudaMemset(arena_.data(), byte, static_cast<std::size_t>(plan_.bytes)), "clearing memory");
}

void Rank::write_noise() {
  std::vector<Bf16> noise(1 << 16);
  for (std::size_t i = 0; i < noise.size(); ++i)
    noise[i] = to_bf16(2.0f * static_cast<float>(uniform(1, stretto::stream_of("noise"), i)) - 1.0f);
  const auto bytes = static_cast<std::int64_t>(noise.size() * sizeof(Bf16));
  for (std::int64_t done = 0; done < plan_.bytes;) {
    // The noise comes from the host once, then the device doubles its copy.
    const std::int64_t more = std::min(done == 0 ? bytes : done, plan_.bytes - done);
    const void* from = done == 0 ? static_cast<const void*>(noise.data()) : arena_.data();
    check(cudaMemcpy(arena_.data() + done, from, static_cast<std::size_t>(more),
                     done == 0 ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice),
          "writing to memory");
    done += more;
  }
}

}  // namespace stretto::cuda
