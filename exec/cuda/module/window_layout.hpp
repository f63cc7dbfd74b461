#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "exec/cuda/module/communication.hpp"
#include "exec/cuda/nccl_groups.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::cuda {

// Returns, for each group of collectives, a number that stands for the places in the arena that the other members
// reach: the offset of each buffer that the group's collectives read or write, in the order of the calls, and the
// arena's size. NCCL assumes that an address in one member's window is equal in all (its documentation of
// NCCL_WIN_COLL_SYMMETRIC), so only a group whose members have equal numbers may register the arena: pipeline stages
// have plans of their own.
std::map<NcclGroup, std::uint64_t> window_layouts(const BoundProgram& program, const NcclGroups& groups,
                                                  const OperandsOf& operands, std::span<const std::byte> arena);

}  // namespace stretto::cuda
