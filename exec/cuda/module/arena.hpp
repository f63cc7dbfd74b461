#pragma once
#include <cstddef>
#include <cstdint>

namespace stretto::cuda {

// The memory of a rank that its plan lays out, on the current device. Aligned to 256, with whatever was there. Not
// copyable nor movable. What uses it must be done before it is destroyed, and no communicator may have it registered
// any longer.
class Arena {
 public:
  enum class By {
    cuda,  // cudaMalloc
    nccl,  // ncclMemAlloc: of whole pages that other GPUs can map, which is what NCCL can register
  };
  // `rank`: for messages. Throws Error(runtime) in CUDA's or NCCL's words: the memory does not suffice; NCCL is too
  // old to have memory of its own (2.19).
  Arena(std::int64_t bytes, By by, std::int64_t rank);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  By by_;
};

}  // namespace stretto::cuda
