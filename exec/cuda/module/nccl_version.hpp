#pragma once
#include <string>

namespace stretto::cuda {

// Versions as NCCL writes them: 22809 is 2.28.9.
// has ncclConfig_t::maxCTAs and cgaClusterSize; all other required functions are older
constexpr int kLeastNccl = 21700;
constexpr int kNcclWithZeroCta = 22800;  // has collectives by copy engines (NCCL_CTA_POLICY_ZERO)

// Returns the version of the loaded library; 0 where it does not say. Throws Error(runtime) as nccl().
int nccl_version();
std::string version_text(int version);
// Throws Error(runtime) when NCCL is too old, or of another major version than the header of this build.
void require_nccl_version();

}  // namespace stretto::cuda
