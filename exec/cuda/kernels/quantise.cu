#include <algorithm>
#include <cassert>
#include <type_traits>

#include "base/scaling.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/quantise_blocks.hpp"
#include "exec/cuda/kernels/row_groups.hpp"

namespace stretto::cuda {
namespace {

// Codes with one scale a tensor, or one for each group of rows: the z of a grid is the group.

template <int N, class T>
__global__ void amax_kernel(Groups groups, std::int64_t packs, Rows<const T> x, float* partial) {
  const GroupPlace place = groups.place(blockIdx.z);
  float own = 0;
  for (std::int64_t row = place.at + blockIdx.y; row < place.at + place.rows; row += gridDim.y)
    for (std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; pack < packs;
         pack += std::int64_t{gridDim.x} * blockDim.x) {
      float of[N];
      load(of, x.row(row) + pack * N);
#pragma unroll
      for (int n = 0; n < N; ++n) own = max_or_nan(own, magnitude(of[n]));
    }
  const float largest = block_max(own);
  if (threadIdx.x == 0) partial[(std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = largest;
}

// amax[group] = the largest of its `count` partial ones, and of its old value where it is added to. A block a group.
__global__ void largest_kernel(const float* partial, std::int64_t count, bool keeps_old, float* amax) {
  float own = keeps_old ? amax[blockIdx.x] : 0.0f;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own = max_or_nan(own, partial[blockIdx.x * count + i]);
  const float largest = block_max(own);
  if (threadIdx.x == 0) amax[blockIdx.x] = largest;
}

__global__ void update_scale_kernel(UpdateScale work, float largest, float* amaxes, float* history, float* scales) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= work.elements) return;
  if (work.history == 0) {
    scales[i] = scale_of_amax(amaxes[i], largest);
    return;
  }
  float* newest = history + i * work.history;
  float of = amaxes[i];
  for (std::int64_t past = work.history - 1; past > 0; --past) {
    newest[past] = newest[past - 1];
    if (!work.most_recent) of = larger_magnitude(of, newest[past]);
  }
  newest[0] = amaxes[i];
  amaxes[i] = 0;
  scales[i] = delayed_scale(of, scales[i], largest, static_cast<int>(work.margin));
}

// A tile is cast, or copied where it has codes already, and transposed through shared memory: kTile rows, and as many
// columns for each code that a thread reads at once.
constexpr int kTile = 32, kTileThreads = 256;

struct Target {
  unsigned char* data = nullptr;  // nullptr: not written
  std::int64_t ld = 0;
};

// Rows [row, row + kTile) of columns [col, col + kTile · N) are in tile[column][row].
template <int N>
__device__ void store_transposed(const unsigned char (&tile)[kTile * N][kTile + 4], std::int64_t rows,
                                 std::int64_t cols, std::int64_t row, std::int64_t col, const Target& to) {
  constexpr int kPacks = kTile / N;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * N * kPacks; i += kTileThreads) {
    const int c = i / kPacks, r = i % kPacks * N;
    if (col + c >= cols || row + r >= rows) continue;
    Pack<unsigned char, N> pack;
#pragma unroll
    for (int n = 0; n < N; ++n) pack.at[n] = tile[c][r + n];
    *pack_at<Pack<unsigned char, N>>(to.data + (col + c) * to.ld + row + r) = pack;
  }
}

// `across`: tiles along a row. With N = 4 all rows and columns are multiples of 4 and aligned to packs. Rows beyond a
// group's are zeros.
template <int N, class T, class F>
__global__ void cast_tiles_kernel(Groups groups, std::int64_t cols, std::int64_t across, Rows<const T> x,
                                  const float* scales, Target codes, Target transposed, float* inverses,
                                  float* partial) {
  __shared__ unsigned char tile[kTile * N][kTile + 4];
  const GroupPlace place = groups.place(blockIdx.z);
  if (groups.count > 0) {
    if (codes.data != nullptr) codes.data += place.first * codes.ld;
    if (transposed.data != nullptr) transposed = {transposed.data + place.first * cols, place.padded};
  }
  float own = 0;
  const float factor = scales != nullptr ? scales[blockIdx.z] : 1.0f;
  const int lane = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t tiles = (place.padded + kTile - 1) / kTile * across;
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t row = t / across * kTile, col = t % across * (kTile * N);
    for (int r = first; r < kTile; r += kTileThreads / kTile) {
      if (row + r >= place.padded || col + lane * N >= cols) continue;
      Pack<unsigned char, N> pack = {};
      if (row + r >= place.rows) {
        // zeros
      } else if constexpr (std::is_same_v<T, unsigned char>) {
        pack = *pack_at<const Pack<unsigned char, N>>(x.row(row + r) + col + lane * N);
      } else {
        float of[N];
        load(of, x.row(place.at + row + r) + col + lane * N);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          if (partial != nullptr) own = max_or_nan(own, magnitude(of[n]));
          pack.at[n] = to_code<F>(of[n] * factor);
        }
      }
      if (codes.data != nullptr)
        *pack_at<Pack<unsigned char, N>>(codes.data + (row + r) * codes.ld + col + lane * N) = pack;
#pragma unroll
      for (int n = 0; n < N; ++n) tile[lane * N + n][r] = pack.at[n];
    }
    if (transposed.data == nullptr) continue;
    __syncthreads();
    store_transposed<N>(tile, place.padded, cols, row, col, transposed);
    __syncthreads();
  }
  if (inverses != nullptr && blockIdx.x == 0 && threadIdx.x == 0) inverses[blockIdx.z] = 1.0f / factor;
  if (partial == nullptr) return;
  const float largest = block_max(own);
  if (threadIdx.x == 0) partial[std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x] = largest;
}

