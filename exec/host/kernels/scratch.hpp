#pragma once
#include <Eigen/Core>
#include <cstdint>
#include <vector>

namespace stretto::host {

// Returns at least `elements` elements of uninitialised memory, aligned for Eigen, that belongs to the calling thread
// until its next call
// with this T. The memory grows as needed and is kept until the thread ends.
template <class T>
T* thread_scratch(std::int64_t elements) {
  thread_local std::vector<T, Eigen::aligned_allocator<T>> memory;
  if (memory.size() < static_cast<std::size_t>(elements)) {
    memory.clear();  // so that growing copies nothing
    memory.resize(static_cast<std::size_t>(elements));
  }
  return memory.data();
}

}  // namespace stretto::host
