#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/ops/dtype.hpp"

namespace stretto::sim {

// Kinds of products by the types of their factors. A platform has a table for each kind. The types of low precision are
// codes with scales (model/ops/codes.hpp): one for a tensor (fp8), one for each 128 along the axis of
// the sum or for squares of 128 (fp8_block), a byte for each 32 (mxfp8), and e4m3 for each 16 of e2m1 (nvfp4).
enum class ProductType : std::uint8_t { bf16, f32, fp8, fp8_block, mxfp8, nvfp4 };

struct ProductTypeRule {
  const char* name = "?";
  double bytes = 0;    // of an element of a factor, with its share of the scales
  double of_peak = 1;  // peak over that of bf16, where a data sheet has no figure of this type
};
constexpr ProductTypeRule rule_of(ProductType type) {
  switch (type) {
    case ProductType::bf16:
      return {"bf16", 2, 1};
    case ProductType::f32:
      return {"f32", 4, 0.5};
    case ProductType::fp8:
      return {"fp8", 1, 2};
    case ProductType::fp8_block:
      return {"fp8_block", 1 + 4.0 / 128, 2};
    case ProductType::mxfp8:
      return {"mxfp8", 1 + 1.0 / 32, 2};
    case ProductType::nvfp4:
      return {"nvfp4", 0.5 + 1.0 / 16, 4};
  }
  return {};
}
constexpr const char* name_of(ProductType type) { return rule_of(type).name; }  // "bf16", …; "?" beyond the last
std::optional<ProductType> product_type_named(std::string_view name);           // nullopt: no such name
constexpr bool is_low(ProductType type) { return type >= ProductType::fp8; }

// Returns the kind of products whose factors are numbers of this type and no codes.
constexpr ProductType product_type_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? ProductType::bf16 : ProductType::f32;
}

}  // namespace stretto::sim
