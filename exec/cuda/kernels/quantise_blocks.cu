#include <algorithm>
#include <cassert>
#include <cstdint>
#include <type_traits>

#include "exec/codes.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/philox.hpp"
#include "exec/cuda/kernels/positions.hpp"
#include "exec/cuda/kernels/quantise_blocks.hpp"
#include "exec/cuda/kernels/row_groups.hpp"

namespace stretto::cuda {
namespace {

// Codes with a scale for each block: base/fp8.hpp and base/scaling.hpp are constexpr, so their functions run here, and
// codes and scales are the host's to the bit. A thread has a chunk of numbers along one axis, which every block is a
// multiple of. Copies along rows and along columns are made by a kernel each, which read x once or twice. With groups
// of rows the z of a grid is the group.
constexpr int kChunk = 16;
static_assert(kChunk == kNvBlock);

struct Chunk {
  float at[kChunk];
};
struct CodeChunk {
  std::uint8_t at[kChunk];  // a code each
};

// hadamard16 (base/scaling.hpp).
__device__ inline bool is_negative(int i, int j) {
  const int both = i & j;
  return ((both ^ both >> 1 ^ both >> 2 ^ both >> 3 ^ static_cast<int>(kHadamardSigns >> i)) & 1) != 0;
}
__device__ inline void transform(Chunk& x) {
  float sums[kChunk] = {};
#pragma unroll
  for (int i = 0; i < kChunk; ++i)
#pragma unroll
    for (int j = 0; j < kChunk; ++j) sums[j] += is_negative(i, j) ? -x.at[i] : x.at[i];
#pragma unroll
  for (int j = 0; j < kChunk; ++j) x.at[j] = widened(rounded<bf16>(sums[j] * 0.25f));
}
__device__ inline float largest_of(const Chunk& x) {
  float largest = 0;
#pragma unroll
  for (int n = 0; n < kChunk; ++n) largest = max_or_nan(largest, magnitude(x.at[n]));
  return largest;
}

// The rows of x that are cast: `rows` of them, and zeros up to a whole block. Codes that came, with their scales after
// them, stand for numbers.
template <class T>
struct CastSource {
  Rows<const T> x;
  std::int64_t rows, cols;

  __device__ float at(std::int64_t row, std::int64_t col) const {
    if (row >= rows) return 0;
    if constexpr (std::is_same_v<T, unsigned char>)
      return from_code<E4m3>(x.row(row)[col]) * value_of_scale(x.row(row)[cols + col / kMxBlock]);
    else
      return widened(x.row(row)[col]);
  }
};

// kChunk numbers of a row or of a column.
template <class T>
__device__ Chunk chunk_of_row(const CastSource<T>& x, std::int64_t row, std::int64_t col) {
  Chunk chunk;
#pragma unroll
  for (int n = 0; n < kChunk; ++n) chunk.at[n] = x.at(row, col + n);
  return chunk;
}
template <class T>
__device__ Chunk chunk_of_column(const CastSource<T>& x, std::int64_t row, std::int64_t col, bool hadamard) {
  Chunk chunk;
#pragma unroll
  for (int n = 0; n < kChunk; ++n) chunk.at[n] = x.at(row + n, col);
  if (hadamard) transform(chunk);
  return chunk;
}

// Writes the codes of a chunk as columns [col, col + kChunk) of a row of codes.
__device__ inline void store_chunk(const CodeChunk& codes, const exec::Codes& to, std::int64_t row, std::int64_t col) {
  std::uint8_t* at = to.row(row) + col / to.per_byte();
  Pack<std::uint8_t, kChunk> bytes;
  const int count = to.per_byte() == 2 ? kChunk / 2 : kChunk;
#pragma unroll
  for (int n = 0; n < kChunk; ++n)
    bytes.at[n] = count == kChunk ? codes.at[n]
                  : n < count
                      ? static_cast<std::uint8_t>(codes.at[2 * n % kChunk] | codes.at[(2 * n + 1) % kChunk] << 4)
                      : std::uint8_t{0};
  if (count == kChunk && reinterpret_cast<std::uintptr_t>(at) % kChunk == 0) {
    *pack_at<Pack<std::uint8_t, kChunk>>(at) = bytes;
    return;
  }
  for (int n = 0; n < count; ++n) at[n] = bytes.at[n];
}

// The random words of Quantise (model/schedule/low_precision_work.hpp). Without a key numbers are rounded to nearest.
struct RandomWords {
  const std::int32_t* key = nullptr;
  std::uint32_t site = 0;
  std::int64_t first_row = 0, first_column = 0;
  Positions positions;
  bool by_block = false;  // of groups of rows: by the numbers of a block, which is a chunk

