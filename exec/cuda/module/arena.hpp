#pragma once
#include <cstddef>
#include <cstdint>

namespace stretto::cuda {

// The memory of a rank that its plan lays out, on the current device. Aligned to 256 bytes, not initialised. Not
// copyable nor movable. Work that uses the arena must be done before it is destroyed, and no communicator may still
// have it registered.
class Arena {
 public:
  enum class By {
    cuda,  // cudaMalloc
    nccl,  // ncclMemAlloc: whole pages that other GPUs can map, which NCCL can register
  };
  // `rank`: for messages. Throws Error(runtime) in CUDA's or NCCL's words when the memory does not suffice, or NCCL is
  // too old to allocate memory (2.19).
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
