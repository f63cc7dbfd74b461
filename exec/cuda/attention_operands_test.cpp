// Tests that graphs of attention get the right rows of parts of sequences: a graph is computed on the host, on the
// addresses and strides that cuDNN gets, and results are compared with those of the host's kernel. Only a GPU can test
// the graphs themselves (gpu_tests).
#include "exec/cuda/module/attention_operands.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/attention_parts.hpp"
#include "tests/kernel_operands.hpp"

namespace stretto::cuda {
namespace {

// One matrix of heads that a graph reads or writes.
struct HeadMatrix {
  Bf16* data;
  AttentionStrides strides;
  std::int64_t head_dim;
  Bf16& at(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t col) const {
    return data[b * strides.sequence + row * strides.ld + head * head_dim + col];
  }
  float value(std::int64_t b, std::int64_t head, std::int64_t row, std::int64_t col) const {
    return to_float(at(b, head, row, col));
  }
};

void run_graph(const AttentionShape& s, const AttentionPlaces& places, bool is_forward) {
  const auto heads = [&](void* data, const AttentionStrides& strides) {
    return HeadMatrix{static_cast<Bf16*>(data), strides, s.d};
  };
  const HeadMatrix q = heads(places.q, s.q), k = heads(places.k, s.kv), v = heads(places.v, s.kv),
                   o = heads(places.o, s.out), d_o = heads(places.d_o, s.out), dq = heads(places.dq, s.dq),
                   dk = heads(places.dk, s.dkv), dv = heads(places.dv, s.dkv);
  auto* const stats = static_cast<float*>(places.stats);
  const std::int64_t group = s.h / s.hk;
  const auto d = static_cast<std::size_t>(s.d);
  for (std::int64_t b = 0; b < s.b; ++b)
    for (std::int64_t kv = 0; kv < s.hk; ++kv) {
      std::vector<double> dks(static_cast<std::size_t>(s.keys) * d), dvs = dks;
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h)
        for (std::int64_t i = 0; i < s.queries; ++i) {
          const std::int64_t end = s.keys - (s.is_causal ? s.queries - 1 - i : 0);
          REQUIRE(end > 0);
          float& stat = stats[(b * s.h + h) * s.queries + i];
          std::vector<double> score, out(d), dqs(d);
          double sum = 0, mean = 0;
          for (std::int64_t j = 0; j < end; ++j) {
            double dot = 0;
            for (std::int64_t c = 0; c < s.d; ++c) dot += q.value(b, h, i, c) * k.value(b, kv, j, c);
            score.push_back(dot / std::sqrt(double(s.d)));
            sum += std::exp(score.back());
          }
          if (is_forward) stat = static_cast<float>(std::log(sum));
          for (std::int64_t c = 0; c < s.d && !is_forward; ++c) mean += o.value(b, h, i, c) * d_o.value(b, h, i, c);
          for (std::int64_t j = 0; j < end; ++j) {
            const double p = std::exp(score[static_cast<std::size_t>(j)] - stat);
            const std::size_t row = static_cast<std::size_t>(j) * d;
            double dp = 0;
            for (std::int64_t c = 0; c < s.d; ++c) {
              if (is_forward)
                out[static_cast<std::size_t>(c)] += p * v.value(b, kv, j, c);
              else
                dp += d_o.value(b, h, i, c) * v.value(b, kv, j, c);
            }
            for (std::int64_t c = 0; c < s.d && !is_forward; ++c) {
              const double ds = p * (dp - mean) / std::sqrt(double(s.d));
              dqs[static_cast<std::size_t>(c)] += ds * k.value(b, kv, j, c);
              dks[row + static_cast<std::size_t>(c)] += ds * q.value(b, h, i, c);
              dvs[row + static_cast<std::size_t>(c)] += p * d_o.value(b, h, i, c);
            }
          }
          for (std::int64_t c = 0; c < s.d; ++c)
            (is_forward ? o : dq).at(b, h, i, c) =
                to_bf16(static_cast<float>((is_forward ? out : dqs)[static_cast<std::size_t>(c)]));
        }
      for (std::int64_t j = 0; j < s.keys && !is_forward; ++j)
        for (std::int64_t c = 0; c < s.d; ++c) {
          const std::size_t at = static_cast<std::size_t>(j) * d + static_cast<std::size_t>(c);
          dk.at(b, kv, j, c) = to_bf16(static_cast<float>(dks[at]));
          dv.at(b, kv, j, c) = to_bf16(static_cast<float>(dvs[at]));
        }
    }
}

}  // namespace

TEST_CASE("regions of parts of sequences together are the attention of the host") {
  for (const Pass pass : {Pass::forward, Pass::dgrad})
    for (const testing::AttentionParts& parts : testing::attention_parts(4))
      for (const std::int64_t gap : {0, 8}) {
        const Attention work = testing::of_parts({pass, 2, 4, 2, 24, 8, true, 0}, parts);
        INFO(describe(Work(work)) << ", gap " << gap);
        const std::vector<Buffer> before = buffers_of(work, Dtype::bf16, gap, {false});
        std::vector<Buffer> regions = before, host = before;
        host::run_work(work, bound(host));
        const AttentionOperands operands(work, bound(regions));
        std::vector<std::byte> scratch(static_cast<std::size_t>(operands.scratch_bytes()), std::byte{0xff});
        const Stream stream{nullptr, nullptr, 0, 3};
        operands.begin(scratch.data(), stream);
        for (std::size_t i = operands.count(); i-- > 0;) {
          operands.before(i, scratch.data(), stream);
          run_graph(operands.shape_of(i), operands.places_of(i, scratch.data()), pass == Pass::forward);
          operands.after(i, scratch.data(), stream);
        }
        operands.end(scratch.data(), stream);
        check_same(regions, host, before, 1e-3);
      }
}

}  // namespace stretto::cuda
