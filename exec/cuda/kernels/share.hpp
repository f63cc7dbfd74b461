#pragma once
#include <cstdint>
#include <span>

#include "exec/comm/local.hpp"
#include "exec/cuda/kernels/stream.hpp"
#include "model/ops/dtype.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

constexpr int kMostMembers = 64;  // members of a group of ranks that share a device

// How a communication kernel uses the device: with `ctas` thread blocks, as many as NCCL would use channels, for at
// least `least_ns`, the time of the link that it stands for (0: as fast as memory).
struct Pace {
  int ctas = 16;
  std::int64_t least_ns = 0;
};

// Starts one member's share of a collective among ranks whose memory is on one device, with the sums of
// local::run_share(), which has the errors too; offsets of experts' rows are in the host's memory. At most
// kMostMembers. Other members' buffers must be ready, and stay until all shares are done.
void run_share(const Collective& collective, Dtype dtype, int member, std::span<const local::Buffers> buffers,
               int phase, const Pace& pace, const Stream& stream);
// Starts one message: `bytes` from one rank's buffer to another's.
void run_message(const void* from, void* to, std::int64_t bytes, const Pace& pace, const Stream& stream);

// Delay a copy engine's work, so that it takes as long as a link: await_clock waits, on one thread, until `least_ns`
// have passed since start_clock. Nothing else on the stream may use its scratch in between.
void start_clock(const Stream& stream);
void await_clock(std::int64_t least_ns, const Stream& stream);

}  // namespace stretto::cuda
