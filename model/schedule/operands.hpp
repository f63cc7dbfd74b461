#pragma once
#include <cstdint>

#include "model/ops/operand_list.hpp"
#include "model/schedule/work.hpp"

namespace stretto {

// Returns the operands of a work. `group_size` is the number of members of the communicator when the work is a
// collective.
OperandList operands_of(const Work& work, std::int64_t group_size);

// Returns whether a written operand of the work may lie on the bytes of a read operand: the kernels read an element, or
// the row that it belongs to, before they write there. A product or attention would read elements that it has
// overwritten.
bool may_be_in_place(const Work& work);

}  // namespace stretto
