#pragma once
#include <cstdint>
#include <string>

namespace stretto {

// Returns how many bytes this process can still take before the machine, or the control group of the process, begins to
// kill processes: "available" of /proc/meminfo, or the rest of the group's limit if that is less. 2^62 where the system
// does not say.
std::int64_t free_memory_bytes();

// Limits this process to the memory that is free now (ulimit -d). A larger allocation then fails and ends the process
// with one line, and does not fill the machine. Not for processes that reserve more than they use, as CUDA does.
void keep_within_free_memory();

// Returns bytes as text: "1.5 GiB", "12 MiB".
std::string bytes_text(double bytes);

}  // namespace stretto