  __device__ static std::uint64_t hash_of(const Chunk& x) {
    exec::BlockHash hash;
    for (int n = 0; n < kChunk; ++n) hash.add(x.at[n]);
    return hash.value;
  }
  // Words of numbers [4 · quarter, 4 · quarter + 4) of the block with this hash.
  __device__ Random4 four_of_block(std::uint64_t hash, int quarter, std::uint32_t copy) const {
    return philox4x32({{static_cast<std::uint32_t>(quarter), static_cast<std::uint32_t>(hash),
                        static_cast<std::uint32_t>(hash >> 32), site + copy}},
                      static_cast<std::uint32_t>(key[0]), static_cast<std::uint32_t>(key[1]));
  }

  __device__ Random4 four(std::int64_t row, std::int64_t column, std::uint32_t copy) const {
    const std::int64_t token = first_row + row;
    return philox4x32(
        {{static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(positions.of(token)),
          static_cast<std::uint32_t>(key[2]) + static_cast<std::uint32_t>(positions.sample(token)), site + copy}},
        static_cast<std::uint32_t>(key[0]), static_cast<std::uint32_t>(key[1]));
  }
};
template <class F>
__device__ std::uint8_t cast(float x, const Random4& words, std::int64_t column) {
  const auto n = column % 4;
  const std::uint32_t word = n == 0 ? words.at[0] : n == 1 ? words.at[1] : n == 2 ? words.at[2] : words.at[3];
  return to_code_stochastically<F>(x, word);
}
template <class F>
__device__ CodeChunk cast_block(const Chunk& x, float factor, const RandomWords& random, std::uint32_t copy) {
  CodeChunk codes;
  const std::uint64_t hash = RandomWords::hash_of(x);
  Random4 words = {};
#pragma unroll
  for (int n = 0; n < kChunk; ++n) {
    if (n % 4 == 0) words = random.four_of_block(hash, n / 4, copy);
    codes.at[n] = cast<F>(x.at[n] * factor, words, n);
  }
  return codes;
}
template <class F>
__device__ CodeChunk cast_row(const Chunk& x, float factor, const RandomWords& random, std::int64_t row,
                              std::int64_t col) {
  if (random.key != nullptr && random.by_block) return cast_block<F>(x, factor, random, 0);
  CodeChunk codes;
  Random4 words = {};
#pragma unroll
  for (int n = 0; n < kChunk; ++n) {
    if (random.key == nullptr) {
      codes.at[n] = to_code<F>(x.at[n] * factor);
      continue;
    }
    const std::int64_t column = random.first_column + col + n;
    if (n == 0 || column % 4 == 0) words = random.four(row, column, 0);
    codes.at[n] = cast<F>(x.at[n] * factor, words, column);
  }
  return codes;
}
template <class F>
__device__ CodeChunk cast_column(const Chunk& x, float factor, const RandomWords& random, std::int64_t row,
                                 std::int64_t col) {
  if (random.key != nullptr && random.by_block) return cast_block<F>(x, factor, random, 1);
  CodeChunk codes;
  const std::int64_t column = random.first_column + col;
#pragma unroll
  for (int n = 0; n < kChunk; ++n)
    codes.at[n] = random.key == nullptr ? to_code<F>(x.at[n] * factor)
                                        : cast<F>(x.at[n] * factor, random.four(row + n, column, 1), column);
  return codes;
}

// Sizes and scales that the kernels share; passed to them by value. amax: of the tensor or of each group, and after
// them those of the transforms.
struct BlockCast {
  Scaling scaling;
  std::int64_t rows, cols, block;
  const float* amax;  // null without a factor of the tensor
  RandomWords random;
  bool hadamard;
  Groups groups;

