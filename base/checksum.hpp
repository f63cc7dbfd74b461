#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stretto {

// FNV-1a 64 of consecutive pieces of data.
class Checksum {
 public:
  void add(const void* data, std::size_t bytes);
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::string digits() const;  // 16 hexadecimal digits
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325;
};

}  // namespace stretto
