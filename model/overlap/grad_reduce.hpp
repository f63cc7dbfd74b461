#pragma once
#include "model/lower/lower.hpp"

namespace stretto {

// The rewrite of overlap_grad_reduce, which overlap_param_gather does as well.
void rewrite_overlap_grad_reduce(Lowered& lowered);

}  // namespace stretto
