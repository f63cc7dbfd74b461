#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "exec/codes.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/philox.hpp"
#include "exec/cuda/kernels/positions.hpp"
#include "exec/cuda/kernels/quantise_blocks.hpp"
#include "exec/cuda/kernels/row_groups.hpp"

namespace stretto::cuda {

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

// The random words of Quantise (model/ops/codes.hpp). Without a key numbers are rounded to nearest.
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

// The kernels that make both copies of squares, or the copy along rows or along columns: a file each, because each is
// compiled for every pair of element types.
void cast_squares(const BlockCast& cast, const exec::Operand& x, Dtype format, const exec::Codes& rowwise,
                  const exec::Codes& columnwise, bool transposes, const Stream& stream);
void cast_rows(const BlockCast& cast, const exec::Operand& x, Dtype format, const exec::Codes& to,
               const Stream& stream);
// x may be codes with scales (Quantise::of_codes), `of_codes`.
void cast_columns(const BlockCast& cast, const exec::Operand& x, bool of_codes, Dtype format, const exec::Codes& to,
                  bool transposes, const Stream& stream);

}  // namespace stretto::cuda
