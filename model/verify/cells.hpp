#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/footprint.hpp"
#include "model/schedule/plan.hpp"

namespace stretto {

// Internal to the verifier: the bytes of all ranks that a program represents, partitioned into cells. All bytes that
// are covered by exactly the same accesses are one cell, wherever they lie and on whatever rank of the class: for
// instance some columns of all rows of a matrix, or the shards of all ranks as far as they cover equal tensors. No
// access covers part of a cell, so one state for each cell is enough, and a class has hardly more cells than one rank.
// Without a plan every storage has its own bytes; with a plan they are bytes of the arena.

constexpr int kInstanceBits = 29;  // bits of CellUse::instance

// Consecutive cells of an access. A contiguous view has one such range; a strided view may have several.
struct CellUse {
  std::uint32_t first = 0, last = 0;  // cells [first, last)
  StorageId storage = 0;
  std::uint16_t access = 0;  // index into Operation::accesses
  AccessMode mode = AccessMode::read;
  bool needs_write = false;  // a read that needs an earlier write in the step
  BufferKind kind = BufferKind::workspace;
  std::uint32_t instance = 0;  // (tensor, layer), numbered through all tensors; slots are not distinguished
};

// Returns [tensor] → CellUse::instance of its layer 0; one more entry at the end.
std::vector<std::uint32_t> number_instances(const Schedule& schedule);

struct Cells {
  std::uint32_t count = 0;
  std::vector<CellUse> uses;         // sorted by footprint, then by access
  std::vector<std::uint32_t> begin;  // [footprint] → first in uses; one more at the end
};

// Throws Error(input) when a view leaves its tensor instance.
Cells cut_into_cells(const Schedule& schedule, const BoundProgram& program, Footprints& footprints,
                     const RolePlan* plan);

}  // namespace stretto
