#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/bind.hpp"
#include "trace/trace.hpp"

namespace stretto::diagnose {

// One operation of a sequence, or messages of one group, which one kernel moves.
struct Item {
  std::vector<std::uint32_t> ops;  // indices into BoundProgram::ops
  const Operation* operation = nullptr;
  double us = 0;     // predicted length
  double place = 0;  // predicted start as a share of the step
  double bytes = 0;  // of a communication; 0: not known
};

// One kernel of a sequence.
struct Piece {
  std::uint32_t kernel = 0;  // index into RankTrace::kernels
  trace::KernelClass cls = trace::KernelClass::other;
  trace::Side side = trace::Side::unknown;
  double us = 0;
  double place = 0;  // start as a share of the period
  double bytes = 0;  // of a communication; 0: not known
};

constexpr std::int32_t kNoItem = -1;

// Aligns kernels with operations in the order of both, by dynamic programming (Needleman and Wunsch, J. Mol. Biol.
// 1970, with gaps on both sides, and with one operation for several kernels): a kernel is an operation's first or
// further one, or fits none; an operation may have no kernel. Kinds decide (diagnose/kinds.hpp), then side, bytes and
// length. Only items near a piece's place are tried when the table would exceed 256 MiB. Returns the item of each
// piece, or kNoItem.
std::vector<std::int32_t> align(const std::vector<Item>& items, const std::vector<Piece>& pieces);

}  // namespace stretto::diagnose
