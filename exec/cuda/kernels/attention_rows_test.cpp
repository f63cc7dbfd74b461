// Tests of tokens moved between the order of an operand and that of positions: on the emulated device.
#include "exec/cuda/kernels/attention_rows.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/kernel_operands.hpp"

#if !defined(STRETTO_ON_GPU)
namespace stretto::cuda {
namespace {

constexpr std::int64_t kBatch = 3, kSeq = 24, kCols = 16, kLd = 24, kHeads = 2;
const Stream kStream{nullptr, nullptr, 0, 3};

// Rows of the held tokens of a sequence, in the order of positions, by runs_of().
std::vector<std::int64_t> rows_by_position(const SequenceParts& parts, std::int64_t batch, std::int64_t sample) {
  std::vector<SequenceRun> runs = runs_of(parts, kSeq, batch, sample);
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  std::vector<std::int64_t> rows;
  for (const SequenceRun& run : runs)
    for (std::int64_t i = 0; i < run.length; ++i) rows.push_back(run.row + i);
  return rows;
}

struct Matrix {
  std::vector<Bf16> values;
  TokenRows rows;
  Matrix(const TokenOrder& order, float first) : values(static_cast<std::size_t>(order.batch * order.tokens * kLd)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(first + static_cast<float>(i % 251));
    rows = {reinterpret_cast<std::byte*>(values.data()), kLd, order};
  }
  float at(std::int64_t row, std::int64_t col) const {
    return to_float(values[static_cast<std::size_t>(row * kLd + col)]);
  }
};

const SequenceParts kParts[] = {{}, {2, 0, 2}, {3, 1, 1}, {4, 1, 2}, {4, 1, 3}, {3, 0, 3}};

}  // namespace

TEST_CASE("tokens of parts are moved, added and cleared in the order of their positions", "[cuda]") {
  for (const SequenceParts& parts : kParts) {
    const TokenOrder order = order_of(parts, kSeq, kBatch), sorted = order_by_position(kBatch, order.tokens);
    REQUIRE(order.tokens == parts.tokens(kSeq));
    const TokenRange range{2, order.tokens - 3};
    for (const bool is_back : {false, true}) {
      const Matrix from(is_back ? sorted : order, 1), before(is_back ? order : sorted, 300);
      Matrix copied = before, added = before, cleared = before;
      for (Matrix* const one : {&copied, &added, &cleared})
        one->rows.data = reinterpret_cast<std::byte*>(one->values.data());
      copy_tokens(from.rows, copied.rows, range, kCols, kStream);
      add_tokens(from.rows, added.rows, range, kCols, kStream);
      clear_tokens(cleared.rows, range, kCols, kStream);
      std::int64_t wrong = 0;
      for (std::int64_t sample = 0; sample < kBatch; ++sample) {
        const std::vector<std::int64_t> rows = rows_by_position(parts, kBatch, sample);
        for (std::int64_t i = 0; i < order.tokens; ++i) {
          const std::int64_t operand = rows[static_cast<std::size_t>(i)], own = sample * order.tokens + i;
          const std::int64_t to = is_back ? operand : own, source = is_back ? own : operand;
          for (std::int64_t col = 0; col < kLd; ++col) {
            const bool is_moved = i >= 2 && i < order.tokens - 1 && col < kCols;
            const float old = before.at(to, col), moved = from.at(source, col);
            wrong += copied.at(to, col) != (is_moved ? moved : old);
            wrong += added.at(to, col) != (is_moved ? to_float(to_bf16(old + moved)) : old);
            wrong += cleared.at(to, col) != (is_moved ? 0 : old);
          }
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("log-sum-exps of parts are packed in the order of their positions, and unpacked", "[cuda]") {
  for (const SequenceParts& parts : kParts) {
    const TokenOrder order = order_of(parts, kSeq, kBatch);
    const std::int64_t tokens = order.tokens, ld = tokens + 3;
    const TokenRange range{tokens / 2, tokens / 2};
    std::vector<float> all(static_cast<std::size_t>(kBatch * kHeads * ld));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
    const std::vector<float> before = all;
    std::vector<float> packed(static_cast<std::size_t>(kBatch * kHeads * range.count));
    const TokenStatistics operand{all.data(), ld, kHeads, order};
    pack_statistics(operand, packed.data(), range, kStream);
    clear_statistics(operand, {0, tokens}, kStream);
    CHECK(std::count(all.begin(), all.end(), -INFINITY) == kBatch * kHeads * tokens);
    unpack_statistics(packed.data(), operand, range, kStream);
    // Positions of one sequence, as if it were alone: its rows are then its places.
    const std::vector<std::int64_t> places = rows_by_position(parts, 1, 0);
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < kBatch * kHeads; ++row)
      for (std::int64_t i = 0; i < tokens; ++i) {
        const auto at = static_cast<std::size_t>(row * ld + places[static_cast<std::size_t>(i)]);
        wrong += all[at] != (i < range.first ? -INFINITY : before[at]);
        if (i >= range.first)
          wrong += packed[static_cast<std::size_t>(row * range.count + i - range.first)] != before[at];
      }
    CHECK(wrong == 0);
  }
}

}  // namespace stretto::cuda
#endif
