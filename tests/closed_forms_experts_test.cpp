// Pairs of passes on an ideal machine (overlap_moe_expert_parallel_comm). For each layer a: computation around the
// experts, d: dispatch, m: experts, c: combine, of the forward pass f and of the backward pass b, where c is the
// first and a the last. With n micro-batches and L layers of experts, without pipeline:
//
//   plain   n · L · (a_f + d_f + m_f + c_f + c_b + m_b + d_b + a_b)
//   pairs   L · (a_f + d_f + m_f + c_f) + (n − 1) · L · T + L · (c_b + m_b + d_b + a_b)
//           T = max(a_f, c_b) + max(d_f, m_b) + max(m_f, d_b) + max(c_f, a_b)
//
// With weight gradients apart (delay_wgrad_compute), w of experts and v of the others, a pair of layers takes
//
//   max(δ + a_f, c_b) + max(max(d_f, m_b + w) + m_f, max(d_f, m_b) + d_b) + max(c_f, a_b)
//
// where δ = max(a_b + v, c_f) − max(a_b, c_f) is the time by which the forward pass begins later than the rows of the
// backward pass leave; and with ep_overlap_early_attn_memory_release, whose rows leave after combine, ε = max(v, c_f)
// − c_f:
//
//   max(ε + a_f, c_b) + max(max(m_b + w, max(d_f, m_b) + d_b) + a_b, d_f) + m_f + c_f
//
// The last layer's v is concurrent with no rows of a next layer; with early release it is concurrent with combine.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "tests/draw.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

struct PassTimes {
  Time a = 0, d = 0, m = 0, c = 0;
  Time sum() const { return a + d + m + c; }
};
struct LayerTimes {
  PassTimes f, b;
  Time w = 0, v = 0;
};

Scenario scenario_of_experts(std::int64_t micro_batches, std::int64_t layers) {
  Scenario scenario = layout_scenario({4, 1}, "plain", true, "fp32", 1, 4 * micro_batches);
  scenario.model.num_layers = layers;
  scenario.model.experts.num_moe_experts = 6;
  scenario.model.experts.moe_ffn_hidden_size = 12;
  scenario.parallel.expert_model_parallel_size = 2;
  return scenario;
}

Time step_with(const Scenario& scenario, const LayerTimes& t, const std::function<void(Ideal&)>& set = {}) {
  Ideal ideal(scenario);
  ideal.set("qkv.fprop", t.f.a);
  ideal.set("experts.dispatch.fprop", t.f.d);
  ideal.set("experts.fc1.fprop", t.f.m);
  ideal.set("experts.combine.fprop", t.f.c);
  ideal.set("experts.dispatch.dgrad", t.b.c);
  ideal.set("experts.fc1.dgrad", t.b.m);
  ideal.set("experts.combine.dgrad", t.b.d);
  ideal.set("qkv.dgrad", t.b.a);
  ideal.set("experts.fc1.wgrad", t.w);
  ideal.set("qkv.wgrad", t.v);
  if (set) set(ideal);
  return ideal.run().step;
}

Time step_of_pairs(bool pairs, std::int64_t micro_batches, std::int64_t layers, const LayerTimes& t) {
  Scenario scenario = scenario_of_experts(micro_batches, layers);
  scenario.overlap.overlap_moe_expert_parallel_comm = pairs;
  return step_with(scenario, t);
}

struct Drawn {
  explicit Drawn(std::uint64_t number) : draw(number) {
    const auto some = [&] { return Time(draw.between(1, 4000)); };
    t = {{some(), some(), some(), some()}, {some(), some(), some(), some()}};
    n = draw.between(1, 4), layers = draw.between(1, 4);
    t.w = some(), t.v = some();
  }
  Draw draw;
  LayerTimes t;
  std::int64_t n = 0, layers = 0;
};

}  // namespace

TEST_CASE("a pair of passes takes what neither hides of the other", "[closed]") {
  for (std::uint64_t number = 0; number < 40; ++number) {
    Drawn c(number);
    c.t.w = c.t.v = 0;
    const PassTimes &f = c.t.f, &b = c.t.b;
    INFO("case " << number << ", " << c.n << " micro-batches, " << c.layers << " layers");
    CHECK(step_of_pairs(false, c.n, c.layers, c.t) == c.n * c.layers * (f.sum() + b.sum()));
    const Time pair = std::max(f.a, b.c) + std::max(f.d, b.m) + std::max(f.m, b.d) + std::max(f.c, b.a);
    CHECK(step_of_pairs(true, c.n, c.layers, c.t) == c.layers * (f.sum() + (c.n - 1) * pair + b.sum()));
  }
}

TEST_CASE("weight gradients apart hide what is on the way, with and without early attention", "[closed]") {
  for (std::uint64_t number = 0; number < 80; ++number) {
    const Drawn c(number);
    const bool early = number % 2 == 1;
    INFO("case " << number << ", " << c.n << " micro-batches, " << c.layers << " layers");
    Scenario scenario = scenario_of_experts(c.n, c.layers);
    scenario.overlap.overlap_moe_expert_parallel_comm = true;
    scenario.overlap.delay_wgrad_compute = true;
    scenario.overlap.ep_overlap_early_attn_memory_release = early;
    const PassTimes &f = c.t.f, &b = c.t.b;
    const Time w = c.t.w, v = c.t.v;
    // From the begin of a pair of layers, by which the forward pass is late, to its end.
    const auto layer = [&](Time late) {
      const Time begin = std::max(late + f.a, b.c), way_back = std::max(f.d, b.m) + b.d;
      return early ? begin + std::max(std::max(b.m + w, way_back) + b.a, f.d) + f.m
                   : begin + std::max(std::max(f.d, b.m + w) + f.m, way_back);
    };
    const Time between = early ? f.c : std::max(f.c, b.a), last = early ? std::max(f.c, v) : std::max(f.c, b.a + v),
               late = last - between;
    const Time pair = layer(0) + (c.layers - 1) * (between + layer(late)) + last;
    const Time alone = b.c + v + (c.layers - 1) * std::max(b.c, v) + c.layers * (b.m + std::max(b.d, w) + b.a);
    CHECK(step_with(scenario, c.t) == c.layers * f.sum() + (c.n - 1) * pair + alone);
  }
}

