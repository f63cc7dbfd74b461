#pragma once
#include <span>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Adds the waits that follow from data. Operations of `free` stand in no sequence; each is called alone. Two calls that
// share a storage which one of them writes, and of which one is free, are put in the order of the program: the later
// one waits for the operation of the earlier one that touched the storage last, in this step or in the one before. A
// call waits as a whole, with its first operation, and nothing waits for what it knows already: from its lane, its
// sequence and the waits of others.
//
// Operations that are not free need none of this among themselves: their lanes, sequences and stated waits order them,
// or they touch different elements. A free one waits for all that are not known to be over; waits inside a block say
// nothing here, so both of two that they order may be waited for.
// Comes when orders, lanes and sequences are final. Where a part of a block is called on several lanes it may be cut.
void derive_waits(Schedule& schedule, std::span<const OpId> free);

}  // namespace stretto
