#pragma once
#include <cstdint>
#include <string_view>

namespace stretto {

// Element types. Codes are bytes: e4m3 and e5m2 are fp8 of the OCP 8-bit floating point specification, with 4 and 5
// bits of exponent. An element of e2m1x2 is two codes of e2m1 (OCP microscaling formats), neighbours in a row, the
// first in the low half. A buffer of codes holds their scales too (model/ops/codes.hpp). f16 and i16
// are types of the optimizer's state alone: IEEE binary16 with one scale a tensor, and the lower halves of f32 numbers
// (AdamW in model/ops/adamw.hpp).
enum class Dtype : std::uint8_t { f32, f64, bf16, i32, e4m3, e5m2, e2m1x2, f16, i16 };
constexpr bool is_code(Dtype dtype) { return dtype == Dtype::e4m3 || dtype == Dtype::e5m2 || dtype == Dtype::e2m1x2; }

// Returns the size of an element in bytes.
constexpr std::int64_t bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return 8;
    case Dtype::bf16:
    case Dtype::f16:
    case Dtype::i16:
      return 2;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::e2m1x2:
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
    case Dtype::e5m2:
      return "e5m2";
    case Dtype::e2m1x2:
      return "e2m1x2";
    case Dtype::f16:
      return "f16";
    case Dtype::i16:
      return "i16";
  }
  return "?";
}

}  // namespace stretto
