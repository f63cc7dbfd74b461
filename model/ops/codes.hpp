#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "model/ops/dtype.hpp"
#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto {

// Works of low precision (docs/low-precision.md), by the rules of model/schedule/work.hpp. The arithmetic of scales and
// codes is TransformerEngine's at d0067d0; base/fp8.hpp has it.
//
// A product sums over one axis of each factor, and codes share scales along that axis. A matrix may therefore be needed
// in two copies: one scaled along its rows, for a product over its columns, and one scaled along its columns, for a
// product over its rows (TransformerEngine's rowwise and columnwise data).

// Which codes share a scale.
enum class Scaling : std::uint8_t {
  none,           // numbers and no codes
  tensor,         // all: one f32 factor (delayed and tensorwise recipes)
  block_128,      // 128 along the axis of the sum: f32, a power of two (DeepSeek-V3, arXiv 2412.19437)
  block_128x128,  // squares of 128: f32, a power of two
  mx,             // 32 along the axis of the sum: a byte of exponent, E8M0 (OCP microscaling formats)
  nv,             // 16 along the axis of the sum: e4m3; and one f32 factor of the tensor (NVFP4, arXiv 2509.25149)
  nv_16x16,       // as nv with equal scales in squares of 16
};
struct ScalingRule {
  const char* name = "?";
  std::int64_t block = 0;        // codes along the axis of the sum that share a scale; 0: all
  std::int64_t scale_bytes = 0;  // of such a scale
  bool has_factor = false;       // the tensor has an f32 factor
  bool is_square = false;        // block × block codes share a scale
};
constexpr ScalingRule rule_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::none:
      return {.name = "none"};
    case Scaling::tensor:
      return {.name = "tensor", .has_factor = true};
    case Scaling::block_128:
      return {.name = "block_128", .block = 128, .scale_bytes = 4};
    case Scaling::block_128x128:
      return {.name = "block_128x128", .block = 128, .scale_bytes = 4, .is_square = true};
    case Scaling::mx:
      return {.name = "mx", .block = 32, .scale_bytes = 1};
    case Scaling::nv:
      return {.name = "nv", .block = 16, .scale_bytes = 1, .has_factor = true};
    case Scaling::nv_16x16:
      return {.name = "nv_16x16", .block = 16, .scale_bytes = 1, .has_factor = true, .is_square = true};
  }
  return {};
}
// Returns the number that divides the sides of a whole matrix: blocks of 128 may be short at its end, but
// GPUs multiply codes in sixteens (TransformerEngine at d0067d0, pytorch/utils.py:614).
constexpr std::int64_t side_of(Scaling scaling) {
  const std::int64_t block = rule_of(scaling).block;
  return block == 0 || block == 128 ? 16 : block;
}
constexpr const char* name_of(Scaling scaling) { return rule_of(scaling).name; }  // "none", …; "?" beyond the last

