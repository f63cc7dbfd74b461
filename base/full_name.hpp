#pragma once
#include <cstdint>
#include <string>

namespace stretto {

// Returns the name of a learnable array in the whole model, from its name within the layer: "h.3.qkv.weight". An array
// outside the layers, where `layer` is -1, keeps its name.
inline std::string full_name(std::int64_t layer, const std::string& name) {
  return layer < 0 ? name : "h." + std::to_string(layer) + "." + name;
}

}  // namespace stretto
