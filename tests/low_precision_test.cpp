// Tests of training in low precision: products of layers against plain ones, layouts, delayed scales, training.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "exec/state/checkpoint.hpp"
#include "tests/low_precision_layers.hpp"

namespace stretto::testing {
namespace {

bool is_fast() { return std::getenv("STRETTO_FAST_SUITE") != nullptr; }

const std::vector<LowRecipe> kRecipes = {LowRecipe::delayed, LowRecipe::tensorwise, LowRecipe::blockwise,
                                         LowRecipe::mxfp8, LowRecipe::nvfp4};

// Compares what a schedule multiplied with plain codes and sums of the whole matrices that a rank's product is of.
class PlainProducts {
 public:
  PlainProducts(const Scenario& scenario, const SeenProducts& seen, int step)
      : scenario_(scenario),
        seen_(seen),
        step_(step),
        rules_(rules_of(scenario.training.low_precision, 0)),
        tp_(scenario.parallel.tensor_model_parallel_size) {}

  // Returns the number of different elements of the three products of a linear layer, on one rank.
  std::int64_t differences(const std::string& linear, std::int64_t rank) const {
    const bool is_column = linear == "qkv" || linear == "fc1";
    const bool sp = scenario_.parallel.sequence_parallel;
    const auto operand = [&](const char* factor, ScaledAlong along, bool gathers) {
      return codes_of(linear, factor, rank, along, gathers, is_column);
    };
    const PlainCodes x = operand("x", ScaledAlong::rows, sp && is_column),
                     x_down = operand("x", ScaledAlong::columns, sp && is_column),
                     w = operand("w", ScaledAlong::rows, false), w_down = operand("w", ScaledAlong::columns, false),
                     dy = operand("dy", ScaledAlong::rows, sp && !is_column),
                     dy_down = operand("dy", ScaledAlong::columns, sp && !is_column);
    return compare(linear + ".fprop", rank, x, false, w, true) +
           compare(linear + ".dgrad", rank, dy, false, w_down, false) +
           compare(linear + ".wgrad", rank, dy_down, true, x_down, false);
  }

 private:
  PlainCodes codes_of(const std::string& linear, const std::string& factor, std::int64_t rank, ScaledAlong along,
                      bool gathers, bool is_column) const {
    const std::string operation = linear + ".quantise_" + factor;
    NumberMatrix all;
    for (std::int64_t r = gathers ? 0 : rank; r < (gathers ? tp_ : rank + 1); ++r) {
      const NumberMatrix& part = seen_.at(operation, r, 0).matrix;
      all.rows += part.rows;
      all.cols = part.cols;
      all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    }
    const bool is_w = factor == "w", is_nv = rules_.recipe == LowPrecisionRules::Recipe::nvfp4;
    if (is_nv && !is_w && along == ScaledAlong::columns)
      for (std::int64_t c = 0; c < all.cols; ++c)
        for (std::int64_t top = 0; top < all.rows; top += kNvBlock) {
          float column[kNvBlock], turned[kNvBlock];
          for (int i = 0; i < kNvBlock; ++i) column[i] = all.values[static_cast<std::size_t>((top + i) * all.cols + c)];
          hadamard16(column, turned);
          for (int i = 0; i < kNvBlock; ++i) all.values[static_cast<std::size_t>((top + i) * all.cols + c)] = turned[i];
        }
    PlainCodes codes(factor == "dy" ? rules_.backward : rules_.forward, is_w ? rules_.weights : rules_.activations,
                     along, all.rows, all.cols, std::move(all.values));
    if (rules_.is_delayed()) codes.tensor_scale = seen_.at(operation, rank, 0).scale;
    if (is_nv && factor == "dy") {
      const std::uint64_t key = exec::dropout_key(scenario_, step_, 0);
      const auto layer = static_cast<std::uint32_t>(linear == "qkv"    ? 0
                                                    : linear == "proj" ? 1
                                                    : linear == "fc1"  ? 2
                                                                       : 3);
      const std::uint32_t site = 16 + 2 * layer + (along == ScaledAlong::columns ? 1 : 0);
      const std::int64_t first_column = is_column ? rank * all.cols : 0;
      codes.word = [=](std::int64_t r, std::int64_t c) {
        return philox4x32({static_cast<std::uint32_t>((first_column + c) / 4), static_cast<std::uint32_t>(r), 0, site},
                          {static_cast<std::uint32_t>(key),
                           static_cast<std::uint32_t>(key >> 32)})[static_cast<std::size_t>((first_column + c) % 4)];
      };
    }
    return codes;
  }

