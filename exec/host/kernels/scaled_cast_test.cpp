#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/bf16.hpp"
#include "base/fp8.hpp"
#include "base/rng.hpp"
#include "exec/host/kernels/kernels.hpp"

namespace stretto::host {
namespace {

struct Packed {
  std::vector<std::uint8_t> bytes;
  std::vector<float> back;
};

Packed through_fp8(std::vector<float> x, std::int64_t shards = 1) {
  const auto count = static_cast<std::int64_t>(x.size());
  const ScaledCast pack{Pass::forward, shards, count / shards}, unpack{Pass::backward, shards, count / shards};
  Packed packed{std::vector<std::uint8_t>(static_cast<std::size_t>(shards * pack.packed())), x};
  const Operand floats{x.data(), Dtype::f32, 1, count, count, AccessMode::read},
      back{packed.back.data(), Dtype::f32, 1, count, count, AccessMode::write};
  Operand bytes{packed.bytes.data(), Dtype::e4m3, 1, shards * pack.packed(), shards * pack.packed(), AccessMode::write};
  run_work(pack, std::array{floats, bytes});
  bytes.mode = AccessMode::read;
  run_work(unpack, std::array{bytes, back});
  return packed;
}

}  // namespace

TEST_CASE("what goes through fp8 is off by at most 2^-4 of itself, or 2^-10 of its block's scale") {
  for (const std::int64_t shards : {1, 3}) {
    std::vector<float> x;
    for (std::uint64_t i = 0; i < 3 * 7 * 32; ++i)
      x.push_back(static_cast<float>((2 * uniform(1, 2, i) - 1) * std::exp2(double(i / 32) * 3 - 30)));
    const Packed packed = through_fp8(x, shards);
    CHECK(packed.bytes.size() == x.size() + x.size() / 32);
    for (std::size_t i = 0; i < x.size(); ++i) {
      float amax = 0;
      for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) amax = std::max(amax, std::fabs(x[j]));
      const float step = value_of_scale(scale_of_block(amax)) * std::exp2(-10.0f);
      CHECK(std::fabs(packed.back[i] - x[i]) <= std::max(std::fabs(x[i]) / 16, step));
    }
    CHECK(through_fp8(packed.back, shards).back == packed.back);  // packing the result again changes nothing
  }
}

TEST_CASE("a NaN or an infinity makes its block NaN, and no other") {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(96, 1.5f);
    x[40] = bad;
    const std::vector<float> back = through_fp8(x).back;
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(back[i]) == (i / 32 == 1));
  }
}

TEST_CASE("parts in bf16 are summed in f32") {
  // The first part is 1, then come 256 parts that are each too small for bf16 to add to 1.
  constexpr std::int64_t kParts = 257;
  std::vector<Bf16> parts(kParts, to_bf16(std::exp2(-9.0f)));
  parts[0] = to_bf16(1.0f);
  float wide = 0;
  Bf16 narrow;
  const Operand in{parts.data(), Dtype::bf16, 1, kParts, kParts, AccessMode::read};
  run_work(LocalReduce{kParts, 1}, std::array{in, Operand{&wide, Dtype::f32, 1, 1, 1, AccessMode::write}});
  run_work(LocalReduce{kParts, 1}, std::array{in, Operand{&narrow, Dtype::bf16, 1, 1, 1, AccessMode::write}});
  CHECK(wide == 1.5f);
  CHECK(to_float(narrow) == 1.5f);
}

}  // namespace stretto::host
