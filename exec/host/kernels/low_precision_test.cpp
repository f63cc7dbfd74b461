#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/crc32.hpp"
#include "base/rng.hpp"
#include "base/scaling.hpp"
#include "exec/host/kernels/codes.hpp"
#include "exec/host/kernels/families.hpp"
#include "tests/kernel_testing.hpp"
#include "tests/plain_codes.hpp"

namespace stretto::host {
namespace {

using stretto::testing::Bytes;
using testing::Matrix;
using Plain = stretto::testing::PlainCodes;

// bf16 numbers of both signs from 2^-7 to 2, of a hash of their place: low_precision_reference.py has the same.
Matrix<Bf16> numbers(std::int64_t rows, std::int64_t cols, std::uint32_t seed = 12345) {
  Matrix<Bf16> x(rows, cols, 3);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      std::uint32_t u = static_cast<std::uint32_t>(r * cols + c) * 2654435761u + seed;
      u = (u ^ u >> 15) * 2246822519u;
      u ^= u >> 13;
      x.at(r, c).bits = static_cast<std::uint16_t>(u >> 31 << 15 | (0x3c00u + (u & 0x3ffu)));
    }
  return x;
}

struct Buffer {  // of codes; bytes that nobody writes are 0xee
  std::int64_t rows, cols, gap;
  Dtype format;
  Bytes bytes;
  Buffer(CodeShape shape, Dtype of, std::int64_t gap_ = 0)
      : rows(shape.rows),
        cols(shape.cols),
        gap(gap_),
        format(of),
        bytes(static_cast<std::size_t>(rows * (cols + gap)), 0xee) {}
  Operand operand(AccessMode mode = AccessMode::read) { return {bytes.data(), format, rows, cols, cols + gap, mode}; }
  Operand write() { return operand(AccessMode::write); }
  Bytes without_gaps() const {
    Bytes result;
    for (std::int64_t r = 0; r < rows; ++r)
      result.insert(result.end(), bytes.begin() + r * (cols + gap), bytes.begin() + r * (cols + gap) + cols);
    return result;
  }
};
Operand scalar(float& value, AccessMode mode = AccessMode::read) { return {&value, Dtype::f32, 1, 1, 1, mode}; }

Plain plain_of(const Matrix<Bf16>& x, Dtype format, Scaling scaling, ScaledAlong along, bool transposed = false) {
  const std::int64_t rows = transposed ? x.cols : x.rows, cols = transposed ? x.rows : x.cols;
  std::vector<float> all;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) all.push_back(to_float(transposed ? x.at(c, r) : x.at(r, c)));
  return Plain(format, scaling, along, rows, cols, std::move(all));
}

struct Format {
  Dtype format;
  Scaling scaling;
};
const std::vector<Format> kFormats = {
    {Dtype::e4m3, Scaling::tensor},    {Dtype::e5m2, Scaling::tensor},        {Dtype::e4m3, Scaling::block_128},
    {Dtype::e5m2, Scaling::block_128}, {Dtype::e4m3, Scaling::block_128x128}, {Dtype::e4m3, Scaling::mx},
    {Dtype::e5m2, Scaling::mx},        {Dtype::e2m1x2, Scaling::nv},          {Dtype::e2m1x2, Scaling::nv_16x16}};

struct Quantised {
  Buffer codes, columns;
  float inverse[2] = {NAN, NAN};
};
Quantised quantise(Matrix<Bf16>& x, const Format& of, ColumnCopy copy, float tensor_amax, std::int64_t gap = 5) {
  Quantise work{.rows = x.rows, .cols = x.cols, .format = of.format, .scaling = of.scaling, .columnwise = copy};
  Quantised result{{work.codes(), of.format, gap}, {work.column_codes(), of.format, gap}};
  float amax = tensor_amax, scale = scale_of_amax(amax, of.format == Dtype::e5m2 ? E5m2::kMax : E4m3::kMax);
  std::vector<Operand> operands{x.operand()};
  if (of.scaling == Scaling::tensor)
    operands.push_back(scalar(scale));
  else if (rule_of(of.scaling).has_factor)
    operands.push_back(scalar(amax));
  operands.push_back(result.codes.write());
  if (copy != ColumnCopy::none) operands.push_back(result.columns.write());
  if (rule_of(of.scaling).has_factor) operands.push_back(scalar(result.inverse[0], AccessMode::write));
  run_kernel(work, operands);
  return result;
}

std::uint32_t crc32_of(const Bytes& bytes) { return crc32(bytes.data(), bytes.size()); }

}  // namespace

