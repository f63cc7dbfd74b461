#pragma once
#include <string>

namespace stretto::cuda {

// Versions as NCCL writes them: 22809 is 2.28.9.
constexpr int kLeastNccl = 21700;        // has ncclConfig_t::maxCTAs and cgaClusterSize; what else is needed is older
constexpr int kNcclWithZeroCta = 22800;  // has collectives by copy engines (NCCL_CTA_POLICY_ZERO)

// Of the library that is there; 0 where it does not say. Throws Error(runtime) as nccl().
int nccl_version();
std::string version_text(int version);
// Throws Error(runtime): too old, or of another major version than the header that this was built with.
void require_nccl_version();

}  // namespace stretto::cuda
