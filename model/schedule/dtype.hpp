#pragma once
#include <cstdint>
#include <string_view>

namespace stretto {

// Element types. e4m3 is one byte: fp8 of the OCP 8-bit floating point specification, 4 bits of exponent and 3 of
// mantissa. Only ScaledCast reads and writes e4m3, and an e4m3 buffer holds the scales too.
enum class Dtype : std::uint8_t { f32, f64, bf16, i32, e4m3 };

// Returns the size of an element in bytes.
constexpr std::int64_t bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return 8;
    case Dtype::bf16:
      return 2;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::e4m3:
      return 1;
  }
  return 0;
}

// Returns the type of gradients, optimizer state and statistics when operations compute in `dtype`: mixed precision
// (Micikevicius et al., arXiv 1710.03740).
constexpr Dtype accumulation_of(Dtype dtype) { return dtype == Dtype::bf16 ? Dtype::f32 : dtype; }

// Returns the name of the type as the program prints it; "?" for a value outside the enumeration.
constexpr std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::f64:
      return "f64";
    case Dtype::bf16:
      return "bf16";
    case Dtype::i32:
      return "i32";
    case Dtype::e4m3:
      return "e4m3";
  }
  return "?";
}

}  // namespace stretto