TEST_CASE("codes, scales and their places are those of the plain description", "[kernels]") {
  Matrix<Bf16> x = numbers(192, 320);  // blocks of 128 end short
  for (const Format& of : kFormats)
    for (const ColumnCopy copy : {ColumnCopy::none, ColumnCopy::plain, ColumnCopy::transposed}) {
      const bool one_copy = of.scaling == Scaling::tensor;
      if (one_copy && copy == ColumnCopy::plain) continue;
      INFO(name_of(of.format) << " " << name_of(of.scaling) << " " << static_cast<int>(copy));
      const Plain plain = plain_of(x, of.format, of.scaling, ScaledAlong::rows);
      const Quantised made = quantise(x, of, copy, plain.tensor_amax);
      CHECK(made.codes.without_gaps() == plain.stored());
      if (copy == ColumnCopy::plain)
        CHECK(made.columns.without_gaps() == plain_of(x, of.format, of.scaling, ScaledAlong::columns).stored());
      if (copy == ColumnCopy::transposed)
        CHECK(made.columns.without_gaps() == plain_of(x, of.format, of.scaling, ScaledAlong::rows, true).stored());
      if (one_copy) CHECK(made.inverse[0] == 1 / plain.tensor_scale);
      if (rule_of(of.scaling).block == 16) CHECK(made.inverse[0] == nv_tensor_scale(plain.tensor_amax).inverse);
    }
}

// Codes of 256 × 512 numbers by tests/low_precision_reference.py.
TEST_CASE("codes and scales have the checksums of the reference in numpy", "[kernels]") {
  const Matrix<Bf16> x = numbers(256, 512);
  struct Case {
    Dtype format;
    Scaling scaling;
    bool transposed;
    std::uint32_t codes, scales;
  };
  for (const Case& c : {Case{Dtype::e4m3, Scaling::tensor, false, 0x02138124, 0},
                        Case{Dtype::e5m2, Scaling::tensor, false, 0x2ab51210, 0},
                        Case{Dtype::e4m3, Scaling::tensor, true, 0xc4cb7ef1, 0},
                        Case{Dtype::e4m3, Scaling::block_128, false, 0xf1069ca1, 0xc089678b},
                        Case{Dtype::e5m2, Scaling::block_128, false, 0x99610639, 0x485e6163},
                        Case{Dtype::e4m3, Scaling::block_128, true, 0x163ecc30, 0xf84fcf47},
                        Case{Dtype::e5m2, Scaling::block_128, true, 0x7770f26b, 0x97e7e55d},
                        Case{Dtype::e4m3, Scaling::block_128x128, false, 0x0fd5d7a0, 0xd6aa6453},
                        Case{Dtype::e4m3, Scaling::mx, false, 0xaf387d54, 0x682dee6d},
                        Case{Dtype::e4m3, Scaling::mx, true, 0xf1caf191, 0x87afcc56},
                        Case{Dtype::e2m1x2, Scaling::nv, false, 0x5b0d33a4, 0x68b105ac},
                        Case{Dtype::e2m1x2, Scaling::nv, true, 0x56cc19a2, 0xc0e34b53},
                        Case{Dtype::e2m1x2, Scaling::nv_16x16, false, 0x2f64318c, 0x8beb3cd8}}) {
    INFO(name_of(c.format) << " " << name_of(c.scaling) << (c.transposed ? " transposed" : ""));
    const Plain plain = plain_of(x, c.format, c.scaling, ScaledAlong::rows, c.transposed);
    CHECK(crc32_of(plain.codes()) == c.codes);
    const ScalingRule rule = rule_of(c.scaling);
    if (rule.block == 0) continue;
    Bytes scales;
    for (std::int64_t r = 0; r < plain.rows; r += rule.is_square ? rule.block : 1)
      for (std::int64_t col = 0; col < plain.cols; col += rule.block) {
        const Bytes scale = plain.scale_at(r, col);
        scales.insert(scales.end(), scale.begin(), scale.end());
      }
    CHECK(crc32_of(scales) == c.scales);
  }
}

TEST_CASE("codes that are transposed are those of the transposed matrix", "[kernels]") {
  Matrix<Bf16> x = numbers(192, 320);
  for (const Format& of : kFormats) {
    INFO(name_of(of.format) << " " << name_of(of.scaling));
    const Plain transposed = plain_of(x, of.format, of.scaling, ScaledAlong::rows, true);
    const bool one_copy = of.scaling == Scaling::tensor;
    Quantised made = quantise(x, of, one_copy ? ColumnCopy::none : ColumnCopy::plain, transposed.tensor_amax);
    Buffer result(code_shape(of.format, of.scaling, ScaledAlong::rows, x.cols, x.rows), of.format, 2);
    run_kernel(TransposeCodes{x.rows, x.cols, of.format, of.scaling},
               std::vector<Operand>{one_copy ? made.codes.operand() : made.columns.operand(), result.write()});
    CHECK(result.without_gaps() == transposed.stored());
  }
}