  __device__ NvTensorScale of_tensor(int copy) const {
    if (amax == nullptr) return {};
    const std::int64_t count = groups.count > 0 ? groups.count : 1;
    return nv_tensor_scale(amax[(hadamard ? copy : 0) * count + blockIdx.z]);
  }
  // Makes work, x and codes those of the thread block's group. Without groups they are.
  template <class T>
  __device__ CastSource<T> take_group(const Rows<const T>& x, exec::Codes* of_rows, exec::Codes* of_columns,
                                      bool transposes) {
    if (groups.count == 0) return {x, rows, cols};
    const GroupPlace place = groups.place(blockIdx.z);
    rows = place.padded;
    const auto begin = [&](exec::Codes* codes) {
      if (codes == nullptr || codes->data == nullptr) return;
      codes->data += code_shape(codes->format, scaling, codes->along, place.first, cols).rows * codes->ld;
      codes->rows = place.padded;
    };
    begin(of_rows);
    if (!transposes) begin(of_columns);
    if (transposes && of_columns != nullptr && of_columns->data != nullptr) {
      // Transposed groups follow one another without gaps.
      const CodeShape before = code_shape(of_columns->format, scaling, ScaledAlong::rows, cols, place.first);
      of_columns->data += before.rows * before.cols;
      of_columns->ld = code_shape(of_columns->format, scaling, ScaledAlong::rows, cols, place.padded).cols;
      of_columns->cols = place.padded;
    }
    return {{x.data + place.at * x.ld, x.ld}, place.rows, cols};
  }
};

// The copy along rows. Threads of a block of x are neighbours in their warp, at most 8 of them.
template <class F, class T>
__global__ void cast_rows_kernel(BlockCast work, Rows<const T> matrix, exec::Codes to) {
  const CastSource<T> x = work.take_group(matrix, &to, nullptr, false);
  const NvTensorScale of_tensor = work.of_tensor(0);
  const std::int64_t in_block = work.block / kChunk, across = (work.cols + work.block - 1) / work.block * in_block,
                     all = work.rows * across;
  for (std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x; first < all;
       first += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t i = first + threadIdx.x, row = i / across, col = i % across * kChunk;
    const bool is_here = i < all && col < work.cols;
    Chunk chunk = {};
    if (is_here) chunk = chunk_of_row(x, row, col);
    float amax = largest_of(chunk);
    for (int mask = 1; mask < in_block; mask *= 2) amax = max_or_nan(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
    if (!is_here) continue;
    const exec::BlockScale scale = exec::block_scale(work.scaling, amax, F::kMax, of_tensor);
    if (col % work.block == 0) to.put_scale(row, col, scale.bits);
    store_chunk(cast_row<F>(chunk, scale.factor, work.random, row, col), to, row, col);
  }
}

// The copy along columns, as it is or transposed. A thread has a block of a column; its neighbours have the adjacent
// columns.
template <class F, class T>
__global__ void cast_columns_kernel(BlockCast work, Rows<const T> matrix, exec::Codes to, bool transposes) {
  const CastSource<T> x = work.take_group(matrix, nullptr, &to, transposes);
  const NvTensorScale of_tensor = work.of_tensor(1);
  const std::int64_t all = (work.rows + work.block - 1) / work.block * work.cols;
  for (std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x; first < all;
       first += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t i = first + threadIdx.x, top = i / work.cols * work.block, col = i % work.cols;
    const bool is_here = i < all;
    const std::int64_t below = top + work.block < work.rows ? top + work.block : work.rows;
    float amax = 0;
    for (std::int64_t row = top; is_here && row < below; row += kChunk)
      amax = max_or_nan(amax, largest_of(chunk_of_column(x, row, col, work.hadamard)));
    const exec::BlockScale scale = exec::block_scale(work.scaling, amax, F::kMax, of_tensor);
    if (is_here) transposes ? to.put_scale(col, top, scale.bits) : to.put_scale(top, col, scale.bits);
    for (std::int64_t part = 0; part < work.block; part += kChunk) {
      const std::int64_t row = top + part;
      const bool has_row = is_here && row < below;
      CodeChunk codes = {};
      if (has_row)
        codes = cast_column<F>(chunk_of_column(x, row, col, work.hadamard), scale.factor, work.random, row, col);
      if (transposes) {
        if (has_row) store_chunk(codes, to, col, row);
        continue;
      }
      for (int n = 0; n < kChunk; ++n) {
        std::uint32_t byte = codes.at[n];
        if (to.per_byte() == 2) byte |= __shfl_xor_sync(0xffffffffu, byte, 1) << 4;  // the adjacent column
        if (has_row && col % to.per_byte() == 0) to.row(row + n)[col / to.per_byte()] = static_cast<std::uint8_t>(byte);
      }
    }
  }
}

// Both copies of squares, which have equal codes: a thread block has kArea × kArea numbers.
constexpr int kArea = 128, kAreaThreads = 256, kAcross = kArea / kChunk;
template <class F, class T>
__global__ void cast_squares_kernel(BlockCast work, Rows<const T> matrix, exec::Codes rowwise, exec::Codes columnwise,
                                    bool transposes) {
  __shared__ float amaxes[kArea][kAcross];
  __shared__ std::uint8_t tile[kArea][kArea + 4];
  const CastSource<T> x = work.take_group(matrix, &rowwise, &columnwise, transposes);
  const NvTensorScale of_tensor = work.of_tensor(0);
  const std::int64_t across = (work.cols + kArea - 1) / kArea, areas = (work.rows + kArea - 1) / kArea * across;
  const auto square = static_cast<int>(work.block);
  const int chunk = static_cast<int>(threadIdx.x) % kAcross, first = static_cast<int>(threadIdx.x) / kAcross;
  constexpr int kStep = kAreaThreads / kAcross;
  for (std::int64_t area = blockIdx.x; area < areas; area += gridDim.x) {
    const std::int64_t top = area / across * kArea, col = area % across * kArea + chunk * kChunk;
    float own = 0;
    for (int r = first; r < kArea; r += kStep) {
      amaxes[r][chunk] = top + r < work.rows && col < work.cols ? largest_of(chunk_of_row(x, top + r, col)) : 0.0f;
      own = max_or_nan(own, amaxes[r][chunk]);
    }
    const float of_area = block_max(own);  // a barrier too
    const auto scale_at = [&](int r, int c) {
      float amax = of_area;
      if (square < kArea) {
        amax = 0;
        for (int n = 0; n < square; ++n) amax = max_or_nan(amax, amaxes[r / square * square + n][c]);
      }
      return exec::block_scale(work.scaling, amax, F::kMax, of_tensor);
    };
    const bool is_one = square == kArea;  // one stored scale for a square, otherwise one for each row of it
    for (int r = first; r < kArea; r += kStep) {
      const std::int64_t row = top + r;
      if (row >= work.rows || col >= work.cols) continue;
      const exec::BlockScale scale = scale_at(r, chunk);
      const CodeChunk codes = cast_row<F>(chunk_of_row(x, row, col), scale.factor, work.random, row, col);
      for (int n = 0; n < kChunk; ++n) tile[r][chunk * kChunk + n] = codes.at[n];
      const bool has_scale = is_one ? r == 0 && chunk == 0 : true;
      if (rowwise.data != nullptr) {
        if (has_scale) rowwise.put_scale(row, col, scale.bits);
        store_chunk(codes, rowwise, row, col);
      }
      if (columnwise.data == nullptr || transposes) continue;
      if (is_one && has_scale) columnwise.put_scale(row, col, scale.bits);
      if (!is_one && r % square == 0)
        for (int n = 0; n < kChunk; ++n) columnwise.put_scale(row, col + n, scale.bits);
      store_chunk(codes, columnwise, row, col);
    }
    __syncthreads();
    if (columnwise.data != nullptr && transposes)
      for (int i = static_cast<int>(threadIdx.x); i < kArea * kAcross; i += kAreaThreads) {
        const int c = i / kAcross, r = i % kAcross * kChunk;
        const std::int64_t row = top + r, column = area % across * kArea + c;
        if (row >= work.rows || column >= work.cols) continue;
        CodeChunk codes;
        for (int n = 0; n < kChunk; ++n) codes.at[n] = tile[r + n][c];
        if (is_one ? r == 0 && c == 0 : true) columnwise.put_scale(column, row, scale_at(r, c / kChunk).bits);
        store_chunk(codes, columnwise, column, row);
      }
    __syncthreads();
  }
}

// Rows of codes, with their scales, to where their group's codes begin. Rows beyond a group's are codes of zeros.
template <int N>
__global__ void move_rows_kernel(BlockCast work, std::int64_t packs, Rows<const unsigned char> matrix, exec::Codes to) {
  const CastSource<unsigned char> from = work.take_group(matrix, &to, nullptr, false);
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < work.rows * packs;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t row = i / packs, byte = i % packs * N;
    Pack<unsigned char, N> pack = {};
    if (row < from.rows) pack = *pack_at<const Pack<unsigned char, N>>(from.x.row(row) + byte);
    *pack_at<Pack<unsigned char, N>>(to.row(row) + byte) = pack;
  }
}

// inverse[i] = the factor of copy i.
__global__ void inverse_kernel(const float* amax, int count, float* inverse) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    inverse[i] = nv_tensor_scale(amax[i]).inverse;
}

// A thread has kChunk codes of a column, which are neighbours in `to`.
__global__ void transpose_kernel(exec::Codes from, exec::Codes to) {
  const std::int64_t down = from.rows / kChunk, all = down * from.cols, block = from.rule().block,
                     step = from.scaling == Scaling::block_128x128 ? block : 1;
  const auto per_byte = from.per_byte();
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t row = i / from.cols * kChunk, col = i % from.cols;
    CodeChunk codes;
    for (int n = 0; n < kChunk; ++n) {
      const std::uint8_t byte = from.row(row + n)[col / per_byte];
      codes.at[n] = per_byte == 1 ? byte : static_cast<std::uint8_t>(byte >> col % 2 * 4 & 15);
    }
    store_chunk(codes, to, col, row);
    if (row % block == 0 && col % step == 0) to.put_scale(col, row, from.scale_bits_at(row, col));
  }
}

