#pragma once
#include <cstdint>

namespace stretto {

// The pass of an operation. `backward`, which only norms have, is dgrad and wgrad in one operation.
enum class Pass : std::uint8_t { forward, dgrad, wgrad, backward };
const char* name_of(Pass pass);  // "forward", …

}  // namespace stretto