TEST_CASE("NVFP4: the second copy is of Hadamard transforms down the columns", "[kernels]") {
  Matrix<Bf16> x = numbers(256, 512), turned(x.rows, x.cols);
  for (std::int64_t c = 0; c < x.cols; ++c)
    for (std::int64_t top = 0; top < x.rows; top += kNvBlock) {
      float column[kNvBlock], result[kNvBlock];
      for (int i = 0; i < kNvBlock; ++i) column[i] = to_float(x.at(top + i, c));
      hadamard16(column, result);
      for (int i = 0; i < kNvBlock; ++i) turned.at(top + i, c) = to_bf16(result[i]);
    }
  float amax[2];
  run_kernel(Amax{x.rows, x.cols, true},
             std::vector<Operand>{x.operand(), {amax, Dtype::f32, 1, 2, 2, AccessMode::write}});
  const Plain plain = plain_of(x, Dtype::e2m1x2, Scaling::nv, ScaledAlong::rows),
              second = plain_of(turned, Dtype::e2m1x2, Scaling::nv, ScaledAlong::rows, true);
  CHECK(amax[0] == plain.tensor_amax);
  CHECK(amax[1] == second.tensor_amax);
  CHECK(crc32(second.x.data(), second.x.size() * sizeof(float)) == 0x12777e8a);
  CHECK(crc32_of(second.codes()) == 0xd5653b82);
  const Quantise work{.rows = x.rows,
                      .cols = x.cols,
                      .format = Dtype::e2m1x2,
                      .scaling = Scaling::nv,
                      .columnwise = ColumnCopy::transposed,
                      .hadamard = true};
  Buffer codes(work.codes(), work.format), columns(work.column_codes(), work.format);
  float inverse[2];
  run_kernel(work, std::vector<Operand>{x.operand(),
                                        {amax, Dtype::f32, 1, 2, 2},
                                        codes.write(),
                                        columns.write(),
                                        {inverse, Dtype::f32, 1, 2, 2, AccessMode::write}});
  CHECK(codes.bytes == plain.stored());
  CHECK(columns.bytes == second.stored());
  CHECK(inverse[0] == nv_tensor_scale(amax[0]).inverse);
  CHECK(inverse[1] == nv_tensor_scale(amax[1]).inverse);
}