// partial[groups, blocks, 2]: the largest magnitudes of x and of its transform.
template <class T>
__global__ void amax_kernel_of_both(Groups groups, std::int64_t cols, Rows<const T> matrix, float* partial) {
  const GroupPlace place = groups.place(blockIdx.z);
  const CastSource<T> x{{matrix.data + place.at * matrix.ld, matrix.ld}, place.rows, cols};
  const std::int64_t all = place.padded / kChunk * cols;
  float plain = 0, turned = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    Chunk chunk = chunk_of_column(x, i / cols * kChunk, i % cols, false);
    plain = max_or_nan(plain, largest_of(chunk));
    transform(chunk);
    turned = max_or_nan(turned, largest_of(chunk));
  }
  const float of_plain = block_max(plain), of_turned = block_max(turned);
  if (threadIdx.x != 0) return;
  float* own = partial + 2 * (std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x);
  own[0] = of_plain;
  own[1] = of_turned;
}
// amax[group], amax[groups + group] = the largest of partial[group][count, 2]. A block a group.
__global__ void largest_of_both_kernel(const float* partials, std::int64_t count, float* amax) {
  const float* partial = partials + 2 * count * blockIdx.x;
  float plain = 0, turned = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    plain = max_or_nan(plain, partial[2 * i]);
    turned = max_or_nan(turned, partial[2 * i + 1]);
  }
  const float of_plain = block_max(plain), of_turned = block_max(turned);
  if (threadIdx.x != 0) return;
  amax[blockIdx.x] = of_plain;
  amax[gridDim.x + blockIdx.x] = of_turned;
}