  // Compares some rows of op(A) · op(B), summed in order.
  std::int64_t compare(const std::string& operation, std::int64_t rank, const PlainCodes& a, bool trans_a,
                       const PlainCodes& b, bool trans_b) const {
    const SeenProducts::Seen& seen = seen_.at(operation, rank, 0);
    const std::int64_t m = seen.matrix.rows, n = seen.matrix.cols, k = trans_a ? a.rows : a.cols;
    if ((trans_a ? a.cols : a.rows) != m || (trans_b ? b.rows : b.cols) != n || (trans_b ? b.cols : b.rows) != k)
      return m * n;
    std::vector<float> numbers_b(static_cast<std::size_t>(k * n));  // [k][n]
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        numbers_b[static_cast<std::size_t>(i * n + j)] = trans_b ? b.number_at(j, i) : b.number_at(i, j);
    const std::int64_t block = rule_of(rules_.activations).block == kBlockwise ? kBlockwise : k;
    const float factor = a.inverse() * b.inverse();
    std::int64_t different = 0;
    for (const std::int64_t row : std::set<std::int64_t>{0, 1, m / 3, m / 2, m - 1}) {
      std::vector<float> totals(static_cast<std::size_t>(n));
      for (std::int64_t begin = 0; begin < k; begin += block) {
        std::vector<float> sums(static_cast<std::size_t>(n));
        for (std::int64_t i = begin; i < begin + block; ++i) {
          const float number = trans_a ? a.number_at(i, row) : a.number_at(row, i);
          const float* from = numbers_b.data() + i * n;
          for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += number * from[j];  // products are exact
        }
        for (std::size_t j = 0; j < sums.size(); ++j) totals[j] += sums[j];
      }
      for (std::size_t j = 0; j < totals.size(); ++j) totals[j] *= factor;
      const bool is_bf16 = !operation.ends_with(".wgrad");
      for (std::size_t j = 0; j < totals.size(); ++j) {
        float expected = totals[j];
        if (!seen.bias.values.empty()) expected += seen.bias.values[j];
        if (is_bf16) expected = to_float(to_bf16(expected));
        different += expected != seen.matrix.values[static_cast<std::size_t>(row * n) + j];
      }
    }
    return different;
  }

  const Scenario& scenario_;
  const SeenProducts& seen_;
  const int step_;
  const LowPrecisionRules rules_;
  const std::int64_t tp_;
};

SeenProducts products_of(const Scenario& scenario, int steps) {
  const Schedule schedule = build_schedule(scenario);
  SeenProducts seen;
  train_observed(scenario, schedule, steps, [&](int step, const auto& program, const auto& op, const auto& operands) {
    if (step == steps - 1) seen.see(schedule, program, op, operands);
  });
  return seen;
}

}  // namespace

TEST_CASE("products of a layer have the bits of plain ones, at every tensor parallelism", "[serial]") {
  for (const LowRecipe recipe : kRecipes)
    for (const Layout& layout : {Layout{1, 1}, Layout{1, 2}, Layout{1, 2, true}, Layout{1, 4}, Layout{1, 4, true}})
      for (const bool transposes : {false, true}) {
        const bool is_some = transposes == (layout.tp == 4) && (recipe != LowRecipe::blockwise || layout.tp != 2);
        if (is_fast() && !is_some) continue;
        INFO(name_of(recipe) << " " << layout.text() << (transposes ? ", transposes" : ""));
        Scenario scenario = low_precision_scenario(recipe, layout, 1, layout.tp == 2);
        scenario.training.low_precision.fp8_transposes = transposes;
        const int steps = recipe == LowRecipe::delayed ? 3 : 1;  // the first scales of delayed scaling are 1
        const SeenProducts seen = products_of(scenario, steps);
        const PlainProducts plain(scenario, seen, steps - 1);
        for (const char* linear : {"qkv", "proj", "fc1", "fc2"})
          for (std::int64_t rank = 0; rank < layout.tp; ++rank) {
            INFO(linear << " on rank " << rank);
            CHECK(plain.differences(linear, rank) == 0);
          }
      }
}

}  // namespace stretto::testing