TEST_CASE("stochastic rounding depends on places in the whole tensor only", "[kernels]") {
  constexpr std::int64_t kSeq = 32, kTokens = 3 * kSeq, kCols = 96;
  Matrix<Bf16> x = numbers(kTokens, kCols);
  float amax = plain_of(x, Dtype::e2m1x2, Scaling::nv, ScaledAlong::rows).tensor_amax, inverse = 0;
  // Returns codes of a part of x, along rows and transposed; the key says which sample is the first.
  const auto part = [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols, int first_sample,
                        std::int64_t first_row, std::int64_t layer_column) {
    std::int32_t key[3] = {77, -5, first_sample};
    Quantise work{.rows = rows, .cols = cols, .format = Dtype::e2m1x2, .scaling = Scaling::nv};
    work.columnwise = ColumnCopy::transposed;
    work.stochastic = true;
    work.layer = QuantisedLayer::fc1;
    work.seq = kSeq;
    work.first_row = first_row;
    work.first_column = layer_column;
    Buffer codes(work.codes(), work.format), columns(work.column_codes(), work.format);
    Operand from = x.operand();
    from.data = &x.at(row, col);
    from.rows = rows;
    from.cols = cols;
    run_kernel(work, std::vector<Operand>{from,
                                          scalar(amax),
                                          {key, Dtype::i32, 1, 3, 3},
                                          codes.write(),
                                          columns.write(),
                                          scalar(inverse, AccessMode::write)});
    return std::pair(codes.bytes, columns.bytes);
  };
  const auto [codes, columns] = part(0, kTokens, 0, kCols, 4, 0, 0);
  // Rows of one layer's output, of two micro-batches, of two parts of a micro-batch, and of halves of the columns.
  const auto row_bytes = kCols / 2 + kCols / 16;
  const Bytes last_sample = part(2 * kSeq, kSeq, 0, kCols, 6, 0, 0).first;
  CHECK(Bytes(codes.begin() + 2 * kSeq * row_bytes, codes.end()) == last_sample);
  CHECK(last_sample == part(2 * kSeq, kSeq, 0, kCols, 4, 2 * kSeq, 0).first);
  const auto [right, right_columns] = part(0, kTokens, 32, 64, 4, 0, 32);
  for (std::int64_t r = 0; r < kTokens; ++r)
    CHECK(Bytes(codes.begin() + r * row_bytes + 16, codes.begin() + r * row_bytes + 48) ==
          Bytes(right.begin() + r * 36, right.begin() + r * 36 + 32));
  CHECK(Bytes(columns.begin() + 32 * (kTokens / 2 + kTokens / 16), columns.end()) == right_columns);
  CHECK(codes != part(0, kTokens, 0, kCols, 5, 0, 0).first);

  // One number, from its words.
  const NvTensorScale of_tensor = nv_tensor_scale(amax);
  const auto factor_of = [&](std::int64_t r, std::int64_t c, bool down) {
    float of_block = 0;
    for (std::int64_t i = 0; i < 16; ++i)
      of_block = larger_magnitude(of_block, to_float(down ? x.at(r / 16 * 16 + i, c) : x.at(r, c / 16 * 16 + i)));
    return nv_block_scale(of_block, of_tensor).factor;
  };
  int different = 0;
  for (std::int64_t r = 0; r < kTokens; ++r)
    for (std::int64_t c = 0; c < kCols; ++c)
      for (const bool down : {false, true}) {
        const std::uint32_t site = 16 + 2 * 2 + (down ? 1 : 0);
        const auto words = philox4x32({static_cast<std::uint32_t>(c / 4), static_cast<std::uint32_t>(r % kSeq),
                                       static_cast<std::uint32_t>(4 + r / kSeq), site},
                                      {77u, static_cast<std::uint32_t>(-5)});
        const std::uint8_t expected = to_code_stochastically<E2m1>(to_float(x.at(r, c)) * factor_of(r, c, down),
                                                                   words[static_cast<std::size_t>(c % 4)]);
        const std::uint8_t both = down ? columns[static_cast<std::size_t>(c * (kTokens / 2 + kTokens / 16) + r / 2)]
                                       : codes[static_cast<std::size_t>(r * row_bytes + c / 2)];
        different += ((down ? r : c) % 2 == 0 ? both & 15 : both >> 4) != expected;
      }
  CHECK(different == 0);
}

TEST_CASE("amaxes: NaN and infinity are seen, and delayed scales follow the history", "[kernels]") {
  Matrix<Bf16> x = numbers(16, 40);
  float amax = 7;
  const auto amax_of_x = [&] {
    run_kernel(Amax{x.rows, x.cols}, std::vector<Operand>{x.operand(), scalar(amax, AccessMode::write)});
    return amax;
  };
  x.at(3, 39) = to_bf16(-5.0f);
  CHECK(amax_of_x() == 5);
  x.at(15, 0) = to_bf16(-INFINITY);
  CHECK(std::isinf(amax_of_x()));
  x.at(0, 1) = to_bf16(NAN);
  CHECK(std::isnan(amax_of_x()));

  std::vector<float> amaxes = {2, 0, INFINITY}, history = {8, 16, 4, 0, 1, 1}, scales = {3, 3, 3};
  const auto vector = [](std::vector<float>& of, AccessMode mode) {
    const auto count = static_cast<std::int64_t>(of.size());
    return Operand{of.data(), Dtype::f32, 1, count, count, mode};
  };
  UpdateScale work{3, 2, Dtype::e4m3, 1, false};
  const auto update = [&] {
    run_kernel(work,
               std::vector<Operand>{vector(amaxes, AccessMode::accumulate), vector(history, AccessMode::accumulate),
                                    vector(scales, AccessMode::accumulate)});
  };
  update();
  CHECK(amaxes == std::vector<float>{0, 0, 0});
  CHECK(history == std::vector<float>{2, 8, 0, 4, INFINITY, 1});
  CHECK(scales == std::vector<float>{448.0f / 8 / 2, 448.0f / 4 / 2, 3});
  work.most_recent = true;
  work.format = Dtype::e5m2;
  work.margin = 0;
  amaxes = {7, 0, 1};
  update();
  CHECK(scales == std::vector<float>{57344.0f / 7, 448.0f / 4 / 2, 57344});
  std::vector<float> now = {0, 14, NAN};
  run_kernel(UpdateScale{3, 0, Dtype::e4m3},
             std::vector<Operand>{vector(now, AccessMode::read), vector(scales, AccessMode::write)});
  CHECK(scales == std::vector<float>{1, 32, 1});

  // Quantise records: the amax only grows.
  float scale = 1, inverse = 0, recorded = 1;
  Matrix<Bf16> y = numbers(4, 16);
  y.at(1, 1) = to_bf16(-3.0f);
  Quantise cast{.rows = 4, .cols = 16};
  cast.records = true;
  Buffer codes(cast.codes(), cast.format);
  const auto record = [&] {
    run_kernel(cast, std::vector<Operand>{y.operand(), scalar(scale), codes.write(), scalar(inverse, AccessMode::write),
                                          scalar(recorded, AccessMode::accumulate)});
    return recorded;
  };
  CHECK(record() == 3);
  recorded = 9;
  CHECK(record() == 9);
}

