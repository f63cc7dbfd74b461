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

constexpr std::int64_t kOrderBatch = 3, kOrderSeq = 24, kOrderCols = 16, kOrderLd = 24, kOrderHeads = 2;
const Stream kOrderStream{nullptr, nullptr, 0, 3};

// Rows of the held tokens of a sequence, in the order of positions, by runs_of().
std::vector<std::int64_t> rows_by_position(const SequenceParts& parts, std::int64_t batch, std::int64_t sample) {
  std::vector<SequenceRun> runs = runs_of(parts, kOrderSeq, batch, sample);
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  std::vector<std::int64_t> rows;
  for (const SequenceRun& run : runs)
    for (std::int64_t i = 0; i < run.length; ++i) rows.push_back(run.row + i);
  return rows;
}

struct TokenMatrix {
  std::vector<Bf16> values;
  TokenRows rows;
  TokenMatrix(const TokenOrder& order, float first)
      : values(static_cast<std::size_t>(order.batch * order.tokens * kOrderLd)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(first + static_cast<float>(i % 251));
    rows = {reinterpret_cast<std::byte*>(values.data()), kOrderLd, order};
  }
  float at(std::int64_t row, std::int64_t col) const {
    return to_float(values[static_cast<std::size_t>(row * kOrderLd + col)]);
  }
};

const SequenceParts kOrders[] = {{}, {2, 0, 2}, {3, 1, 1}, {4, 1, 2}, {4, 1, 3}, {3, 0, 3}};

}  // namespace

TEST_CASE("tokens of parts are moved, added and cleared in the order of their positions", "[cuda]") {
  for (const SequenceParts& parts : kOrders) {
    const TokenOrder order = order_of(parts, kOrderSeq, kOrderBatch),
                     sorted = order_by_position(kOrderBatch, order.tokens);
    REQUIRE(order.tokens == parts.tokens(kOrderSeq));
    const TokenRange range{2, order.tokens - 3};
    for (const bool is_back : {false, true}) {
      const TokenMatrix from(is_back ? sorted : order, 1), before(is_back ? order : sorted, 300);
      TokenMatrix copied = before, added = before, cleared = before;
      for (TokenMatrix* const one : {&copied, &added, &cleared})
        one->rows.data = reinterpret_cast<std::byte*>(one->values.data());
      copy_tokens(from.rows, copied.rows, range, kOrderCols, kOrderStream);
      add_tokens(from.rows, added.rows, range, kOrderCols, kOrderStream);
      clear_tokens(cleared.rows, range, kOrderCols, kOrderStream);
      std::int64_t wrong = 0;
      for (std::int64_t sample = 0; sample < kOrderBatch; ++sample) {
        const std::vector<std::int64_t> rows = rows_by_position(parts, kOrderBatch, sample);
        for (std::int64_t i = 0; i < order.tokens; ++i) {
          const std::int64_t operand = rows[static_cast<std::size_t>(i)], own = sample * order.tokens + i;
          const std::int64_t to = is_back ? operand : own, source = is_back ? own : operand;
          for (std::int64_t col = 0; col < kOrderLd; ++col) {
            const bool is_moved = i >= 2 && i < order.tokens - 1 && col < kOrderCols;
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
  for (const SequenceParts& parts : kOrders) {
    const TokenOrder order = order_of(parts, kOrderSeq, kOrderBatch);
    const std::int64_t tokens = order.tokens, ld = tokens + 3;
    const TokenRange range{tokens / 2, tokens / 2};
    std::vector<float> all(static_cast<std::size_t>(kOrderBatch * kOrderHeads * ld));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
    const std::vector<float> before = all;
    std::vector<float> packed(static_cast<std::size_t>(kOrderBatch * kOrderHeads * range.count));
    const TokenStatistics operand{all.data(), ld, kOrderHeads, order};
    pack_statistics(operand, packed.data(), range, kOrderStream);
    clear_statistics(operand, {0, tokens}, kOrderStream);
    CHECK(std::count(all.begin(), all.end(), -INFINITY) == kOrderBatch * kOrderHeads * tokens);
    unpack_statistics(packed.data(), operand, range, kOrderStream);
    // Positions of one sequence, as if it were alone: its rows are then its places.
    const std::vector<std::int64_t> places = rows_by_position(parts, 1, 0);
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < kOrderBatch * kOrderHeads; ++row)
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
