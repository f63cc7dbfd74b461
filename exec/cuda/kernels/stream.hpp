#pragma once
#include <cstddef>
#include <cstdint>

namespace stretto::cuda {

struct Fault;  // exec/cuda/fault.hpp

// The stream on which a lane launches kernels, and its scratch memory. The scratch belongs to the lane: launches of one
// stream run one after the other. Does not own either.
struct Stream {
  void* stream = nullptr;  // cudaStream_t
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;
  int sms = 1;  // SMs of the device: work is cut into enough blocks for all of them
  // Where kernels report data that they cannot work with, and the operation that they then name.
  Fault* fault = nullptr;
  std::int32_t op = 0;
};
// Kernels cut their work so that they need no more scratch, whatever the shape.
constexpr std::size_t kScratch_bytes = std::size_t{8} << 20;

}  // namespace stretto::cuda
