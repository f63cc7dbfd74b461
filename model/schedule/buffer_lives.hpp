#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The life of a storage's contents, in host issue order: from the operation that overwrites the whole storage to the
// last operation that accesses it before the next overwrite. Indices into BoundProgram::ops.
struct BufferLife {
  StorageId storage = 0;
  std::uint32_t first = 0, last = 0;
};

// Returns the lives of all storages that operations of the program access and whose contents come and go: activations
// and workspaces. Other storages hold their contents always. Sorted by first operation, then by storage.
std::vector<BufferLife> buffer_lives(const Schedule& schedule, const BoundProgram& program);

}  // namespace stretto
