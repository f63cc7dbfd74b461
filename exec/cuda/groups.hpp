#pragma once
#include <cstdint>

#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Throws Error(runtime) unless the groups' rows follow one another within the matrix. `offsets`: the host's copy of the
// operand.
void require_groups(const GroupedGemm& work, const std::int32_t* offsets);

}  // namespace stretto::cuda
