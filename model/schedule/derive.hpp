#pragma once
#include <span>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Adds the waits that follow from data to calls of `free` operations and of operations that share storages with them.
// Operations of `free` stand in no sequence; each has a call of its own. Two calls that share a storage, where one
// is free and one writes the storage, are put in the order of the program: the later call waits for the operation of
// the earlier call that touched the storage last, in this step or in the previous one. A call waits as a whole, with
// its first operation. No wait is added for what a call already knows from its lane, its sequence and the waits of
// others.
//
// Operations that are not free need no such waits among each other: their lanes, sequences and stated waits order them,
// or they touch different elements. A free operation waits for every operation that is not known to be over. Waits
// inside a block are not used as knowledge, so a call may wait for both of two operations that such a wait orders. Call
// this when orders, lanes and sequences are final. A part of a block that is called on several lanes may be cut.
void derive_waits(Schedule& schedule, std::span<const OpId> free);

}  // namespace stretto
