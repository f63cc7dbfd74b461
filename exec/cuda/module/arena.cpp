#include "exec/cuda/module/arena.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>

#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/nccl_api.hpp"
#include "exec/cuda/module/nccl_version.hpp"

namespace stretto::cuda {

Arena::Arena(std::int64_t bytes, By by, std::int64_t rank) : by_(by) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  if (by == By::cuda) {
    check(cudaMalloc(&data_, size), "taking memory");
    return;
  }
  if (nccl().MemAlloc == nullptr || nccl().MemFree == nullptr || nccl().CommRegister == nullptr ||
      nccl().CommDeregister == nullptr)
    throw runtime_failure(fmt::format("rank {}: cluster.nccl_ub needs NCCL 2.19 or later (ncclMemAlloc); {} is there",
                                      rank, version_text(nccl_version())));
  void* data = nullptr;
  if (const ncclResult_t result = nccl().MemAlloc(&data, size); result != ncclSuccess)
    throw runtime_failure(fmt::format("rank {}: ncclMemAlloc of {:.2f} GiB: {} ({})", rank,
                                      static_cast<double>(size) / (1 << 30), nccl().GetErrorString(result),
                                      nccl().GetLastError(nullptr)));
  data_ = static_cast<std::byte*>(data);
}

Arena::~Arena() {
  if (by_ == By::nccl)
    nccl().MemFree(data_);
  else
    cudaFree(data_);
}

}  // namespace stretto::cuda
