#pragma once
#include <cstdint>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Cores (SMs) of its device that an operation on a communicator holds from its start to its end: those of its channels
// where they are kernels (engine `sm`), none where a copy engine or the NIC moves the bytes or nobody else takes part.
// While it holds them it waits for its peers.
int resident_cores(const Communicator& communicator);

// Cores that a device needs for all of its ranks' lanes to hold at once what they ever hold, and for one compute
// operation besides. With them everything that asks for cores gets them in the end, in whatever order it asks, so that
// a schedule that passes the verifier, which knows nothing of cores, does not deadlock for want of them.
std::int64_t cores_needed(const Schedule& schedule);

// Throws Error(input) naming the communicators where channels are resident and a device has fewer cores than that.
void check_residency(const Schedule& schedule, std::int64_t cores_per_device);

}  // namespace stretto
