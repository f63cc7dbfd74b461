#pragma once
#include <cstdint>
#include <string>

namespace stretto {

// Returns free_memory_bytes() (base/memory.hpp) as the files of the kernel below `root` have it: /proc/meminfo, and the
// limits of the process's control group and of all groups above it. `root` is "" but in tests.
std::int64_t free_memory_of(const std::string& root);

}  // namespace stretto