Target target_of(const exec::Operand* operand) {
  return operand == nullptr ? Target{} : Target{static_cast<unsigned char*>(operand->data), operand->ld};
}
bool is_packable(const Target& target, int n) {
  return target.data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(target.data) % static_cast<std::size_t>(n) == 0 && target.ld % n == 0);
}

// Returns how many blocks of each of `groups` have room for a partial result in the scratch.
std::int64_t fits(const Stream& stream, std::int64_t groups) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(stream.scratch_bytes / sizeof(float)) / groups);
}

void take_largest(const Stream& stream, unsigned groups, std::int64_t count, bool keeps_old, float* amax) {
  launch(stream, {groups, 1, 1}, {1024, 1, 1}, largest_kernel, static_cast<const float*>(stream.scratch), count,
         keeps_old, amax);
}

// `rows` are those of all codes. Returns the number of partial amaxes of a group in the scratch.
template <class T, class F>
std::int64_t cast_tiles(const Stream& stream, const Groups& groups, std::int64_t rows, std::int64_t cols,
                        const Rows<const T>& x, const float* scales, const Target& codes, const Target& transposed,
                        float* inverses, bool records) {
  const auto start = [&]<int N>(std::integral_constant<int, N>) {
    const std::int64_t across = ceil_div(cols, kTile * N), tiles = ceil_div(rows, kTile) * across;
    constexpr auto kernel = cast_tiles_kernel<N, T, F>;
    const std::int64_t resident = ceil_div(resident_blocks(stream, kernel, kTileThreads), groups.grid());
    const std::int64_t blocks = std::min({tiles, resident, fits(stream, groups.grid())});
    launch(stream, {static_cast<unsigned>(blocks), 1, groups.grid()}, {kTileThreads, 1, 1}, kernel, groups, cols,
           across, x, scales, codes, transposed, inverses, records ? static_cast<float*>(stream.scratch) : nullptr);
    return blocks;
  };
  constexpr int N = 4;
  const bool packs = cols % N == 0 && (rows % N == 0 || groups.count > 0) && cuda::is_packable(x, N) &&
                     is_packable(codes, N) && is_packable(transposed, N);
  return packs ? start(std::integral_constant<int, N>{}) : start(std::integral_constant<int, 1>{});
}

}  // namespace

