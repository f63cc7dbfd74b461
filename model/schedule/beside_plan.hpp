#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// A part of a device's memory that is in no memory plan, because a library or the driver takes it.
struct BesidePlan {
  std::string what;        // "NCCL"
  std::int64_t bytes = 0;  // of the device
  std::string kind;        // "exact", "measured", "published", "assumed"
  std::string source;      // of the number, or of the formula
};

inline std::int64_t sum_of(const std::vector<BesidePlan>& parts) {
  std::int64_t bytes = 0;
  for (const BesidePlan& part : parts) bytes += part.bytes;
  return bytes;
}

}  // namespace stretto
