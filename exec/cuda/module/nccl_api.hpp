#pragma once
#include <nccl.h>

namespace stretto::cuda {

// The functions of NCCL that are called, without "nccl". The library is loaded by the first call: training on one GPU
// does without it.
#define STRETTO_NCCL_FUNCTIONS(X)                                                                                      \
  X(GetVersion) X(GetUniqueId) X(CommInitRankConfig) X(CommFinalize) X(CommDestroy) X(CommAbort)                       \
  X(CommGetAsyncError) X(GetErrorString) X(GetLastError) X(AllGather) X(ReduceScatter) X(AllReduce) X(Send) X(Recv)    \
  X(GroupStart) X(GroupEnd)
struct NcclApi {
#define STRETTO_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  STRETTO_NCCL_FUNCTIONS(STRETTO_MEMBER)
#undef STRETTO_MEMBER
};

// Throws Error(runtime): NCCL cannot be loaded, or lacks a function.
const NcclApi& nccl();

}  // namespace stretto::cuda
