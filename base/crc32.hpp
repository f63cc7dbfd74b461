#pragma once
#include <cstddef>
#include <cstdint>

namespace stretto {

// Returns the CRC-32 of zip and PNG (polynomial 0xedb88320, reflected), as zlib and Python's zlib.crc32 have it. Bit by
// bit: for tests.
inline std::uint32_t crc32(const void* data, std::size_t bytes) {
  std::uint32_t crc = ~0u;
  for (std::size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const unsigned char*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

}  // namespace stretto
