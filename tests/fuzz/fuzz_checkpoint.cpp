#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "exec/state/tensor_file.hpp"
#include "tests/fuzz/heap.hpp"

// The input is a checkpoint file, or the manifest of one whose shards are missing. Only stretto::Error may be thrown,
// and every tensor must lie inside the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const HeapLimit limit(size);
  try {
    const exec::TensorFile file(ReadFile::of({bytes, bytes + size}, "fuzz.safetensors"),
                                exec::TensorFile::Check::headers);
    unsigned sum = 0;
    std::vector<std::byte> unused;
    for (const exec::StoredTensor& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) __builtin_trap();
      for (const std::byte byte : file.data(tensor, unused)) sum += std::to_integer<unsigned>(byte);
    }
    [[maybe_unused]] volatile unsigned sink = sum;
    for (std::size_t number = 0; number < file.files(); ++number) file.check(number);
  } catch (const Error&) {
  }
  return 0;
}
