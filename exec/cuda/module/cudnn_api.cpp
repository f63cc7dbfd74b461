#include "exec/cuda/module/cudnn_api.hpp"

#include "exec/cuda/module/library.hpp"

namespace stretto::cuda {

const CudnnApi& cudnn() {
  static const CudnnApi api = [] {
    const Library library("libcudnn.so.9", "cuDNN");
    CudnnApi found;
#define STRETTO_FIND(name) library.find("cudnn" #name, found.name);
    STRETTO_CUDNN_FUNCTIONS(STRETTO_FIND)
#undef STRETTO_FIND
    return found;
  }();
  return api;
}

}  // namespace stretto::cuda