// The axis of a stored matrix of codes along which codes share scales.
enum class ScaledAlong : std::uint8_t { rows, columns };
// Rows and columns of a buffer of codes, in elements of its type, which are bytes.
struct CodeShape {
  std::int64_t rows = 0, cols = 0;
};
// Returns the shape of a matrix [rows, cols] as codes with their scales. A slice of whole blocks has its own scales, so
// codes and scales are cut, sent and gathered by one view:
//   along rows     a row is its codes, then their scales: [rows, cols + ⌈cols / block⌉ · scale_bytes]
//   along columns  after every `block` rows of codes are rows with their scales, whose column c has the bytes
//                  [c · scale_bytes, …): [rows + rows / block · scale_bytes, cols]. Codes of 4 bits: the codes of such
//                  a row take cols / 2 bytes, so there are twice as many rows of scales, one after the other.
//   block_128x128  after every 128 rows of codes is one row of scales, whatever the axis: the scale of a square is at
//                  its first column: [rows + rows / 128, cols]
//   tensor         the codes: [rows, cols]
// With blocks of 128 the last one of a matrix may be short (as TransformerEngine's may), and its scales are after its
// rows; such a matrix is not cut. nv_16x16 has a scale for each 16 codes, as nv has, equal in 16 rows. Codes of 4 bits
// are 2 to a byte.
constexpr CodeShape code_shape(Dtype format, Scaling scaling, ScaledAlong along, std::int64_t rows, std::int64_t cols) {
  const ScalingRule rule = rule_of(scaling);
  const std::int64_t per_byte = format == Dtype::e2m1x2 ? 2 : 1;
  if (rule.block == 0) return {rows, cols / per_byte};
  const auto blocks = [&](std::int64_t size) { return (size + rule.block - 1) / rule.block; };
  if (scaling == Scaling::block_128x128) return {rows + blocks(rows), cols};
  if (along == ScaledAlong::rows) return {rows, cols / per_byte + blocks(cols) * rule.scale_bytes};
  return {rows + blocks(rows) * rule.scale_bytes * per_byte, cols / per_byte};
}
// Rows of a group of an activation, as codes, are rounded up to this, so that the group is whole blocks of a product
// over its rows (TransformerEngine at d0067d0, pytorch/quantization.py:262).
constexpr std::int64_t group_rows_of(Scaling scaling) {
  const std::int64_t block = rule_of(scaling).block;
  return block == 0 ? 16 : block == 16 ? 128 : block;
}
// Groups of rows in one matrix, such as the rows of experts (model/ops/experts.hpp: GroupedGemm). Codes of a
// group are a matrix of their own: its rows are rounded up with zeros, and groups follow one another. A copy of the
// transposed matrix holds each group's transposed one, in the bytes from [first row · cols] on; its shape is that of
// all rows together, or where groups are `equal`, one below the other.
struct GroupedRows {
  std::int64_t groups = 0, rows = 0, capacity = 0;
  bool equal = false;

  std::int64_t matrix_rows() const { return capacity > 0 ? capacity : rows; }
  static constexpr std::int64_t rounded(std::int64_t rows, std::int64_t unit) {
    return (rows + unit - 1) / unit * unit;
  }
  // Returns the rows of codes, rounded up to multiples of `unit`.
  std::int64_t code_rows(std::int64_t unit) const {
    if (equal) return groups * rounded(rows / groups, unit);
    return (matrix_rows() + groups * (unit - 1)) / unit * unit;
  }
};
// Returns the shape of the codes of all groups: a copy along rows or columns.
inline CodeShape grouped_code_shape(Dtype format, Scaling scaling, ScaledAlong along, const GroupedRows& groups,
                                    std::int64_t cols) {
  return code_shape(format, scaling, along, groups.code_rows(group_rows_of(scaling)), cols);
}
// Returns the shape of the codes of all groups' transposed matrices, each scaled along its rows.
inline CodeShape grouped_transposed_shape(Dtype format, Scaling scaling, const GroupedRows& groups, std::int64_t cols) {
  const std::int64_t rows = groups.code_rows(group_rows_of(scaling));
  if (groups.equal) return code_shape(format, scaling, ScaledAlong::rows, groups.groups * cols, rows / groups.groups);
  return code_shape(format, scaling, ScaledAlong::rows, cols, rows);
}
// Returns why a matrix has no such codes, or "".
std::string problem_of(Dtype format, Scaling scaling, ScaledAlong along, std::int64_t rows, std::int64_t cols);

// The largest magnitude of a tensor, 0 or more; NaN where it holds one. With `hadamard` amax[1] is that of the tensor
// after Hadamard transforms of 16 along its columns (Quantise).
//
// With `groups` one of each group, as in Quantise; those of the transforms, of rows rounded up with zeros, come after.
//
// x[matrix_rows(),cols] R, (offsets[1,groups + 1] i32 R when groups are not `equal`),
// amax[1, (hadamard ? 2 : 1) · max(groups, 1)] f32 W.
struct Amax {
  std::int64_t rows = 0, cols = 0;
  bool hadamard = false;
  std::int64_t groups = 0, capacity = 0;
  bool equal = false;

  std::int64_t matrix_rows() const { return capacity > 0 ? capacity : rows; }
  bool has_offsets() const { return groups > 0 && !equal; }
  static constexpr const char* kKind = "amax";
  static constexpr std::array kFields = {"rows", "cols", "hadamard", "groups", "capacity", "equal"};
  bool operator==(const Amax&) const = default;
};