// Sums in order of k, each product rounded to f32 once added: nothing else is rounded before the tensors' factors.
TEST_CASE("products of codes have the bits of sums in order", "[kernels]") {
  constexpr std::int64_t kM = 128, kN = 128, kK = 320;
  struct Case {
    Dtype a, b;
    Scaling scaling_a, scaling_b;
  };
  for (const Case& of : {Case{Dtype::e4m3, Dtype::e4m3, Scaling::tensor, Scaling::tensor},
                         Case{Dtype::e5m2, Dtype::e4m3, Scaling::tensor, Scaling::tensor},
                         Case{Dtype::e4m3, Dtype::e4m3, Scaling::block_128, Scaling::block_128x128},
                         Case{Dtype::e5m2, Dtype::e4m3, Scaling::block_128, Scaling::block_128},
                         Case{Dtype::e4m3, Dtype::e5m2, Scaling::mx, Scaling::mx},
                         Case{Dtype::e2m1x2, Dtype::e2m1x2, Scaling::nv, Scaling::nv_16x16}})
    for (int form = 0; form < 8; ++form) {
      const bool trans_a = (form & 1) != 0, trans_b = (form & 2) != 0, accumulate = (form & 4) != 0;
      INFO(name_of(of.a) << " " << name_of(of.scaling_a) << " " << name_of(of.scaling_b) << " form " << form);
      const Plain a = plain_of(numbers(trans_a ? kK : kM, trans_a ? kM : kK, 1), of.a, of.scaling_a,
                               trans_a ? ScaledAlong::columns : ScaledAlong::rows),
                  b = plain_of(numbers(trans_b ? kN : kK, trans_b ? kK : kN, 2), of.b, of.scaling_b,
                               trans_b ? ScaledAlong::rows : ScaledAlong::columns);
      // Products of the first rows and columns, which end inside of tiles.
      Gemm work{kM, kN, kK, trans_a, trans_b, !accumulate};
      work.scaling_a = of.scaling_a;
      work.scaling_b = of.scaling_b;
      Bytes bytes_a = a.stored(), bytes_b = b.stored();
      const CodeShape shape_a = code_shape(of.a, of.scaling_a, a.along, a.rows, a.cols),
                      shape_b = code_shape(of.b, of.scaling_b, b.along, b.rows, b.cols);
      float inverse_a = 1 / a.tensor_scale, inverse_b = 1 / b.tensor_scale;
      Matrix<float> bias = testing::random_matrix<float>(1, kN, 5), c = testing::random_matrix<float>(kM, kN, 6, 3);
      const Matrix<float> before = c;
      std::vector<Operand> operands{{bytes_a.data(), of.a, shape_a.rows, shape_a.cols, shape_a.cols},
                                    {bytes_b.data(), of.b, shape_b.rows, shape_b.cols, shape_b.cols}};
      if (work.bias) operands.push_back(bias.operand());
      if (work.has_factors()) {
        operands.push_back(scalar(inverse_a));
        operands.push_back(scalar(inverse_b));
      }
      operands.push_back(accumulate ? c.accumulate() : c.write());
      gemm_of_codes(work, operands);

      const std::int64_t block = rule_of(of.scaling_a).block == 128 ? 128 : kK;
      int different = 0;
      for (const std::int64_t i : {0, 5, 6, 127})
        for (const std::int64_t j : {0, 15, 16, 17, 127}) {
          volatile float total = 0;  // each step is rounded
          for (std::int64_t begin = 0; begin < kK; begin += block) {
            volatile float sum = 0;
            for (std::int64_t k = begin; k < std::min(begin + block, std::int64_t{kK}); ++k) {
              volatile float product =
                  (trans_a ? a.number_at(k, i) : a.number_at(i, k)) * (trans_b ? b.number_at(j, k) : b.number_at(k, j));
              sum = sum + product;
            }
            total = total + sum;
          }
          if (work.has_factors()) {
            volatile float factor = inverse_a * inverse_b;
            total = total * factor;
          }
          if (work.bias) total = total + bias.at(0, j);
          if (accumulate) total = before.at(i, j) + total;
          different +=
              std::bit_cast<std::uint32_t>(static_cast<float>(total)) != std::bit_cast<std::uint32_t>(c.at(i, j));
        }
      CHECK(different == 0);
    }
}