// `threads` of all groups.
template <class... Parameters>
dim3 blocks_for(const Stream& stream, std::int64_t threads, void (*kernel)(Parameters...), unsigned groups = 1) {
  const std::int64_t resident = ceil_div(resident_blocks(stream, kernel, kThreads), groups);
  return {static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(threads, kThreads), 1, resident)), 1, groups};
}

// Calls fn(T{}, F{}).
template <class Fn>
void with_types(Dtype dtype, Dtype format, Fn fn) {
  with_device_type(dtype, [&](auto type) { exec::with_format(format, [&](auto of) { fn(type, of); }); });
}

void move_rows(const BlockCast& cast, const exec::Operand& x, const exec::Codes& to, std::int64_t bytes,
               const Stream& stream) {
  const Rows<const unsigned char> rows = rows_of<const unsigned char>(x);
  const auto start = [&]<int N>(std::integral_constant<int, N>) {
    launch(stream, blocks_for(stream, cast.rows * (bytes / N), move_rows_kernel<N>, cast.groups.grid()),
           {kThreads, 1, 1}, move_rows_kernel<N>, cast, bytes / N, rows, to);
  };
  constexpr int kWidest = 4;  // a row of a multiple of 128 codes is whole packs with its scales
  const bool packs = bytes % kWidest == 0 && is_packable(rows, kWidest) &&
                     is_packable(Rows<const unsigned char>{to.data, to.ld}, kWidest);
  packs ? start(std::integral_constant<int, kWidest>{}) : start(std::integral_constant<int, 1>{});
}

}  // namespace

