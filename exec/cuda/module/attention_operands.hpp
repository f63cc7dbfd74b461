#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "exec/cuda/attention_region.hpp"
#include "exec/cuda/kernels/attention_rows.hpp"
#include "exec/cuda/kernels/stream.hpp"
#include "exec/cuda/module/attention_shape.hpp"
#include "exec/operand.hpp"

namespace stretto::cuda {

// Addresses for one graph of attention; those from d_o on are only the gradient's.
struct AttentionPlaces {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *stats = nullptr;
  void *d_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// The operands of an Attention (model/ops/attention.hpp) in bf16, as graphs of cuDNN take them: a graph for each of its
// regions. A graph needs tokens in the order of their positions, and log-sum-exps without gaps; where operands are
// others, it gets copies in scratch memory. Runs as
//   begin(); for every region, the last first: before(), the graph, after(); end()
// on one stream, all with one scratch of scratch_bytes(), aligned to 256. Does not own memory.
class AttentionOperands {
 public:
  AttentionOperands(const Attention& work, std::span<const exec::Operand> operands);

  std::size_t count() const { return regions_.size(); }
  AttentionShape shape_of(std::size_t region) const;
  AttentionPlaces places_of(std::size_t region, std::byte* scratch) const;
  // Bytes of scratch, a multiple of 256. A whole sequence needs none.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void begin(std::byte* scratch, const Stream& stream) const;
  void before(std::size_t region, std::byte* scratch, const Stream& stream) const;
  void after(std::size_t region, std::byte* scratch, const Stream& stream) const;
  // Also writes what no region does: out 0 and lse −∞, or gradients of 0.
  void end(std::byte* scratch, const Stream& stream) const;

 private:
  // A matrix of tokens: the operand, or its copy at an offset of the scratch.
  struct Matrix {
    TokenRows operand;
    std::int64_t cols = 0, copy_at = -1;  // −1: no copy

    TokenRows used(std::byte* scratch) const;
    AttentionStrides strides() const;
  };
  Matrix matrix_of(const exec::Operand& operand, std::int64_t first_col, std::int64_t cols, bool is_of_keys);
  std::int64_t take(std::int64_t bytes);
  bool is_last(std::size_t region) const { return region + 1 == regions_.size(); }
  TokenRange queries_of(std::size_t region) const { return {regions_[region].first_query, regions_[region].queries}; }
  // The gradient of keys and values that a region writes.
  TokenRows dkv_of(std::size_t region, std::byte* scratch) const;

  Attention work_;
  std::vector<AttentionRegion> regions_;
  Matrix q_, kv_, out_, dout_, dq_, dkv_;
  TokenStatistics lse_;
  std::int64_t scratch_bytes_ = 0;
  std::int64_t stats_at_ = -1;  // offset of packed log-sum-exps; −1: graphs take the operand
  std::int64_t sum_at_ = -1;    // offset of a region's dkv that is then added
};

}  // namespace stretto::cuda
