#pragma once
#include <cudnn.h>

namespace stretto::cuda {

// The functions of cuDNN that are called, without "cudnn". The library is loaded by the first call: without the library
// our own kernels run attention.
#define STRETTO_CUDNN_FUNCTIONS(X)                                                                                     \
  X(Create) X(Destroy) X(SetStream) X(GetVersion) X(GetErrorString) X(GetLastErrorString) X(BackendCreateDescriptor)   \
  X(BackendDestroyDescriptor) X(BackendSetAttribute) X(BackendGetAttribute) X(BackendFinalize) X(BackendExecute)
struct CudnnApi {
#define STRETTO_MEMBER(name) decltype(&::cudnn##name) name = nullptr;
  STRETTO_CUDNN_FUNCTIONS(STRETTO_MEMBER)
#undef STRETTO_MEMBER
};

// Throws Error(runtime) when cuDNN cannot be loaded, or lacks a function.
const CudnnApi& cudnn();

}  // namespace stretto::cuda