// The scales by which Quantise multiplies `elements` tensors of one format whose codes have Scaling::tensor. `largest`
// is the largest number of the format (448 or 57344), and a quotient that overflows is the largest f32.
//
// history 0, current scaling: amax[1,elements] f32 R, scale[1,elements] f32 W.
//   scale = largest / amax; 1 where amax is 0 or no number.
// history > 0, delayed scaling: amax A, history[elements,history] f32 A, scale A. A row of the history has the amaxes
// of
//   a tensor, the newest first: they move on by one, the first becomes amax, and amax becomes 0. With a = the first
//   (most_recent) or the largest of the row: scale = largest / a / 2^margin; the old scale where a is 0 or no number.
struct UpdateScale {
  std::int64_t elements = 0, history = 0;
  Dtype format = Dtype::e4m3;
  std::int64_t margin = 0;
  bool most_recent = true;

  static constexpr const char* kKind = "update_scale";
  static constexpr std::array kFields = {"elements", "history", "format", "margin", "most_recent"};
  bool operator==(const UpdateScale&) const = default;
};

// The second copy that Quantise makes, scaled along the columns of x. transposed: of xᵀ, scaled along its rows.
enum class ColumnCopy : std::uint8_t { none, plain, transposed };
const char* name_of(ColumnCopy copy);  // "none", …
// The linear layer whose operand is rounded stochastically.
enum class QuantisedLayer : std::uint8_t {
  qkv,
  proj,
  fc1,
  fc2,
  q,  // of latent attention (model/layers/latent.cpp)
  q_down,
  q_up,
  kv_down,
  kv_up,
  shared_fc1,
  shared_fc2,
  experts_fc1,
  experts_fc2,
  in_proj,  // of linear attention (model/layers/linear_mixer.cpp)
  out_proj,
};
const char* name_of(QuantisedLayer layer);  // "qkv", …, "shared.fc1", …

// Codes of a matrix and their scales, rounded to nearest, ties to even, and saturating. With Scaling::tensor there is
// one copy, `rowwise`, which serves as both, and its transpose.
// hadamard: the second copy is of (D · H) x: every 16 rows of x are multiplied by H16 / 4 after fixed signs.
// stochastic: dY of NVFP4 is rounded up or down at random. The 32 bits of a number are Philox's (base/rng.hpp) of key
// and counter {column / 4, row, sample, site}, as Dropout's are (model/ops/dropout.hpp): row is the token's position
// in its sequence of `seq` tokens (`parts` of it are held), and the rank has tokens [first_row, …) of the micro-batch
// and columns [first_column, …) of the layer's output. site = 16 + 2 · layer, and one more for the second copy.
//
// With `groups` x has groups of rows, as in GroupedGemm, each of which becomes codes as a matrix of its own would, with
// a scale of its own where the scaling has one of the tensor. Such rows have no places in a sequence: the counter of a
// number is {its place in its block of 16 / 4, hash, hash / 2^32, site}, with the hash of the block's 16 numbers as
// they are before they are scaled (exec/codes.hpp: BlockHash).
//
// of_codes: x is such codes along rows already, without gaps between groups. The first copy is x's rows, and the second
// one is made of the numbers that these codes stand for, as TransformerEngine makes it of rows that came as codes
// (pytorch/csrc/extensions/cast.cpp:695, group_requantize_inplace). Groups with Scaling::mx only.
//
// x[matrix_rows(),cols] R (of_codes: [matrix_rows(), columns of codes()]), and with G = max(groups, 1), numbers of each
// group, first those of the first copy:
// (scale[1, G] f32 R with Scaling::tensor | amax[1, (hadamard ? 2 : 1) · G] f32 R with nv and nv_16x16),
// (offsets[1,groups + 1] i32 R, where groups are not `equal`),
// (key[1,3] i32 R when `stochastic`),
// (codes[code_shape(format, scaling, rows, rows, cols)] W when `rowwise`; grouped: grouped_code_shape()),
// (column_codes W, plain: [code_shape(…, columns, rows, cols)]; transposed: [code_shape(…, rows, cols, rows)];
//  grouped: grouped_transposed_shape()),
// (inverse[1, (hadamard ? 2 : 1) · G] f32 W where the scaling has a factor, the second ones of column_codes. A code
// with
//  its scale, times inverse, is the number.)
// (recorded[1, G] f32 A when `records`: max(recorded, the largest magnitude of x).)
struct Quantise {
  std::int64_t rows = 0, cols = 0;
  Dtype format = Dtype::e4m3;
  Scaling scaling = Scaling::tensor;
  bool rowwise = true;
  ColumnCopy columnwise = ColumnCopy::none;
  bool hadamard = false, stochastic = false, records = false;
  QuantisedLayer layer = QuantisedLayer::qkv;
  std::int64_t seq = 0;
  Expr first_row = 0, first_column = 0;
  SequenceParts parts = {};
  std::int64_t groups = 0, capacity = 0;
  bool equal = false, of_codes = false;

