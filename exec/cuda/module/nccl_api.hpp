#pragma once
#include <nccl.h>

namespace stretto::cuda {

// The functions of NCCL that are called, without "nccl". The library is loaded by the first call: training on one GPU
// does not need it. It may be older or newer than the header of this build: the structure that configures communicators
// states its own size and version (ncclConfig_t).
#define STRETTO_NCCL_FUNCTIONS(X)                                                                          \
  X(GetVersion)                                                                                            \
  X(GetUniqueId)                                                                                           \
  X(CommInitRankConfig) X(CommFinalize) X(CommDestroy) X(CommAbort) X(CommGetAsyncError) X(GetErrorString) \
      X(GetLastError) X(AllGather) X(ReduceScatter) X(AllReduce) X(Send) X(Recv) X(GroupStart) X(GroupEnd)
// Null where the library lacks them. 2.19: MemAlloc, MemFree, CommRegister, CommDeregister; 2.27: CommWindowRegister,
// CommWindowDeregister; 2.28: AlltoAll (NCCL's release notes).
#define STRETTO_NCCL_LATER_FUNCTIONS(X) \
  X(MemAlloc) X(MemFree) X(CommRegister) X(CommDeregister) X(CommWindowRegister) X(CommWindowDeregister) X(AlltoAll)
struct NcclApi {
#define STRETTO_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  STRETTO_NCCL_FUNCTIONS(STRETTO_MEMBER)
  STRETTO_NCCL_LATER_FUNCTIONS(STRETTO_MEMBER)
#undef STRETTO_MEMBER
};

// Throws Error(runtime) when NCCL cannot be loaded, or lacks a function.
const NcclApi& nccl();

}  // namespace stretto::cuda
