#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// dst W.
struct Fill {
  std::int64_t elements = 0;
  double value = 0;

  static constexpr const char* kKind = "fill";
  static constexpr std::array kFields = {"elements", "value"};
  bool operator==(const Fill&) const = default;
};

// src R, dst W; element types are those of the tensors (f32/f64 ↔ bf16, round to nearest even; equal types, of codes
// too: a copy).
struct Cast {
  std::int64_t elements = 0;

  static constexpr const char* kKind = "cast";
  static constexpr std::array kFields = {"elements"};
  bool operator==(const Cast&) const = default;
};

// Casts to fp8 and back, with a scale for each block of kScaleBlock elements: x ≈ 2^(scale − 127) · value. The value is
// an e4m3 and the scale a byte, the smallest power of two for which no value of the block exceeds the largest e4m3, 448
// (the MXFP8 of the OCP microscaling specification, with scales rounded up as in Mishra et al., arXiv 2506.08027). A
// shard is its `elements` values, then its scales (base/fp8.hpp). forward: x[1, shards·elements] R, packed[1,
// shards·packed()] e4m3 W.   backward, which casts back: packed R, x W.
constexpr std::int64_t kScaleBlock = 32;
struct ScaledCast {
  Pass pass = Pass::forward;
  std::int64_t shards = 1, elements = 0;  // elements of a shard: a multiple of kScaleBlock

  static std::int64_t packed_bytes(std::int64_t elements) { return elements + elements / kScaleBlock; }
  std::int64_t packed() const { return packed_bytes(elements); }
  static constexpr const char* kKind = "scaled_cast";
  static constexpr std::array kFields = {"pass", "shards", "elements"};
  bool operator==(const ScaledCast&) const = default;
};

// parts[parts,elements] R, sum[1,elements] W: the sum of the rows, in order, in f32 where the parts are bf16. The sum
// may have a wider type. (The reduction of a reduce-scatter whose parts were sent one by one.)
struct LocalReduce {
  std::int64_t parts = 1, elements = 0;

  static constexpr const char* kKind = "local_reduce";
  static constexpr std::array kFields = {"parts", "elements"};
  bool operator==(const LocalReduce&) const = default;
};

// x[1,elements] R, sum[1,1] f64 A: sum += Σ x² / copies. The squared global gradient norm is accumulated bucket by
// bucket; an element that several ranks hold counts once.
struct SumSquares {
  std::int64_t elements = 0;
  std::int64_t copies = 1;

  static constexpr const char* kKind = "sum_squares";
  static constexpr std::array kFields = {"elements", "copies"};
  bool operator==(const SumSquares&) const = default;
};

OperandList operands(const Fill& work);
OperandList operands(const Cast& work);
OperandList operands(const ScaledCast& work);
OperandList operands(const LocalReduce& work);
OperandList operands(const SumSquares& work);
std::string sizes_text(const Fill& work);
std::string sizes_text(const Cast& work);
std::string sizes_text(const ScaledCast& work);
std::string sizes_text(const LocalReduce& work);
std::string sizes_text(const SumSquares& work);

}  // namespace stretto