  std::int64_t matrix_rows() const { return capacity > 0 ? capacity : rows; }
  std::int64_t x_cols() const { return of_codes ? code_shape(format, scaling, ScaledAlong::rows, 1, cols).cols : cols; }
  bool has_offsets() const { return groups > 0 && !equal; }
  GroupedRows grouped() const { return {groups, rows, capacity, equal}; }
  CodeShape codes() const {
    return groups > 0 ? grouped_code_shape(format, scaling, ScaledAlong::rows, grouped(), cols)
                      : code_shape(format, scaling, ScaledAlong::rows, rows, cols);
  }
  CodeShape column_codes() const {
    if (groups > 0)
      return columnwise == ColumnCopy::transposed
                 ? grouped_transposed_shape(format, scaling, grouped(), cols)
                 : grouped_code_shape(format, scaling, ScaledAlong::columns, grouped(), cols);
    return columnwise == ColumnCopy::transposed ? code_shape(format, scaling, ScaledAlong::rows, cols, rows)
                                                : code_shape(format, scaling, ScaledAlong::columns, rows, cols);
  }
  static constexpr const char* kKind = "quantise";
  static constexpr std::array kFields = {"rows",         "cols",       "format",  "scaling",  "rowwise", "columnwise",
                                         "hadamard",     "stochastic", "records", "layer",    "seq",     "first_row",
                                         "first_column", "parts",      "groups",  "capacity", "equal",   "of_codes"};
  bool operator==(const Quantise&) const = default;
};

// The codes of x[rows,cols] that are scaled along its columns, as those of xᵀ that are scaled along its rows. Codes and
// scales stay what they are.
//
// codes[code_shape(format, scaling, columns, rows, cols)] R,
// transposed[code_shape(format, scaling, rows, cols, rows)] W.
struct TransposeCodes {
  std::int64_t rows = 0, cols = 0;
  Dtype format = Dtype::e4m3;
  Scaling scaling = Scaling::tensor;

  static constexpr const char* kKind = "transpose_codes";
  static constexpr std::array kFields = {"rows", "cols", "format", "scaling"};
  bool operator==(const TransposeCodes&) const = default;
};

namespace operand_specs {

// Returns the operand with codes of a matrix [rows, cols].
inline OperandSpec codes_of(const char* name, const char* modes, Dtype format, Scaling scaling, ScaledAlong along,
                            std::int64_t rows, std::int64_t cols) {
  const CodeShape shape = code_shape(format, scaling, along, rows, cols);
  return {name, modes, shape.rows, shape.cols, Shape::matrix, Type::codes};
}

// Returns why a matrix has no such groups of rows, or "".
inline std::string problem_of(const GroupedRows& g) {
  if (g.groups < 0) return "groups must be positive";
  if (g.groups == 0) return g.capacity == 0 && !g.equal ? "" : "capacity and equal are of groups";
  if (g.equal && (g.capacity != 0 || g.rows % g.groups != 0)) return "groups must have equally many rows";
  return g.capacity == 0 || g.capacity >= g.rows ? "" : "capacity must be at least rows";
}

}  // namespace operand_specs

OperandList operands(const Amax& work);
OperandList operands(const UpdateScale& work);
OperandList operands(const Quantise& work);
OperandList operands(const TransposeCodes& work);
std::string sizes_text(const Amax& work);
std::string sizes_text(const Quantise& work);

// A work of low precision.
template <class W>
concept OfLowPrecision = std::is_same_v<W, Amax> || std::is_same_v<W, UpdateScale> || std::is_same_v<W, Quantise> ||
    std::is_same_v<W, TransposeCodes>;

}  // namespace stretto