// Forward pass, gradient of the input and weight gradient, with rounding to nearest: tests/low_precision_reference.py.
TEST_CASE("the products of a layer have the checksums of the reference in numpy", "[kernels]") {
  constexpr std::int64_t kTokens = 128, kIn = 256, kOut = 128;
  struct Case {
    Scaling rows, weights;
    Dtype forward, gradients;
    std::array<std::uint32_t, 3> checksums;
  };
  for (const Case& of :
       {Case{Scaling::tensor, Scaling::tensor, Dtype::e4m3, Dtype::e5m2, {0xea1aa71f, 0x7879b71d, 0xd8131d82}},
        Case{
            Scaling::block_128, Scaling::block_128x128, Dtype::e4m3, Dtype::e4m3, {0x83aeb95c, 0xbfa4355e, 0x090a3deb}},
        Case{Scaling::mx, Scaling::mx, Dtype::e4m3, Dtype::e5m2, {0x98ffef78, 0xb938d166, 0x8ffcd4de}},
        Case{Scaling::nv, Scaling::nv_16x16, Dtype::e2m1x2, Dtype::e2m1x2, {0x7e208280, 0x757e108d, 0x269fb388}}}) {
    INFO(name_of(of.rows));
    Matrix<Bf16> x = numbers(kTokens, kIn, 1), w = numbers(kOut, kIn, 2), dy = numbers(kTokens, kOut, 3);
    const bool is_one = of.rows == Scaling::tensor, is_nv = of.rows == Scaling::nv;
    const auto both = [&](Matrix<Bf16>& matrix, const Format& format) {
      const float amax = plain_of(matrix, format.format, Scaling::tensor, ScaledAlong::rows).tensor_amax;
      if (!is_nv || rule_of(format.scaling).is_square) {
        const bool serves_both = is_one || format.scaling == Scaling::block_128x128;
        Quantised made = quantise(matrix, format, serves_both ? ColumnCopy::none : ColumnCopy::plain, amax, 0);
        made.inverse[1] = made.inverse[0];
        if (serves_both) made.columns = made.codes;
        return made;
      }
      Quantise work{.rows = matrix.rows, .cols = matrix.cols, .format = format.format, .scaling = format.scaling};
      work.columnwise = ColumnCopy::plain;
      work.hadamard = true;
      Quantised made{{work.codes(), work.format}, {work.column_codes(), work.format}};
      float amaxes[2];
      const Operand pair{amaxes, Dtype::f32, 1, 2, 2}, inverses{made.inverse, Dtype::f32, 1, 2, 2, AccessMode::write};
      run_kernel(Amax{matrix.rows, matrix.cols, true},
                 std::vector<Operand>{matrix.operand(), {amaxes, Dtype::f32, 1, 2, 2, AccessMode::write}});
      run_kernel(work,
                 std::vector<Operand>{matrix.operand(), pair, made.codes.write(), made.columns.write(), inverses});
      return made;
    };
    Quantised of_x = both(x, {of.forward, of.rows}), of_w = both(w, {of.forward, of.weights}),
              of_dy = both(dy, {of.gradients, of.rows});
    const auto checksum_of = [&](Gemm work, Operand a, float inverse_a, Operand b, float inverse_b) {
      work.bias = false;
      Matrix<float> c(work.m, work.n);
      std::vector<Operand> operands{a, b};
      if (work.has_factors()) operands.insert(operands.end(), {scalar(inverse_a), scalar(inverse_b)});
      operands.push_back(c.write());
      gemm_of_codes(work, operands);
      std::vector<float> values;
      for (std::int64_t r = 0; r < c.rows; ++r)
        for (std::int64_t col = 0; col < c.cols; ++col) values.push_back(c.at(r, col));
      return crc32(values.data(), values.size() * sizeof(float));
    };
    const auto with = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b, Scaling b) {
      Gemm work{m, n, k, trans_a, trans_b};
      work.scaling_a = of.rows;
      work.scaling_b = b;
      return work;
    };
    CHECK(checksum_of(with(kTokens, kOut, kIn, false, true, of.weights), of_x.codes.operand(), of_x.inverse[0],
                      of_w.codes.operand(), of_w.inverse[0]) == of.checksums[0]);
    CHECK(checksum_of(with(kTokens, kIn, kOut, false, false, of.weights), of_dy.codes.operand(), of_dy.inverse[0],
                      of_w.columns.operand(), of_w.inverse[0]) == of.checksums[1]);
    CHECK(checksum_of(with(kOut, kIn, kTokens, true, false, of.rows), of_dy.columns.operand(), of_dy.inverse[1],
                      of_x.columns.operand(), of_x.inverse[1]) == of.checksums[2]);
  }
}

