#include "cli/heap.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <limits>

namespace stretto::cli {

namespace {

constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;
constexpr std::size_t kReserve_bytes = std::size_t{256} << 20;  // address space; memory is taken when it is touched

}  // namespace

void keep_heap_in_huge_pages() {
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, kReserve_bytes);
  // An allocation for which the heap has no room extends the heap by that padding.
  void* grown = std::malloc(kHugePage_bytes);
  const auto begin =
      (reinterpret_cast<std::uintptr_t>(grown) + kHugePage_bytes - 1) / kHugePage_bytes * kHugePage_bytes;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  std::free(grown);
  mallopt(M_TOP_PAD, kHugePage_bytes);
  // It is not an error where the system has no such pages, or put the allocation elsewhere.
  if (grown != nullptr && begin < end && end - begin <= 2 * kReserve_bytes)
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace stretto::cli
