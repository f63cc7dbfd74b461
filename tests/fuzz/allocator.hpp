#pragma once
#include <cstddef>

// The allocator's interface of the sanitizers' runtime. GCC 12 has these functions, but not LLVM's header
// sanitizer/allocator_interface.h, which declares them.
extern "C" {
// Calls both functions at each allocation and release; 0 when there is no room for further hooks.
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
// Returns how many bytes were asked for at `pointer`, which an allocation returned.
std::size_t __sanitizer_get_allocated_size(const volatile void* pointer);
}