void quantise_blocks(const Quantise& work, std::span<const exec::Operand> operands, const Stream& stream) {
  assert(!work.records && "it is of one scale a tensor");
  const ScalingRule rule = rule_of(work.scaling);
  const exec::Operand *next = operands.data(), &x = *next++;
  const float* amax = rule.has_factor ? static_cast<const float*>((next++)->data) : nullptr;
  const exec::Operand* offsets = work.has_offsets() ? next++ : nullptr;
  const auto* key = work.stochastic ? static_cast<const std::int32_t*>((next++)->data) : nullptr;
  const exec::Operand *codes = work.rowwise ? next++ : nullptr,
                      *columns = work.columnwise != ColumnCopy::none ? next++ : nullptr;
  const bool transposes = work.columnwise == ColumnCopy::transposed;
  // All rows of codes, of all groups; a kernel takes its group's.
  const bool is_grouped = work.groups > 0;
  const std::int64_t count = is_grouped ? work.grouped().code_rows(group_rows_of(work.scaling)) : work.rows;
  const auto codes_of = [&](const exec::Operand& of, ScaledAlong along, std::int64_t of_rows, std::int64_t of_cols) {
    return exec::Codes{static_cast<std::uint8_t*>(of.data), of.ld, of.dtype, work.scaling, along, of_rows, of_cols};
  };
  exec::Codes rowwise, columnwise;
  if (codes) rowwise = codes_of(*codes, ScaledAlong::rows, count, work.cols);
  if (columns)
    columnwise = transposes ? codes_of(*columns, ScaledAlong::rows, work.cols, count)
                            : codes_of(*columns, ScaledAlong::columns, count, work.cols);
  const Groups groups(work.grouped(), offsets, group_rows_of(work.scaling));
  const std::int64_t seq = work.stochastic && !is_grouped ? work.seq : 1;
  const BlockCast cast{
      work.scaling,
      count,
      work.cols,
      rule.block,
      amax,
      {key, 16 + 2 * static_cast<std::uint32_t>(work.layer), work.first_row.value(), work.first_column.value(),
       Positions(work.stochastic && !is_grouped ? work.parts : SequenceParts{}, seq), is_grouped},
      work.hadamard,
      groups};
  const auto start = [&]<class T, class F>(T, F) {
    const Rows<const T> rows = rows_of<const T>(x);
    if (rule.is_square) {
      constexpr auto kernel = cast_squares_kernel<F, T>;
      const std::int64_t areas = ceil_div(count, kArea) * ceil_div(work.cols, kArea);
      const std::int64_t resident = ceil_div(resident_blocks(stream, kernel, kAreaThreads), groups.grid());
      const auto blocks = static_cast<unsigned>(std::min(areas, resident));
      return launch(stream, {blocks, 1, groups.grid()}, {kAreaThreads, 1, 1}, kernel, cast, rows, rowwise, columnwise,
                    transposes);
    }
    if (codes && !work.of_codes) {
      constexpr auto kernel = cast_rows_kernel<F, T>;
      const std::int64_t threads = count * (ceil_div(work.cols, rule.block) * rule.block / kChunk);
      launch(stream, blocks_for(stream, threads, kernel, groups.grid()), {kThreads, 1, 1}, kernel, cast, rows, rowwise);
    }
    if (columns) {
      constexpr auto kernel = cast_columns_kernel<F, T>;
      const std::int64_t threads = ceil_div(count, rule.block) * work.cols;
      launch(stream, blocks_for(stream, threads, kernel, groups.grid()), {kThreads, 1, 1}, kernel, cast, rows,
             columnwise, transposes);
    }
  };
  if (work.of_codes) {
    move_rows(cast, x, rowwise, work.x_cols(), stream);
    start(static_cast<unsigned char>(0), E4m3{});
  } else {
    with_types(x.dtype, work.format, start);
  }
  if (rule.has_factor)
    launch(stream, {1, 1, 1}, {kThreads, 1, 1}, inverse_kernel, amax,
           (work.hadamard ? 2 : 1) * static_cast<int>(groups.grid()), static_cast<float*>(next->data));
}

