#pragma once
#include <cstdint>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Returns the cores (SMs) that an operation on this communicator holds from start to end, also while it waits for its
// peers: one for each channel with engine `sm`; none when a copy engine or the NIC moves the bytes, or when the rank is
// the only member.
int resident_cores(const Communicator& communicator);

// Returns the cores that a device needs so that all lanes of all its ranks can hold their maximum at once, plus one
// compute operation. With that many cores every request is granted in the end, in any order of requests. So a schedule
// that passes the verifier, which does not model cores, cannot deadlock for lack of them.
std::int64_t cores_needed(const Schedule& schedule);

// Throws Error(input), naming the communicators, when channels hold cores and a device has fewer than cores_needed().
void check_residency(const Schedule& schedule, std::int64_t cores_per_device);

}  // namespace stretto
