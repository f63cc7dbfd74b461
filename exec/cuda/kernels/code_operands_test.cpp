// Tests of codes as cuBLASLt takes them, on the emulated device.
#include "exec/cuda/kernels/code_operands.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "exec/cuda/code_scratch.hpp"
#include "tests/kernel_operands.hpp"

#if !defined(STRETTO_ON_GPU)
namespace stretto::cuda {
namespace {

struct StoredCodes {
  std::vector<std::uint8_t> bytes;
  exec::Codes codes;
  StoredCodes(Dtype format, Scaling scaling, ScaledAlong along, std::int64_t rows, std::int64_t cols) {
    const CodeShape shape = code_shape(format, scaling, along, rows, cols);
    for (std::int64_t i = 0; i < shape.rows * shape.cols; ++i)
      bytes.push_back(static_cast<std::uint8_t>(uniform(7, 3, static_cast<std::uint64_t>(i)) * 256));
    codes = {bytes.data(), shape.cols, format, scaling, along, rows, cols};
  }
};

std::vector<std::uint8_t> arranged(const exec::Codes& codes) {
  const ScaleGrid grid = scale_grid_of(codes.scaling, codes.along, codes.rows, codes.cols);
  std::vector<std::uint8_t> to(static_cast<std::size_t>(grid.bytes), 0xcc);
  std::vector<std::uint8_t> scratch(1 << 16);
  arrange_scales(codes, to.data(), {nullptr, scratch.data(), scratch.size(), 3});
  return to;
}

}  // namespace

// Places that NVIDIA's layout has, written down by hand for single scales.
TEST_CASE("scales of one byte lie in tiles of 128 by 4", "[cuda]") {
  const StoredCodes rows(Dtype::e4m3, Scaling::mx, ScaledAlong::rows, 200, 192);  // 6 scales a row: two tiles
  const std::vector<std::uint8_t> of_rows = arranged(rows.codes);
  REQUIRE(of_rows.size() == 2 * 2 * 512);
  const auto scale = [&](std::int64_t row, std::int64_t block) { return *rows.codes.scale_at(row, block * 32); };
  CHECK(of_rows[0] == scale(0, 0));
  CHECK(of_rows[3] == scale(0, 3));
  CHECK(of_rows[4] == scale(32, 0));
  CHECK(of_rows[16] == scale(1, 0));
  CHECK(of_rows[511] == scale(127, 3));
  CHECK(of_rows[512 + 1] == scale(0, 5));
  CHECK(of_rows[512 + 2] == 0);  // beyond the last block
  CHECK(of_rows[1024 + 16 * 7 + 4 * 2 + 1] == scale(128 + 64 + 7, 1));
  CHECK(of_rows[1024 + 16 * 8 + 4 * 2] == 0);  // row 200
  // The columns' scales of a matrix are the rows' of its transpose.
  StoredCodes columns(Dtype::e4m3, Scaling::mx, ScaledAlong::columns, 192, 200);
  for (std::int64_t row = 0; row < 200; ++row)
    for (std::int64_t block = 0; block < 6; ++block) *columns.codes.scale_at(block * 32, row) = scale(row, block);
  CHECK(arranged(columns.codes) == of_rows);
}

TEST_CASE("scales of blocks of 128 lie next to those of the next row, those of squares next to those of the next block",
          "[cuda]") {
  const auto floats = [](const std::vector<std::uint8_t>& bytes) {
    std::vector<std::uint32_t> bits(bytes.size() / 4);
    std::memcpy(bits.data(), bytes.data(), bytes.size());
    return bits;
  };
  const StoredCodes rows(Dtype::e4m3, Scaling::block_128, ScaledAlong::rows, 30, 272);
  const std::vector<std::uint32_t> of_rows = floats(arranged(rows.codes));
  REQUIRE(of_rows.size() == 3 * 32);
  CHECK(of_rows[1] == rows.codes.scale_bits_at(1, 0));
  CHECK(of_rows[2 * 32 + 29] == rows.codes.scale_bits_at(29, 256));
  CHECK(of_rows[30] == 0);
  const StoredCodes squares(Dtype::e4m3, Scaling::block_128x128, ScaledAlong::rows, 272, 144);
  const std::vector<std::uint32_t> of_squares = floats(arranged(squares.codes));
  REQUIRE(of_squares.size() == 3 * 4);
  CHECK(of_squares[1] == squares.codes.scale_bits_at(0, 128));
  CHECK(of_squares[4] == squares.codes.scale_bits_at(128, 0));
  CHECK(of_squares[2] == 0);
}

TEST_CASE("codes are copied without their scales where cuBLASLt cannot read them in place", "[cuda]") {
  struct Case {
    Dtype format;
    Scaling scaling;
    ScaledAlong along;
    std::int64_t rows, cols;
  };
  for (const Case& of : {Case{Dtype::e4m3, Scaling::block_128x128, ScaledAlong::rows, 144, 272},
                         Case{Dtype::e4m3, Scaling::mx, ScaledAlong::columns, 96, 20},
                         Case{Dtype::e4m3, Scaling::mx, ScaledAlong::rows, 7, 96},
                         Case{Dtype::e2m1x2, Scaling::nv, ScaledAlong::rows, 5, 48}}) {
    INFO(name_of(of.scaling));
    const StoredCodes stored(of.format, of.scaling, of.along, of.rows, of.cols);
    const std::int64_t ld = apart_ld(stored.codes), width = of.cols / stored.codes.per_byte();
    CHECK(ld % 16 == 0);
    CHECK(ld >= width);
    std::vector<std::uint8_t> to(static_cast<std::size_t>(of.rows * ld));
    copy_codes(stored.codes, to.data(), ld, {nullptr, nullptr, 0, 3});
    int different = 0;
    for (std::int64_t r = 0; r < of.rows; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        different += to[static_cast<std::size_t>(r * ld + c)] != stored.codes.row(r)[c];
    CHECK(different == 0);
    CHECK_FALSE(lies_well(stored.codes));
  }
  // 512 codes and 16 scales.
  CHECK(lies_well({nullptr, 528, Dtype::e4m3, Scaling::mx, ScaledAlong::rows, 64, 512}));
}

TEST_CASE("factors of tensors get addresses that are multiples of 16 bytes", "[cuda]") {
  const float inverses[] = {0.5f, 3.0f};
  float to[8] = {};
  align_factors(inverses, inverses + 1, to, {nullptr, nullptr, 0, 3});
  CHECK(to[0] == 0.5f);
  CHECK(to[4] == 3.0f);
}

// A lane's scratch has room for what codes_apart() takes of it.
TEST_CASE("a product's codes and scales fit into the scratch of its lane", "[cuda]") {
  Gemm work{.m = 96, .n = 64, .k = 160, .trans_b = true};
  work.scaling_a = work.scaling_b = Scaling::mx;
  // Scales: one tile for each 128 rows and 4 blocks; codes of 160 and 5 scales are copied.
  CHECK(code_scratch_bytes(work, Dtype::e4m3, Dtype::e4m3) == 256 + 2 * 1024 + 96 * 160 + 64 * 160);
  work.k = 512;
  CHECK(code_scratch_bytes(work, Dtype::e4m3, Dtype::e4m3) == 256 + 2 * 2048);
  work.scaling_a = work.scaling_b = Scaling::tensor;
  CHECK(code_scratch_bytes(work, Dtype::e4m3, Dtype::e4m3) == 256);  // the tensors' factors
  work.scaling_a = work.scaling_b = Scaling::none;
  CHECK(code_scratch_bytes(work, Dtype::bf16, Dtype::bf16) == 0);
}

TEST_CASE("a GPU whose tensor cores lack the products of a recipe is refused by name", "[cuda]") {
  const auto problem = [](Dtype format, Scaling scaling, double capability) {
    Schedule schedule;
    Quantise work{.rows = 128, .cols = 128, .format = format, .scaling = scaling};
    schedule.operations.emplace_back().work = work;
    return problem_of_codes(schedule, capability);
  };
  CHECK(problem(Dtype::e4m3, Scaling::tensor, 9.0).empty());
  CHECK(problem(Dtype::e4m3, Scaling::tensor, 8.0).find("[training] fp8_recipe") == 0);
  CHECK(problem(Dtype::e4m3, Scaling::block_128, 9.0).empty());
  CHECK(problem(Dtype::e4m3, Scaling::block_128, 10.0).find("scales of 128 codes") != std::string::npos);
  CHECK(problem(Dtype::e4m3, Scaling::mx, 10.0).empty());
  CHECK(problem(Dtype::e4m3, Scaling::mx, 9.0).find("scales of 32 codes") != std::string::npos);
  CHECK(problem(Dtype::e2m1x2, Scaling::nv, 9.0).find("[training] fp4_format") == 0);
  CHECK(problem(Dtype::e2m1x2, Scaling::nv, 0).empty());
  Schedule schedule;
  Gemm product{.m = 16, .n = 16, .k = 16};
  product.scaling_a = product.scaling_b = Scaling::tensor;
  schedule.operations.emplace_back().work = product;
  CHECK(problem_of_codes(schedule, 9.0).find("[training] fp8_transposes: expected true") == 0);
  CHECK(problem_of_codes(schedule, 10.0).empty());
}

}  // namespace stretto::cuda
#endif