void transpose_blocks(const TransposeCodes& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const exec::Codes from = exec::codes_of(operands[0], work.scaling, ScaledAlong::columns, work.rows, work.cols),
                    to = exec::codes_of(operands[1], work.scaling, ScaledAlong::rows, work.cols, work.rows);
  launch(stream, blocks_for(stream, work.rows / kChunk * work.cols, transpose_kernel), {kThreads, 1, 1},
         transpose_kernel, from, to);
}

void amax_of_both(const Amax& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const Groups groups({work.groups, work.rows, work.capacity, work.equal}, work.has_offsets() ? &operands[1] : nullptr,
                      group_rows_of(Scaling::nv));
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr auto kernel = amax_kernel_of_both<T>;
    dim3 grid = blocks_for(stream, ceil_div(work.matrix_rows(), kChunk) * work.cols, kernel, groups.grid());
    grid.x = std::clamp(static_cast<unsigned>(stream.scratch_bytes / (2 * sizeof(float)) / groups.grid()), 1u, grid.x);
    launch(stream, grid, {kThreads, 1, 1}, kernel, groups, work.cols, rows_of<const T>(operands[0]),
           static_cast<float*>(stream.scratch));
    launch(stream, {groups.grid(), 1, 1}, {1024, 1, 1}, largest_of_both_kernel,
           static_cast<const float*>(stream.scratch), std::int64_t{grid.x}, static_cast<float*>(operands.back().data));
  });
}

}  // namespace stretto::cuda
