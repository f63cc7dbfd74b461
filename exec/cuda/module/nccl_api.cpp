#include "exec/cuda/module/nccl_api.hpp"

#include "exec/cuda/module/library.hpp"

namespace stretto::cuda {

const NcclApi& nccl() {
  static const NcclApi api = [] {
    const Library library("libnccl.so.2", "NCCL");
    NcclApi found;
#define STRETTO_FIND(name) library.find("nccl" #name, found.name);
    STRETTO_NCCL_FUNCTIONS(STRETTO_FIND)
#undef STRETTO_FIND
#define STRETTO_FIND(name) library.find_if_there("nccl" #name, found.name);
    STRETTO_NCCL_LATER_FUNCTIONS(STRETTO_FIND)
#undef STRETTO_FIND
    return found;
  }();
  return api;
}

}  // namespace stretto::cuda
