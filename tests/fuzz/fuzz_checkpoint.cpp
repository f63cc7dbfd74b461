#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "exec/checkpoint.hpp"
#include "tests/fuzz/heap.hpp"

// The input is a checkpoint file. Only stretto::Error may come out, and every view must lie inside the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const HeapLimit limit(size);
  try {
    const auto checkpoint = exec::Checkpoint::parse({bytes, bytes + size}, "fuzz.safetensors");
    unsigned sum = 0;
    for (const auto& tensor : checkpoint.tensors()) {
      if (checkpoint.find(tensor.name) != &tensor) __builtin_trap();
      for (const std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
    }
    [[maybe_unused]] volatile unsigned sink = sum;
  } catch (const Error&) {
  }
  return 0;
}
