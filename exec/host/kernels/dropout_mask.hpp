#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "base/rng.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {

// The factors of dropout, 0 or 1 / (1 − probability), as model/ops/dropout.hpp specifies them: Philox4x32-10 words
// (base/rng.hpp) compared with the threshold probability · 2³². A pure function of the constructor's arguments, equal
// in every element type and on every device. Owns copies of all arguments; immutable, so thread-safe. Needs
// 0 < probability < 1. Throws nothing.
class DropoutMask {
 public:
  // `key` is the operand i32[1,3] with that name in work.hpp; it is copied.
  DropoutMask(const Operand& key, double probability, DropoutSite site)
      : site_(static_cast<std::uint32_t>(site)),
        threshold_(static_cast<std::uint64_t>(std::ceil(probability * 4294967296.0))),
        scale_(1 / (1 - probability)) {
    const auto* words = data_of<const std::int32_t>(key);
    key_ = {static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[1])};
    first_sample_ = static_cast<std::uint32_t>(words[2]);
  }

  // Returns the factors of columns [col, col + kSimdWidth) of a row. `sample` counts from 0 in the micro-batch, to
  // which the key adds the number of its first sequence in the global batch. A row is a token or a head's query,
  // depending on the site. A `col` that is a multiple of 4 needs the fewest draws.
  template <class T>
  Simd<T> factors(std::int64_t sample, std::int64_t row, std::int64_t col) const {
    Simd<T> factors;
    for (std::int64_t i = 0; i < kSimdWidth<T>;) {
      const std::array<std::uint32_t, 4> bits =
          philox4x32({static_cast<std::uint32_t>((col + i) / 4), static_cast<std::uint32_t>(row),
                      first_sample_ + static_cast<std::uint32_t>(sample), site_},
                     key_);
      for (std::int64_t j = (col + i) % 4; j < 4 && i < kSimdWidth<T>; ++j, ++i)
        factors[i] = bits[static_cast<std::size_t>(j)] < threshold_ ? T(0) : static_cast<T>(scale_);
    }
    return factors;
  }

 private:
  std::array<std::uint32_t, 2> key_{};
  std::uint32_t first_sample_ = 0, site_;
  std::uint64_t threshold_;
  double scale_;
};

}  // namespace stretto::host