namespace {

// Groups of rows as codes, in both copies, with a scale of their own where the scaling has one of the tensor.
struct QuantisedGroups {
  Quantise work;
  Buffer codes, columns;
  std::vector<float> amaxes, scales, inverses;
  Operand vector(std::vector<float>& values, AccessMode mode = AccessMode::read) {
    const auto size = std::ssize(values);
    return {values.data(), Dtype::f32, 1, size, size, mode};
  }
  QuantisedGroups(Matrix<Bf16>& x, const GroupedRows& groups, Operand offsets, Scaling scaling, ColumnCopy copy)
      : work{.rows = groups.rows,
             .cols = x.cols,
             .scaling = scaling,
             .columnwise = copy,
             .groups = groups.groups,
             .capacity = groups.capacity,
             .equal = groups.equal},
        codes(work.codes(), Dtype::e4m3),
        columns(work.column_codes(), Dtype::e4m3),
        amaxes(static_cast<std::size_t>(groups.groups), NAN),
        scales(amaxes),
        inverses(amaxes) {
    std::vector<Operand> measured{x.operand()}, operands{x.operand()};
    if (scaling == Scaling::tensor) operands.push_back(vector(scales));
    for (std::vector<Operand>* of : {&measured, &operands})
      if (!groups.equal) of->push_back(offsets);
    measured.push_back(vector(amaxes, AccessMode::write));
    run_kernel(Amax{groups.rows, x.cols, false, groups.groups, groups.capacity, groups.equal}, measured);
    run_kernel(UpdateScale{.elements = groups.groups},
               std::vector<Operand>{vector(amaxes), vector(scales, AccessMode::write)});
    operands.push_back(codes.write());
    if (copy != ColumnCopy::none) operands.push_back(columns.write());
    if (scaling == Scaling::tensor) operands.push_back(vector(inverses, AccessMode::write));
    run_kernel(work, operands);
  }
  Operand over_rows() { return work.columnwise == ColumnCopy::none ? codes.operand() : columns.operand(); }
};

}  // namespace

