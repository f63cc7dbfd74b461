#pragma once
#include <atomic>
#include <cstddef>

#include "tests/fuzz/allocator.hpp"

namespace stretto::fuzz {

// A bound on a reader's memory: no length that an input names may be trusted. While the object lives, an allocation
// beyond 16 times the input's size (and 256 KiB, for messages, and tables of keys and gates) traps, and so do
// allocations whose live sum exceeds `factor` times the size and 1 MiB. At most one object lives at a time.
class Bounded {
 public:
  Bounded(std::size_t size, std::size_t factor) {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    if (installed == 0) __builtin_trap();
    live = 0;
    most_at_once = 16 * size + (std::size_t{256} << 10);
    most = factor * size + (std::size_t{1} << 20);
  }
  ~Bounded() { most_at_once = 0; }
  Bounded(const Bounded&) = delete;
  Bounded& operator=(const Bounded&) = delete;

 private:
  static inline std::atomic<std::size_t> most_at_once = 0, most = 0;  // 0: no object lives
  static inline std::atomic<std::ptrdiff_t> live = 0;

  static void on_malloc(const volatile void*, std::size_t size) {
    if (most_at_once == 0) return;
    live += static_cast<std::ptrdiff_t>(size);
    if (size > most_at_once || live > static_cast<std::ptrdiff_t>(most.load())) __builtin_trap();
  }
  static void on_free(const volatile void* pointer) {
    if (most_at_once != 0 && pointer != nullptr)
      live -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(pointer));
  }
};

}  // namespace stretto::fuzz
