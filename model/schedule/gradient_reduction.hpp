#pragma once
#include "model/schedule/schedule.hpp"

namespace stretto {

// Returns whether the operation reduces gradients over data-parallel ranks, those of experts included: a
// reduce-scatter, an all-reduce, or an all-to-all whose parts are summed. Sums over tensor-parallel ranks and of tied
// embeddings are not.
bool reduces_gradients(const Schedule& schedule, const Operation& operation);

}  // namespace stretto
