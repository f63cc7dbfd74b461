#pragma once
#include "exec/cuda/device.hpp"
#include "exec/cuda/fault.hpp"
#include "exec/cuda/kernels/stream.hpp"

namespace stretto::cuda {

// Where a kernel says that it found data it cannot work with. Passed to kernels by value.
struct Report {
  Fault* fault;  // null: nobody asks
  std::int32_t op;
  explicit Report(const Stream& stream) : fault(stream.fault), op(stream.op) {}

  __device__ void operator()(Fault::Kind kind, std::int64_t value, std::int64_t at = 0) const {
    if (fault == nullptr) return;
    Pack<std::int32_t, 4> found;
    found.at[0] = static_cast<std::int32_t>(kind);
    found.at[1] = op;
    found.at[2] = static_cast<std::int32_t>(at);
    found.at[3] = static_cast<std::int32_t>(value);
    *pack_at<Pack<std::int32_t, 4>>(fault) = found;
  }
};

}  // namespace stretto::cuda
