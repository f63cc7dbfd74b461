#pragma once
#include <cstdint>
#include <string>

namespace stretto {

// Memory that this process can still take before the machine, or the control group that it is in, begins to kill: what
// /proc/meminfo calls available, or what the group leaves if that is less. 2^62 where the system does not say.
std::int64_t free_memory_bytes();

// From here on an allocation beyond what is free now fails in this process, which ends it with a line, instead of being
// granted and filling the machine (ulimit -d). Not for processes that reserve more than they use, as with CUDA.
void keep_within_free_memory();

// "1.5 GiB", "12 MiB".
std::string bytes_text(double bytes);

}  // namespace stretto
