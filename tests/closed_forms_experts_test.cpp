// Pairs of passes on an ideal machine (overlap_moe_expert_parallel_comm). For each layer a: computation around the
// experts, d: dispatch, m: experts, c: combine, of the forward pass f and of the backward pass b, of which c is the
// first and a the last. With n micro-batches and L layers of experts, without pipeline:
//
//   plain   n · L · (a_f + d_f + m_f + c_f + c_b + m_b + d_b + a_b)
//   pairs   L · (a_f + d_f + m_f + c_f) + (n − 1) · L · T + L · (c_b + m_b + d_b + a_b)
//           T = max(a_f, c_b) + max(d_f, m_b) + max(m_f, d_b) + max(c_f, a_b)
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/draw.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

struct PassTimes {
  Time a = 0, d = 0, m = 0, c = 0;
  Time sum() const { return a + d + m + c; }
};

Scenario scenario_of_pairs(bool pairs, std::int64_t micro_batches, std::int64_t layers) {
  Scenario scenario = layout_scenario({4, 1}, "plain", true, "fp32", 1, 4 * micro_batches);
  scenario.model.num_layers = layers;
  scenario.model.experts.num_moe_experts = 6;
  scenario.model.experts.moe_ffn_hidden_size = 12;
  scenario.parallel.expert_model_parallel_size = 2;
  scenario.overlap.overlap_moe_expert_parallel_comm = pairs;
  return scenario;
}

Time step_of_pairs(bool pairs, std::int64_t micro_batches, std::int64_t layers, const PassTimes& f,
                   const PassTimes& b) {
  Ideal ideal(scenario_of_pairs(pairs, micro_batches, layers));
  ideal.set("qkv.fprop", f.a);
  ideal.set("experts.dispatch.fprop", f.d);
  ideal.set("experts.fc1.fprop", f.m);
  ideal.set("experts.combine.fprop", f.c);
  ideal.set("experts.dispatch.dgrad", b.c);
  ideal.set("experts.fc1.dgrad", b.m);
  ideal.set("experts.combine.dgrad", b.d);
  ideal.set("qkv.dgrad", b.a);
  return ideal.run().step;
}

}  // namespace

TEST_CASE("a pair of passes takes what neither hides of the other", "[closed]") {
  for (std::uint64_t number = 0; number < 40; ++number) {
    Draw draw(number);
    const auto some = [&] { return Time(draw.between(1, 4000)); };
    const PassTimes f{some(), some(), some(), some()}, b{some(), some(), some(), some()};
    const std::int64_t n = draw.between(1, 4), layers = draw.between(1, 4);
    INFO("case " << number << ", " << n << " micro-batches, " << layers << " layers");
    CHECK(step_of_pairs(false, n, layers, f, b) == n * layers * (f.sum() + b.sum()));
    const Time pair = std::max(f.a, b.c) + std::max(f.d, b.m) + std::max(f.m, b.d) + std::max(f.c, b.a);
    CHECK(step_of_pairs(true, n, layers, f, b) == layers * (f.sum() + (n - 1) * pair + b.sum()));
  }
}

}  // namespace stretto::testing
