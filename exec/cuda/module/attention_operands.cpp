#include "exec/cuda/module/attention_operands.hpp"

#include <algorithm>

namespace stretto::cuda {
namespace {

constexpr std::int64_t kElement = 2;  // bytes

std::byte* at(const TokenRows& rows, std::int64_t first_row, std::int64_t col) {
  return rows.data + (first_row * rows.ld + col) * kElement;
}

}  // namespace

TokenRows AttentionOperands::Matrix::used(std::byte* scratch) const {
  if (copy_at < 0) return operand;
  return {scratch + copy_at, cols, order_by_position(operand.order.batch, operand.order.tokens)};
}

AttentionStrides AttentionOperands::Matrix::strides() const {
  const std::int64_t ld = copy_at < 0 ? operand.ld : cols;
  return {ld, operand.order.tokens * ld};
}

AttentionOperands::AttentionOperands(const Attention& work, std::span<const exec::Operand> operands)
    : work_(work), regions_(regions_of(work)) {
  const bool is_forward = work.pass == Pass::forward;
  const std::size_t kv_at = work.kv_apart ? 1 : 0, out_at = kv_at + 1, dq_at = out_at + 3;
  const std::int64_t q_cols = work.heads * work.head_dim, kv_first = work.kv_apart ? 0 : q_cols;
  q_ = matrix_of(operands[0], 0, q_cols, false);
  kv_ = matrix_of(operands[kv_at], kv_first, work.kv_cols(), true);
  out_ = matrix_of(operands[out_at], 0, work.out_cols(), false);
  const exec::Operand& lse = operands[out_at + 1];
  lse_ = {static_cast<float*>(lse.data), lse.ld, work.heads, out_.operand.order};
  std::int64_t most = 0, most_summed = 0;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    most = std::max(most, regions_[i].queries);
    if (!is_last(i)) most_summed = std::max(most_summed, regions_[i].keys);
  }
  // cuDNN does not say that it heeds strides of log-sum-exps, and they are few.
  if (most < work.query_tokens() || lse.ld != work.query_tokens() || !lies_in_order(work.queries))
    stats_at_ = take(work.batch * work.heads * most * static_cast<std::int64_t>(sizeof(float)));
  if (is_forward) return;
  dout_ = matrix_of(operands[out_at + 2], 0, work.out_cols(), false);
  dq_ = matrix_of(operands[dq_at], 0, q_cols, false);
  dkv_ = matrix_of(operands[dq_at + kv_at], kv_first, work.kv_cols(), true);
  if (most_summed > 0) sum_at_ = take(work.batch * most_summed * work.kv_cols() * kElement);
}

std::int64_t AttentionOperands::take(std::int64_t bytes) {
  const std::int64_t offset = scratch_bytes_;
  scratch_bytes_ += (bytes + 255) / 256 * 256;
  return offset;
}

AttentionOperands::Matrix AttentionOperands::matrix_of(const exec::Operand& operand, std::int64_t first_col,
                                                       std::int64_t cols, bool is_of_keys) {
  const SequenceParts& parts = is_of_keys ? work_.keys : work_.queries;
  Matrix matrix{{static_cast<std::byte*>(operand.data) + first_col * kElement, operand.ld,
                 order_of(parts, work_.seq, work_.batch)},
                cols};
  if (!lies_in_order(parts)) matrix.copy_at = take(work_.batch * matrix.operand.order.tokens * cols * kElement);
  return matrix;
}

TokenRows AttentionOperands::dkv_of(std::size_t region, std::byte* scratch) const {
  if (is_last(region)) return dkv_.used(scratch);
  return {scratch + sum_at_, work_.kv_cols(), order_by_position(work_.batch, regions_[region].keys)};
}

AttentionShape AttentionOperands::shape_of(std::size_t region) const {
  const AttentionRegion& of = regions_[region];
  AttentionShape shape{work_.batch,  work_.heads,   work_.kv_heads, of.queries, of.keys, work_.head_dim,
                       q_.strides(), kv_.strides(), out_.strides(), {},         {},      of.is_causal,
                       work_.dropout};
  if (work_.pass == Pass::forward) return shape;
  shape.dq = dq_.strides();
  shape.dkv = is_last(region) ? dkv_.strides() : AttentionStrides{work_.kv_cols(), of.keys * work_.kv_cols()};
  return shape;
}

AttentionPlaces AttentionOperands::places_of(std::size_t region, std::byte* scratch) const {
  const std::int64_t first = regions_[region].first_query, v_col = work_.kv_heads * work_.head_dim;
  const TokenRows kv = kv_.used(scratch);
  AttentionPlaces places{at(q_.used(scratch), first, 0), at(kv, 0, 0), at(kv, 0, v_col),
                         at(out_.used(scratch), first, 0),
                         stats_at_ < 0 ? static_cast<void*>(lse_.data) : scratch + stats_at_};
  if (work_.pass == Pass::forward) return places;
  const TokenRows dkv = dkv_of(region, scratch);
  places.d_o = at(dout_.used(scratch), first, 0);
  places.dq = at(dq_.used(scratch), first, 0);
  places.dk = at(dkv, 0, 0);
  places.dv = at(dkv, 0, v_col);
  return places;
}

void AttentionOperands::begin(std::byte* scratch, const Stream& stream) const {
  const auto copy = [&](const Matrix& matrix) {
    if (matrix.copy_at >= 0)
      copy_tokens(matrix.operand, matrix.used(scratch), {0, matrix.operand.order.tokens}, matrix.cols, stream);
  };
  copy(q_);
  copy(kv_);
  if (work_.pass == Pass::forward) return;
  copy(out_);
  copy(dout_);
}

void AttentionOperands::before(std::size_t region, std::byte* scratch, const Stream& stream) const {
  if (work_.pass != Pass::forward && stats_at_ >= 0)
    pack_statistics(lse_, reinterpret_cast<float*>(scratch + stats_at_), queries_of(region), stream);
}

void AttentionOperands::after(std::size_t region, std::byte* scratch, const Stream& stream) const {
  if (work_.pass == Pass::forward) {
    if (stats_at_ >= 0)
      unpack_statistics(reinterpret_cast<const float*>(scratch + stats_at_), lse_, queries_of(region), stream);
  } else if (!is_last(region)) {
    // The last region has written all keys that this one has.
    add_tokens(dkv_of(region, scratch), dkv_.used(scratch), {0, regions_[region].keys}, work_.kv_cols(), stream);
  }
}

void AttentionOperands::end(std::byte* scratch, const Stream& stream) const {
  const auto write = [&](const Matrix& matrix, const TokenRange& written, const TokenRange& cleared) {
    if (matrix.copy_at >= 0) copy_tokens(matrix.used(scratch), matrix.operand, written, matrix.cols, stream);
    clear_tokens(matrix.operand, cleared, matrix.cols, stream);
  };
  const std::int64_t first = regions_.front().first_query, keys = regions_.back().keys;
  const TokenRange blind{0, first}, seeing{first, work_.query_tokens() - first};
  if (work_.pass == Pass::forward) {
    write(out_, seeing, blind);
    clear_statistics(lse_, blind, stream);
  } else {
    write(dq_, seeing, blind);
    write(dkv_, {0, keys}, {keys, work_.key_tokens() - keys});
  }
}

}  // namespace stretto::cuda
