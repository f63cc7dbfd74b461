// Tests of the masks of attention's dropout: the seeds everywhere, and on a GPU the masks that cuDNN draws from them.
#include "exec/cuda/kernels/attention_seed.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "tests/kernel_operands.hpp"

namespace stretto::cuda {

#if defined(STRETTO_ON_GPU)
// With the identity for v, the output of a head is its probabilities after dropout: the masks can be read, and the
// gradient computed by hand.
TEST_CASE("cuDNN's dropout keeps what it should, and its gradient has the masks of its forward pass", "[cuda]") {
  constexpr std::int64_t kBatch = 2, kHeads = 2, kSize = 64;  // tokens of a sequence, and elements of a head
  constexpr double kDropout = 0.25, kScale = 0.125;           // 1 / sqrt(kSize)
  Attention work{Pass::dgrad, kBatch, kHeads, kHeads, kSize, kSize, true, kDropout};
  if (!OnDevice::runs_by_cudnn(work)) return;
  work.pass = Pass::forward;
  std::vector<Buffer> forward = buffers_of(work, Dtype::bf16, 0, {false});
  const auto k_col = [](std::int64_t head) { return (kHeads + head) * kSize; };
  const auto v_col = [](std::int64_t head) { return (2 * kHeads + head) * kSize; };
  for (std::int64_t row = 0; row < kBatch * kSize; ++row)
    for (std::int64_t col = 0; col < kHeads * kSize; ++col)
      forward[0].set(row, v_col(0) + col, row % kSize == col % kSize ? 1 : 0);
  std::vector<Buffer> undropped = {forward[0], forward[1], forward[2]};
  Attention plain = work;
  plain.dropout = 0;
  host::run_work(plain, bound(undropped));
  OnDevice(forward).run_by_cudnn(work);

  work.pass = Pass::dgrad;
  std::vector<Buffer> backward = buffers_of(work, Dtype::bf16, 0, {false});
  for (const std::size_t i : {0, 1, 2}) backward[i].bytes = forward[i].bytes;
  backward.back().bytes = forward.back().bytes;
  OnDevice(backward).run_by_cudnn(work);
  std::int64_t pairs = 0, dropped = 0;
  double worst = 0, largest = 0;
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t row = b * kSize, col = h * kSize;
      std::vector<double> p(kSize * kSize), kept(kSize * kSize), ds(kSize * kSize);
      for (std::int64_t q = 0; q < kSize; ++q) {
        double sum = 0;  // row sum of dO ∘ O
        for (std::int64_t k = 0; k < kSize; ++k)
          sum += forward[1].at(row + q, col + k) * backward[3].at(row + q, col + k);
        for (std::int64_t k = 0; k <= q; ++k) {
          const std::size_t at = static_cast<std::size_t>(q * kSize + k);
          p[at] = undropped[1].at(row + q, col + k);
          const double left = forward[1].at(row + q, col + k);
          kept[at] = left == 0 ? 0 : 1 / (1 - kDropout);
          CHECK(left == Approx(p[at] * kept[at]).epsilon(0.03));
          ++pairs;
          dropped += left == 0;
          ds[at] = p[at] * (kept[at] * backward[3].at(row + q, col + k) - sum) * kScale;
        }
      }
      const auto compare = [&](std::int64_t at_row, std::int64_t at_col, double expected) {
        worst = std::max(worst, std::abs(backward[4].at(at_row, at_col) - expected));
        largest = std::max(largest, std::abs(expected));
      };
      for (std::int64_t i = 0; i < kSize; ++i)
        for (std::int64_t j = 0; j < kSize; ++j) {
          double dq = 0, dk = 0, dv = 0;
          for (std::int64_t n = 0; n < kSize; ++n) {
            const std::size_t of_query = static_cast<std::size_t>(i * kSize + n),
                              of_key = static_cast<std::size_t>(n * kSize + i);
            dq += ds[of_query] * forward[0].at(row + n, k_col(h) + j);
            dk += ds[of_key] * forward[0].at(row + n, col + j);
            dv += p[of_key] * kept[of_key] * backward[3].at(row + n, col + j);
          }
          compare(row + i, col + j, dq);
          compare(row + i, k_col(h) + j, dk);
          compare(row + i, v_col(h) + j, dv);
        }
    }
  CHECK(worst < largest / 50);
  // Five standard deviations of a binomial distribution.
  const double expected = kDropout * static_cast<double>(pairs);
  CHECK(static_cast<double>(dropped) == Approx(expected).margin(5 * std::sqrt(expected * (1 - kDropout))));
}
#else
TEST_CASE("seeds of attention's dropout differ wherever masks should", "[cuda]") {
  std::set<std::pair<std::int64_t, std::int64_t> > all;
  std::set<std::int64_t> seeds, offsets;
  const auto seed_of = [](std::int32_t low, std::int32_t high, std::int32_t sample, std::int64_t first_head) {
    std::int32_t key[kDropoutKeyWords] = {low, high, sample};
    std::int64_t out[2] = {};
    write_attention_seed({key, Dtype::i32, 1, kDropoutKeyWords, kDropoutKeyWords}, first_head, out, {});
    return std::pair{out[0], out[1]};
  };
  for (const std::int32_t low : {0, 1, -1})
    for (const std::int32_t high : {0, 1, -1})
      for (const std::int64_t first_head : {0, 1, 12})
        for (const std::int32_t sample : {0, 1, 1 << 30}) {
          const auto seed = seed_of(low, high, sample, first_head);
          all.insert(seed);
          seeds.insert(seed.first);
          offsets.insert(seed.second);
          CHECK(seed == seed_of(low, high, sample, first_head));
        }
  CHECK(all.size() == 81);
  CHECK(seeds.size() == 27);
  CHECK(offsets == std::set<std::int64_t>{0, 16, std::int64_t{16} << 30});
}
#endif

}  // namespace stretto::cuda