TEST_CASE("of one micro-batch, weight gradients of experts hide the way back", "[closed]") {
  for (std::uint64_t number = 0; number < 40; ++number) {
    const Drawn c(number);
    INFO("case " << number << ", " << c.n << " micro-batches, " << c.layers << " layers");
    Scenario scenario = scenario_of_experts(c.n, c.layers);
    const Time rest = c.t.f.sum() + c.t.b.c + c.t.b.m + c.t.b.a + c.t.v;
    CHECK(step_with(scenario, c.t) == c.n * c.layers * (rest + c.t.b.d + c.t.w));
    scenario.overlap.overlap_dispatch_backward_with_experts_wgrad = true;
    CHECK(step_with(scenario, c.t) == c.n * c.layers * (rest + std::max(c.t.b.d, c.t.w)));
  }
}

TEST_CASE("a shared expert concurrent with exchanges of rows", "[closed]") {
  for (std::uint64_t number = 0; number < 40; ++number) {
    const Drawn c(number);
    INFO("case " << number << ", " << c.n << " micro-batches, " << c.layers << " layers");
    Scenario scenario = scenario_of_experts(c.n, c.layers);
    scenario.model.experts.moe_shared_expert_intermediate_size = 8;
    const PassTimes &f = c.t.f, &b = c.t.b;
    const Time up = c.t.w, down = c.t.v;
    const auto step = [&] {
      return step_with(scenario, {f, b}, [&](Ideal& ideal) {
        ideal.set("shared.fc1.fprop", up);
        ideal.set("shared.fc2.fprop", down);
        ideal.set("shared.fc1.dgrad", up);
        ideal.set("shared.fc2.dgrad", down);
      });
    };
    CHECK(step() == c.n * c.layers * (f.sum() + b.sum() + 2 * (up + down)));
    scenario.overlap.moe_shared_expert_overlap = true;
    const auto pass = [](Time out, Time experts, Time back, Time first, Time second) {
      return std::max(out + experts + back, std::max(out + experts, first) + second);
    };
    CHECK(step() == c.n * c.layers * (f.a + pass(f.d, f.m, f.c, up, down) + pass(b.c, b.m, b.d, down, up) + b.a));
  }
}

// ep_flash_overlap, where each rank's rows are a shard, with padding or in slots: shard i of n computes when its rows
// have come, and goes back when the shards before it have; messages of a direction go one after the other.
TEST_CASE("experts in shards: computing on others' rows hides a rank's rows", "[closed]") {
  for (std::uint64_t number = 0; number < 60; ++number) {
    const Drawn c(number);
    const bool pads = number % 2 == 0;
    const std::int64_t n = 2 + static_cast<std::int64_t>(number / 2 % 4);
    const Time there = c.t.f.d, experts = c.t.f.m, back = number % 3 == 0 ? there : c.t.f.c, d = c.t.b.m, w = c.t.w;
    INFO("case " << number << ", " << n << " ranks, " << c.n << " micro-batches, " << c.layers << " layers");
    Scenario scenario = layout_scenario({n, 1}, "plain", true, "fp32", 1, n * c.n);
    scenario.model.num_layers = c.layers;
    scenario.model.experts.num_moe_experts = 2 * n;
    scenario.model.experts.moe_ffn_hidden_size = 12;
    scenario.parallel.expert_model_parallel_size = n;
    scenario.parallel.moe_pad_expert_input_to_capacity = pads;
    (pads ? scenario.parallel.moe_expert_capacity_factor : scenario.parallel.moe_expert_rank_capacity_factor) = 2;
    scenario.overlap.ep_flash_overlap = true;
    scenario.overlap.ep_flash_shards = 64;
    Ideal ideal(scenario);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::string at = std::to_string(i);
      ideal.set("experts.fc1.fprop." + at, experts);
      ideal.set("experts.fc1.dgrad." + at, d);
      ideal.set("experts.fc1.wgrad." + at, w);
      for (const std::string way : {".send", ".recv"})
        for (const std::string pass : {".fprop", ".dgrad"}) {
          if (i == 0) continue;
          ideal.set("experts.dispatch" + pass + way + at, there);
          ideal.set("experts.combine" + pass + way + at, back);
        }
    }
    const auto pass_of = [&](Time products, Time weights) {
      Time computed = 0, gone = (n - 1) * there;
      for (std::int64_t i = 0; i < n; ++i) {
        computed = std::max(computed, i * there) + products;
        if (i > 0) gone = std::max(gone, computed) + back;
        computed += weights;
      }
      return std::max(gone, computed);
    };
    const Time forward = pass_of(experts, 0);
    if (back == there) CHECK(forward == std::max({n * experts + there, experts + n * there, 2 * (n - 1) * there}));
    CHECK(ideal.run().step == c.n * c.layers * (forward + pass_of(d, w)));
  }
}

}  // namespace stretto::testing
