#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// Memory of a device that no memory plan covers, because a library or the driver allocates it.
struct OutsidePlan {
  std::string what;        // "NCCL"
  std::int64_t bytes = 0;  // bytes of the device
  std::string kind;        // "exact", "measured", "published", "assumed"
  std::string source;      // source of the number, or of the formula
};

// Returns the bytes of all parts together.
inline std::int64_t sum_of(const std::vector<OutsidePlan>& parts) {
  std::int64_t bytes = 0;
  for (const OutsidePlan& part : parts) bytes += part.bytes;
  return bytes;
}

}  // namespace stretto
