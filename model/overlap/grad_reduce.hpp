#pragma once
#include <vector>

#include "model/lower/lower.hpp"
#include "model/overlap/gates.hpp"

namespace stretto {

// [role]
std::vector<std::vector<BucketOps>> bucket_ops_by_role(const Lowered& lowered);
// The rewrite of overlap_grad_reduce, which overlap_param_gather includes.
void rewrite_overlap_grad_reduce(Lowered& lowered, const Scenario& scenario, const Gates& gates);

}  // namespace stretto
