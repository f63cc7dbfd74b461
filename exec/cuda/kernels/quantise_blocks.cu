#include <cassert>

#include "exec/cuda/kernels/block_casts.hpp"

namespace stretto::cuda {
namespace {

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
  if (rule.is_square) {
    cast_squares(cast, x, work.format, rowwise, columnwise, transposes, stream);
  } else {
    if (codes && work.of_codes) move_rows(cast, x, rowwise, work.x_cols(), stream);
    if (codes && !work.of_codes) cast_rows(cast, x, work.format, rowwise, stream);
    if (columns) cast_columns(cast, x, work.of_codes, work.format, columnwise, transposes, stream);
  }
  if (rule.has_factor)
    launch(stream, {1, 1, 1}, {kThreads, 1, 1}, inverse_kernel, amax,
           (work.hadamard ? 2 : 1) * static_cast<int>(groups.grid()), static_cast<float*>(next->data));
}

}  // namespace stretto::cuda
