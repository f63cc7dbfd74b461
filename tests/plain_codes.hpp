#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/scaling.hpp"
#include "model/ops/codes.hpp"

// Shared by tests of low precision.
namespace stretto::testing {

using Bytes = std::vector<std::uint8_t>;

// A plain description of codes: number by number, with no strips and no tables.
struct PlainCodes {
  PlainCodes(Dtype format_, Scaling scaling_, ScaledAlong along_, std::int64_t rows_, std::int64_t cols_,
             std::vector<float> numbers)
      : format(format_), scaling(scaling_), along(along_), rows(rows_), cols(cols_), x(std::move(numbers)) {
    for (const float number : x) tensor_amax = larger_magnitude(tensor_amax, number);
    tensor_scale = scale_of_amax(tensor_amax, largest());
  }
  Dtype format;
  Scaling scaling;
  ScaledAlong along;
  std::int64_t rows, cols;
  std::vector<float> x;  // [rows][cols]
  float tensor_amax = 0, tensor_scale = 1;
  std::function<std::uint32_t(std::int64_t, std::int64_t)> word = {};  // of a number, for stochastic rounding
  mutable std::vector<float> amaxes = {};  // of blocks, at their first number; −1: not known yet

  float at(std::int64_t r, std::int64_t c) const { return x[static_cast<std::size_t>(r * cols + c)]; }
  float largest() const { return format == Dtype::e4m3 ? 448.0f : format == Dtype::e5m2 ? 57344.0f : 6.0f; }
  std::uint8_t cast(float value) const {
    return format == Dtype::e4m3   ? to_code<E4m3>(value)
           : format == Dtype::e5m2 ? to_code<E5m2>(value)
                                   : to_code<E2m1>(value);
  }
  // The largest magnitude of the block that has (r, c).
  float amax_at(std::int64_t r, std::int64_t c) const {
    const ScalingRule rule = rule_of(scaling);
    const bool down = rule.is_square || along == ScaledAlong::columns, across = rule.is_square || !down;
    const std::int64_t top = down ? r / rule.block * rule.block : r, left = across ? c / rule.block * rule.block : c;
    if (amaxes.empty()) amaxes.assign(x.size(), -1);
    float& amax = amaxes[static_cast<std::size_t>(top * cols + left)];
    if (!(amax < 0)) return amax;
    amax = 0;
    for (std::int64_t i = top; i < std::min(down ? top + rule.block : top + 1, rows); ++i)
      for (std::int64_t j = left; j < std::min(across ? left + rule.block : left + 1, cols); ++j)
        amax = larger_magnitude(amax, at(i, j));
    return amax;
  }
  Bytes scale_at(std::int64_t r, std::int64_t c) const {
    if (scaling == Scaling::mx) return {mx_scale(amax_at(r, c), largest())};
    if (rule_of(scaling).scale_bytes == 1) return {nv_block_scale(amax_at(r, c), nv_tensor_scale(tensor_amax)).code};
    const float inverse = 1 / scale_of_amax(amax_at(r, c), largest(), true);
    Bytes bytes(4);
    std::memcpy(bytes.data(), &inverse, 4);
    return bytes;
  }
  std::uint8_t code_at(std::int64_t r, std::int64_t c) const {
    if (scaling == Scaling::tensor) return cast(at(r, c) * tensor_scale);
    if (scaling == Scaling::mx) return cast(at(r, c) * inverse_of_scale(scale_at(r, c)[0]));
    if (rule_of(scaling).scale_bytes == 1) {
      const float y = at(r, c) * nv_block_scale(amax_at(r, c), nv_tensor_scale(tensor_amax)).factor;
      return word ? to_code_stochastically<E2m1>(y, word(r, c)) : cast(y);
    }
    return cast(at(r, c) * scale_of_amax(amax_at(r, c), largest(), true));
  }
  // The number without the tensor's factor, which inverse() is.
  float number_at(std::int64_t r, std::int64_t c) const {
    const std::uint8_t code = code_at(r, c);
    const float value = format == Dtype::e4m3   ? from_code<E4m3>(code)
                        : format == Dtype::e5m2 ? from_code<E5m2>(code)
                                                : from_code<E2m1>(code);
    if (scaling == Scaling::tensor) return value;
    const Bytes scale = scale_at(r, c);
    float factor = 0;
    if (scale.size() == 4)
      std::memcpy(&factor, scale.data(), 4);
    else
      factor = scaling == Scaling::mx ? value_of_scale(scale[0]) : from_code<E4m3>(scale[0]);
    return value * factor;
  }
  float inverse() const {
    return scaling == Scaling::tensor           ? 1 / tensor_scale
           : rule_of(scaling).block == kNvBlock ? nv_tensor_scale(tensor_amax).inverse
                                                : 1.0f;
  }
  Bytes codes() const {
    Bytes all;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) all.push_back(code_at(r, c));
    return all;
  }
  // The stored bytes, as code_shape() describes them.
  Bytes stored() const {
    const ScalingRule rule = rule_of(scaling);
    Bytes all;
    const auto append = [&](const Bytes& more) { all.insert(all.end(), more.begin(), more.end()); };
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; c += format == Dtype::e2m1x2 ? 2 : 1)
        all.push_back(format == Dtype::e2m1x2 ? static_cast<std::uint8_t>(code_at(r, c) | code_at(r, c + 1) << 4)
                                              : code_at(r, c));
      if (rule.block == 0) continue;
      const bool ends = (r + 1) % rule.block == 0 || r + 1 == rows;
      if (scaling == Scaling::block_128x128) {
        for (std::int64_t c = 0; ends && c < cols; c += rule.block) {
          append(scale_at(r, c));
          append(Bytes(static_cast<std::size_t>(std::min(rule.block, cols - c) - 4), 0xee));
        }
      } else if (along == ScaledAlong::rows) {
        for (std::int64_t c = 0; c < cols; c += rule.block) append(scale_at(r, c));
      } else {
        for (std::int64_t c = 0; ends && c < cols; ++c) append(scale_at(r, c));
      }
    }
    return all;
  }
};
}  // namespace stretto::testing
