#include "exec/host/kernels/codes.hpp"

#include <algorithm>
#include <vector>

namespace stretto::host {
namespace {

// values[cols] of one row of codes.
template <class F>
void read_row(const std::uint8_t* codes, std::int64_t per_byte, std::int64_t cols, float* values) {
  if (per_byte == 1) {
    for (std::int64_t c = 0; c < cols; ++c) values[c] = kValues<F>[codes[c]];
    return;
  }
  for (std::int64_t c = 0; c < cols; c += 2) {
    values[c] = kValues<F>[codes[c / 2] & 15];
    values[c + 1] = kValues<F>[codes[c / 2] >> 4];
  }
}

}  // namespace

void decode(const Codes& codes, std::int64_t first, std::int64_t count, float* numbers) {
  const std::int64_t block = codes.rule().block, cols = codes.cols;
  with_format(codes.format, [&]<class F>(F) {
    // Scales of the columns, or of the columns of squares, stay for the rows of a block.
    thread_local std::vector<float> scales;
    scales.resize(static_cast<std::size_t>(cols));
    std::int64_t scales_of = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t r = first + i;
      float* to = numbers + i * cols;
      read_row<F>(codes.row(r), codes.per_byte(), cols, to);
      if (block == 0) continue;
      if (!codes.is_stacked()) {
        for (std::int64_t c = 0; c < cols; c += block) {
          const float scale = codes.scale_of(r, c);
          for (std::int64_t j = c; j < std::min(c + block, cols); ++j) to[j] *= scale;
        }
        continue;
      }
      if (r / block != scales_of) {
        scales_of = r / block;
        const std::int64_t step = codes.scaling == Scaling::block_128x128 ? block : 1;
        for (std::int64_t c = 0; c < cols; c += step)
          std::fill_n(scales.begin() + c, std::min(step, cols - c), codes.scale_of(r, c));
      }
      for (std::int64_t c = 0; c < cols; ++c) to[c] *= scales[static_cast<std::size_t>(c)];
    }
  });
}

}  // namespace stretto::host