TEST_CASE("codes and products of groups are those of matrices of their own, rounded up with zeros", "[kernels]") {
  constexpr std::int64_t kN = 128, kK = 256, kCapacity = 60;
  const std::vector<std::int64_t> sizes = {5, 0, 40};
  std::vector<std::int32_t> starts = {0, 5, 5, 45};
  const Operand offsets{starts.data(), Dtype::i32, 1, 4, 4, AccessMode::read};
  const GroupedRows rows{3, 30, kCapacity, false}, weights{3, 3 * kN, 0, true};
  struct Case {
    Scaling rows, weights;
    bool transposes;
  };
  for (const Case& of :
       {Case{Scaling::tensor, Scaling::tensor, false}, Case{Scaling::tensor, Scaling::tensor, true},
        Case{Scaling::block_128, Scaling::block_128x128, false}, Case{Scaling::block_128, Scaling::block_128x128, true},
        Case{Scaling::mx, Scaling::mx, false}}) {
    INFO(name_of(of.rows) << (of.transposes ? ", transposes" : ""));
    Matrix<Bf16> x = numbers(kCapacity, kK, 1), dy = numbers(kCapacity, kN, 2), w = numbers(3 * kN, kK, 3);
    const auto copy_of = [&](Scaling scaling) {
      const bool is_one = scaling == Scaling::tensor || scaling == Scaling::block_128x128;
      return of.transposes ? ColumnCopy::transposed : is_one ? ColumnCopy::none : ColumnCopy::plain;
    };
    QuantisedGroups x_codes(x, rows, offsets, of.rows, copy_of(of.rows)),
        dy_codes(dy, rows, offsets, of.rows, copy_of(of.rows)),
        w_codes(w, weights, {}, of.weights, copy_of(of.weights));
    Matrix<float> y(kCapacity, kN, 1), dx(kCapacity, kK, 2), dw = testing::random_matrix<float>(3 * kN, kK, 7, 3);
    const Matrix<float> before = dw;
    const auto run = [&](Pass pass, Operand a, QuantisedGroups& of_a, Operand b, QuantisedGroups& of_b, Operand c) {
      GroupedGemm product{pass, 3, 30, kN, kK, kCapacity};
      product.scaling_a = of.rows;
      product.scaling_b = pass == Pass::wgrad ? of.rows : of.weights;
      product.transposes = of.transposes && pass != Pass::forward;
      std::vector<Operand> operands{a, b, offsets};
      if (product.has_factors())
        operands.insert(operands.end(), {of_a.vector(of_a.inverses), of_b.vector(of_b.inverses)});
      operands.push_back(c);
      run_kernel(product, operands);
    };
    run(Pass::forward, x_codes.codes.operand(), x_codes, w_codes.codes.operand(), w_codes, y.write());
    run(Pass::dgrad, dy_codes.codes.operand(), dy_codes, w_codes.over_rows(), w_codes, dx.write());
    run(Pass::wgrad, dy_codes.over_rows(), dy_codes, x_codes.over_rows(), x_codes, dw.accumulate());

    int different = 0;
    for (std::int64_t g = 0; g < 3; ++g) {
      const std::int64_t size = sizes[static_cast<std::size_t>(g)], first = starts[static_cast<std::size_t>(g)],
                         padded = GroupedRows::rounded(size, group_rows_of(of.rows));
      const auto part = [](const Matrix<Bf16>& all, std::int64_t from, std::int64_t count, std::int64_t out_of) {
        Matrix<Bf16> result(out_of, all.cols);
        for (std::int64_t r = 0; r < out_of; ++r)
          for (std::int64_t c = 0; c < all.cols; ++c)
            result.at(r, c).bits = r < count ? all.at(from + r, c).bits : std::uint16_t{0};
        return result;
      };
      const auto codes_of_one = [&](Matrix<Bf16> one, Scaling scaling) {
        float amax = 0;
        one.for_each([&](std::int64_t, std::int64_t, Bf16 number) { amax = larger_magnitude(amax, to_float(number)); });
        return quantise(one, {Dtype::e4m3, scaling}, copy_of(scaling), amax, 0);
      };
      if (size == 0) {
        for (std::int64_t r = g * kN; r < (g + 1) * kN; ++r)
          for (std::int64_t c = 0; c < kK; ++c) different += dw.at(r, c) != before.at(r, c);
        continue;
      }
      Quantised of_x = codes_of_one(part(x, first, size, padded), of.rows),
                of_dy = codes_of_one(part(dy, first, size, padded), of.rows),
                of_w = codes_of_one(part(w, g * kN, kN, kN), of.weights);
      const auto second = [&](Quantised& one, Scaling scaling) {
        return copy_of(scaling) == ColumnCopy::none ? one.codes.operand() : one.columns.operand();
      };
      const auto compare = [&](Gemm product, Scaling b_scaling, Operand a, Quantised& of_a, Operand b, Quantised& of_b,
                               Matrix<float> expected, bool adds, const Matrix<float>& got, std::int64_t at,
                               std::int64_t count) {
        product.scaling_a = of.rows;
        product.scaling_b = b_scaling;
        std::vector<Operand> operands{a, b};
        if (product.has_factors()) operands.insert(operands.end(), {scalar(of_a.inverse[0]), scalar(of_b.inverse[0])});
        operands.push_back(adds ? expected.accumulate() : expected.write());
        gemm_of_codes(product, operands);
        for (std::int64_t r = 0; r < count; ++r)
          for (std::int64_t c = 0; c < product.n; ++c) different += expected.at(r, c) != got.at(at + r, c);
      };
      compare({padded, kN, kK, false, true, false}, of.weights, of_x.codes.operand(), of_x, of_w.codes.operand(), of_w,
              Matrix<float>(padded, kN), false, y, first, size);
      compare({padded, kK, kN, false, of.transposes, false}, of.weights, of_dy.codes.operand(), of_dy,
              second(of_w, of.weights), of_w, Matrix<float>(padded, kK), false, dx, first, size);
      Matrix<float> sum(kN, kK);
      for (std::int64_t r = 0; r < kN; ++r)
        for (std::int64_t c = 0; c < kK; ++c) sum.at(r, c) = before.at(g * kN + r, c);
      compare({kN, kK, padded, !of.transposes, of.transposes, false}, of.rows, second(of_dy, of.rows), of_dy,
              second(of_x, of.rows), of_x, sum, true, dw, g * kN, kN);
    }
    CHECK(different == 0);
    std::swap(starts[1], starts[3]);
    CHECK_THROWS(run(Pass::forward, x_codes.codes.operand(), x_codes, w_codes.codes.operand(), w_codes, y.write()));
    std::swap(starts[1], starts[3]);
  }
}

}  // namespace stretto::host
