#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/footprint.hpp"
#include "model/schedule/plan.hpp"

namespace stretto {

// Internal to the verifier: the bytes of all ranks that a program stands for, cut at the ends of all accesses. No
// access covers part of a cell, so that the state of a cell is the state of each of its bytes. Without a plan every
// storage has bytes of its own; with one they are the bytes of the arena. Bytes that the same accesses cover are one
// cell, wherever they are, and on whatever rank of the class: the same columns of all rows of a matrix, for instance,
// or the shards of all ranks as far as they cover equal tensors. So the cells of a class are hardly more than those of
// one rank.

constexpr int kInstanceBits = 29;  // of CellUse::instance

// Consecutive cells of an access: all of a contiguous view; of a strided one there may be several.
struct CellUse {
  std::uint32_t first = 0, last = 0;  // cells [first, last)
  StorageId storage = 0;
  std::uint16_t access = 0;  // index into Operation::accesses
  AccessMode mode = AccessMode::read;
  bool needs_write = false;  // what is read must have been written in the same step
  BufferKind kind = BufferKind::workspace;
  std::uint32_t instance = 0;  // layer of the tensor, whatever the slot; numbered through all tensors
};

// [tensor] → the number of its first instance; one more at the end.
std::vector<std::uint32_t> number_instances(const Schedule& schedule);

struct Cells {
  std::uint32_t count = 0;
  std::vector<CellUse> uses;         // by footprint, then by access
  std::vector<std::uint32_t> begin;  // [footprint] → first in uses; one more at the end
};

// Throws Error(input) when a view leaves its tensor instance.
Cells cut_into_cells(const Schedule& schedule, const BoundProgram& program, Footprints& footprints,
                     const RolePlan* plan);

}  // namespace stretto
