#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// When a rank's storage holds something, in host issue order: from the operation that overwrites all of it to the last
// one that accesses it before it is overwritten again. Indices into BoundProgram::ops.
struct BufferLife {
  StorageId storage = 0;
  std::uint32_t first = 0, last = 0;
};

// The lives of all storages that operations of the program access and that come and go: activations and workspaces.
// Others hold something always. By first operation, then by storage.
std::vector<BufferLife> buffer_lives(const Schedule& schedule, const BoundProgram& program);

}  // namespace stretto
