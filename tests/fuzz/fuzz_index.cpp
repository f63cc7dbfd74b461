#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "exec/state/header_json.hpp"
#include "tests/fuzz/heap.hpp"

// The input is a model.safetensors.index.json. Only stretto::Error may be thrown, and the result names no file of
// another folder.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  static const std::string name = "fuzz.index.json";
  const HeapLimit limit(size);
  try {
    for (const auto& [tensor, file] : exec::parse_weight_map({reinterpret_cast<const char*>(data), size}, name))
      if (file.empty() || file == ".." || file.find('/') != std::string::npos) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
