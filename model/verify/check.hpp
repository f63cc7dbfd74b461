#pragma once
#include <cstddef>
#include <vector>

#include "model/schedule/schedule.hpp"
#include "model/verify/verify.hpp"

namespace stretto {

// The checks that need no bound programs. All violations are `malformed`; returns at most `limit`:
//  - ids (tensors, storages, lanes, communicators, blocks, operations) exist, every tensor instance lies in its
//    storage;
//  - compute lanes carry computation only and communication lanes communication only; waits reach at most one step
//    back;
//  - each operation has the operands that model/ops documents for its kind: number, modes, element types,
//    and view shapes that agree with the kind's dimensions. A vector operand ([1,n] or [n,1] in work.hpp) may be any
//    contiguous view of n elements; lookup tables may have more rows than are used;
//  - a communicator's size is that of its axes, and a collective's elements divide by it unless it is an all_reduce.
std::vector<Violation> check_form(const Schedule& schedule, std::size_t limit);

}  // namespace stretto
