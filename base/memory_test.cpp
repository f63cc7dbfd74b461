#include "base/memory.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/memory_files.hpp"
#include "tests/temp_dir.hpp"

using namespace stretto;

TEST_CASE("free memory is what the machine and every group of the process leave", "[memory]") {
  const testing::TempDir folder;
  const std::string root = folder.str();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + name).parent_path());
    std::ofstream(root + name) << text;
  };
  CHECK(free_memory_of(root) == std::int64_t{1} << 62);  // nothing says it
  write("/proc/meminfo", "MemTotal: 4000 kB\nMemFree: 100 kB\nMemAvailable: 3000 kB\n");
  CHECK(free_memory_of(root) == 3000 * 1024);
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  CHECK(free_memory_of(root) == 3000 * 1024);
  // The group above has a limit; cached files of it can go.
  write("/sys/fs/cgroup/job/memory.max", "2000000\n");
  write("/sys/fs/cgroup/job/memory.current", "1500000\n");
  CHECK(free_memory_of(root) == 500000);
  write("/sys/fs/cgroup/job/memory.stat", "anon 1200000\ninactive_file 300000\n");
  CHECK(free_memory_of(root) == 800000);
  write("/sys/fs/cgroup/job/step/memory.max", "1000\n");
  write("/sys/fs/cgroup/job/step/memory.current", "4000\n");
  CHECK(free_memory_of(root) == 0);
}
