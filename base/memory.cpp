#include "base/memory.hpp"

#include <sys/resource.h>
#ifdef __GLIBC__
#endif

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/memory_files.hpp"

namespace stretto {
namespace {

constexpr std::int64_t kUnknown = std::int64_t{1} << 62;

// Returns the number after `word` in a file of the kernel, or `absent` when the file has no such word or no number
// after it ("max").
std::int64_t number_after(const std::string& path, const std::string& word, std::int64_t absent) {
  std::ifstream file(path);
  std::string found;
  std::int64_t number = 0;
  while (!word.empty() && file >> found)
    if (found == word) break;
  return file >> number ? number : absent;
}

std::int64_t status_bytes(const std::string& word) { return number_after("/proc/self/status", word, 0) * 1024; }

}  // namespace

std::int64_t free_memory_of(const std::string& root) {
  const std::int64_t available_KiB = number_after(root + "/proc/meminfo", "MemAvailable:", -1);
  std::int64_t free = available_KiB < 0 ? kUnknown : available_KiB * 1024;
  // A limit of any group above the process's holds too. In a container the process's group is often the root.
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line, group;
  while (std::getline(groups, line))
    if (line.starts_with("0::/")) group = line.substr(3);
  while (true) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    const std::string memory = root + "/sys/fs/cgroup" + group + "/memory.";
    const std::int64_t limit = number_after(memory + "max", "", kUnknown);
    // The kernel drops cached files before it kills processes.
    const std::int64_t used =
        number_after(memory + "current", "", 0) - number_after(memory + "stat", "inactive_file", 0);
    if (limit != kUnknown) free = std::min(free, std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used)));
    if (group.empty()) return free;
    group.resize(group.rfind('/'));
  }
}

std::int64_t free_memory_bytes() { return free_memory_of(""); }

void keep_within_free_memory() {
  const std::int64_t free = free_memory_bytes();
  rlimit limit{};
  if (free == kUnknown || ::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_cur, static_cast<rlim_t>(free + status_bytes("VmData:")));
  ::setrlimit(RLIMIT_DATA, &limit);
}

std::string bytes_text(double bytes) {
  const bool is_large = bytes >= 1 << 30;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", is_large ? 1 : 0, bytes / (is_large ? 1 << 30 : 1 << 20),
                is_large ? "GiB" : "MiB");
  return text;
}

}  // namespace stretto
