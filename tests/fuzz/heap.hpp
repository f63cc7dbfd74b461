#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/allocator.hpp"

// Limits a reader's heap at any time: kHeapOfInput times its input, some for messages, and what a caller says that the
// reader needs for every input. A caller makes one object and reads within its scope, one at a time; an excess ends the
// program, which libFuzzer reports as a finding.
class HeapLimit {
 public:
  static constexpr std::size_t kHeapOfInput = 16, kMessages = 8192;

  explicit HeapLimit(std::size_t input_bytes, std::size_t for_every_input = 0) {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(&allocated, &freed);
    if (installed == 0) std::abort();
    live = 0;
    most = static_cast<std::ptrdiff_t>(kHeapOfInput * input_bytes + kMessages + for_every_input);
    is_counting = true;
  }
  ~HeapLimit() { is_counting = false; }
  HeapLimit(const HeapLimit&) = delete;
  HeapLimit& operator=(const HeapLimit&) = delete;

 private:
  static void allocated(const volatile void*, std::size_t bytes) {
    if (!is_counting) return;
    live += static_cast<std::ptrdiff_t>(bytes);
    if (live <= most) return;
    is_counting = false;
    std::fprintf(stderr, "%td bytes on the heap, at most %td for this input\n", live, most);
    std::abort();
  }
  static void freed(const volatile void* at) {
    if (is_counting && at != nullptr) live -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(at));
  }

  // libFuzzer has threads of its own.
  static inline thread_local std::ptrdiff_t live = 0, most = 0;
  static inline thread_local bool is_counting = false;
};
