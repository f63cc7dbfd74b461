#include <cmath>

#include "exec/cuda/kernels/attention_rows.hpp"
#include "exec/cuda/kernels/launch.hpp"

namespace stretto::cuda {
namespace {

constexpr int kPack = 8;  // bf16 in 16 bytes

enum class Move { copy, add, clear };

// Each thread has a pack of columns, in several rows.
template <Move kMove>
__global__ void tokens_kernel(TokenRange range, std::int64_t packs, TokenRows from, TokenRows to) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const auto at = [&](const TokenRows& rows, std::int64_t sample, std::int64_t token) {
    return reinterpret_cast<bf16*>(rows.data) + rows.order.row_of(sample, token) * rows.ld + pack * kPack;
  };
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < to.order.batch * range.count;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const std::int64_t sample = row / range.count, token = range.first + row % range.count;
    float x[kPack] = {};
    if (kMove != Move::clear) load(x, at(from, sample, token));
    if (kMove == Move::add) {
      float sum[kPack];
      load(sum, at(to, sample, token));
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] += sum[i];
    }
    store(at(to, sample, token), x);
  }
}

template <Move kMove>
void launch_tokens(const TokenRows& from, const TokenRows& to, const TokenRange& range, std::int64_t cols,
                   const Stream& stream) {
  const Tiling t = tile(to.order.batch * range.count, cols / kPack);
  launch(stream, t.grid, t.block, tokens_kernel<kMove>, range, cols / kPack, from, to);
}

// Each thread has a token, in the rows of several heads. Without `from`, writes −∞.
__global__ void unpack_kernel(TokenRange range, const float* from, TokenStatistics to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= range.count) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < to.order.batch * to.heads;
       row += std::int64_t{gridDim.y} * blockDim.y)
    to.data[row * to.ld + to.order.place_of(range.first + i)] =
        from == nullptr ? -INFINITY : from[row * range.count + i];
}
__global__ void pack_kernel(TokenRange range, TokenStatistics from, float* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= range.count) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < from.order.batch * from.heads;
       row += std::int64_t{gridDim.y} * blockDim.y)
    to[row * range.count + i] = from.data[row * from.ld + from.order.place_of(range.first + i)];
}

Tiling tile_of(const TokenStatistics& statistics, const TokenRange& range) {
  return tile(statistics.order.batch * statistics.heads, range.count);
}

}  // namespace

TokenOrder order_of(const SequenceParts& parts, std::int64_t seq, std::int64_t batch) {
  if (parts.of == 1) return order_by_position(batch, seq);
  const std::int64_t part = seq / parts.of;
  return {batch, part * parts.count, part / 2, 2 * parts.count, part};
}
TokenOrder order_by_position(std::int64_t batch, std::int64_t tokens) { return {batch, tokens, tokens, 1, tokens}; }

void copy_tokens(const TokenRows& from, const TokenRows& to, const TokenRange& range, std::int64_t cols,
                 const Stream& stream) {
  launch_tokens<Move::copy>(from, to, range, cols, stream);
}
void add_tokens(const TokenRows& from, const TokenRows& to, const TokenRange& range, std::int64_t cols,
                const Stream& stream) {
  launch_tokens<Move::add>(from, to, range, cols, stream);
}
void clear_tokens(const TokenRows& to, const TokenRange& range, std::int64_t cols, const Stream& stream) {
  launch_tokens<Move::clear>({}, to, range, cols, stream);
}

void pack_statistics(const TokenStatistics& from, float* packed, const TokenRange& range, const Stream& stream) {
  const Tiling t = tile_of(from, range);
  launch(stream, t.grid, t.block, pack_kernel, range, from, packed);
}
void unpack_statistics(const float* packed, const TokenStatistics& to, const TokenRange& range, const Stream& stream) {
  const Tiling t = tile_of(to, range);
  launch(stream, t.grid, t.block, unpack_kernel, range, packed, to);
}
void clear_statistics(const TokenStatistics& to, const TokenRange& range, const Stream& stream) {
  unpack_statistics(nullptr, to, range, stream);
}

}  // namespace stretto::cuda
