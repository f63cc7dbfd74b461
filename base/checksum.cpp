#include "base/checksum.hpp"

#include <fmt/format.h>

namespace stretto {

void Checksum::add(const void* data, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 0x100000001B3;
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t hash = hash_;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * kPrime;
  hash_ = hash;
}

std::string Checksum::digits() const { return fmt::format("{:016x}", hash_); }

}  // namespace stretto