void run_kernel(const Amax& work, std::span<const exec::Operand> operands, const Stream& stream) {
  if (work.hadamard) return amax_of_both(work, operands, stream);
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int widest = 16 / static_cast<int>(sizeof(T));
    Rows<const T> x = rows_of<const T>(operands[0]);
    std::int64_t rows = work.rows, cols = work.cols;
    if (x.ld == cols && work.groups == 0) cols *= std::exchange(rows, 1);
    const Groups groups({work.groups, rows, work.capacity, work.equal}, work.has_offsets() ? &operands[1] : nullptr, 1);
    const auto start = [&]<int N>(std::integral_constant<int, N>) {
      constexpr auto kernel = amax_kernel<N, T>;
      const std::int64_t resident = ceil_div(resident_blocks(stream, kernel, kThreads), groups.grid());
      const std::int64_t most = std::min(resident, fits(stream, groups.grid())),
                         across = std::min(ceil_div(cols / N, kThreads), most),
                         down = std::max<std::int64_t>(1, std::min(rows, most / across));
      launch(stream, {static_cast<unsigned>(across), static_cast<unsigned>(down), groups.grid()}, {kThreads, 1, 1},
             kernel, groups, cols / N, x, static_cast<float*>(stream.scratch));
      take_largest(stream, groups.grid(), across * down, false, static_cast<float*>(operands.back().data));
    };
    if (cols % widest == 0 && cuda::is_packable(x, widest))
      start(std::integral_constant<int, widest>{});
    else
      start(std::integral_constant<int, 1>{});
  });
}

void run_kernel(const UpdateScale& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const auto floats = [&](std::size_t i) { return static_cast<float*>(operands[i].data); };
  const bool keeps = work.history > 0;
  launch(stream, {static_cast<unsigned>(ceil_div(work.elements, kThreads)), 1, 1}, {kThreads, 1, 1},
         update_scale_kernel, work, work.format == Dtype::e5m2 ? E5m2::kMax : E4m3::kMax, floats(0),
         keeps ? floats(1) : nullptr, floats(keeps ? 2 : 1));
}

void run_kernel(const Quantise& work, std::span<const exec::Operand> operands, const Stream& stream) {
  if (work.scaling != Scaling::tensor) return quantise_blocks(work, operands, stream);
  const bool transposes = work.columnwise == ColumnCopy::transposed;
  const std::size_t codes = 2 + work.has_offsets(), inverse = codes + 1 + transposes;
  const Groups groups(work.grouped(), work.has_offsets() ? &operands[2] : nullptr, group_rows_of(work.scaling));
  const std::int64_t rows = work.groups > 0 ? work.codes().rows : work.rows;
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    const auto run_as = [&]<class F>(F) {
      const std::int64_t partial = cast_tiles<T, F>(
          stream, groups, rows, work.cols, rows_of<const T>(operands[0]), static_cast<const float*>(operands[1].data),
          target_of(&operands[codes]), target_of(transposes ? &operands[codes + 1] : nullptr),
          static_cast<float*>(operands[inverse].data), work.records);
      if (work.records)
        take_largest(stream, groups.grid(), partial, true, static_cast<float*>(operands[inverse + 1].data));
    };
    work.format == Dtype::e5m2 ? run_as(E5m2{}) : run_as(E4m3{});
  });
}

void run_kernel(const TransposeCodes& work, std::span<const exec::Operand> operands, const Stream& stream) {
  if (work.scaling != Scaling::tensor) return transpose_blocks(work, operands, stream);
  cast_tiles<unsigned char, E4m3>(stream, Groups({0, work.rows, 0, false}, nullptr, 1), work.rows, work.cols,
                                  rows_of<const unsigned char>(operands[0]), nullptr, {}, target_of(&operands[1]),
                                  nullptr, false);
}

}  // namespace stretto::cuda
