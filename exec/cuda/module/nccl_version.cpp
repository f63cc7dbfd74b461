#include "exec/cuda/module/nccl_version.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "exec/cuda/module/nccl_api.hpp"

namespace stretto::cuda {

int nccl_version() {
  int version = 0;
  return nccl().GetVersion(&version) == ncclSuccess ? version : 0;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void require_nccl_version() {
  const int version = nccl_version();
  if (version / 10000 != NCCL_MAJOR || version < kLeastNccl)
    throw runtime_failure(fmt::format("NCCL {} is installed; expected {} or a later {}.x", version_text(version),
                                      version_text(kLeastNccl), NCCL_MAJOR));
}

}  // namespace stretto::cuda
