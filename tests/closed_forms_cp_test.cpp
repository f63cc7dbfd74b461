// Ring attention on an ideal machine. n groups of ranks; A, D: attention to one group's keys, forward and backward; M,
// B: a message of keys and values alone, or of gradients alone, and of both; S: a sum of gradients, G: the merge.
//
//   forward    A + (n − 1)·max(A, M) + G
//   backward   max(D, M) + (n − 2)·(max(D, B) + S) + max(D, M) + S
//   plain      all of them one after the other
#include <algorithm>
#include <catch2/catch.hpp>

#include "report/exposure.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

constexpr Time kForward = 1000, kBackward = 2500, kMerge = 70, kSum = 90;

struct Ring {
  Ring(std::int64_t n, bool overlaps, std::int64_t exchange = 1)
      : scenario(scenario_of(n, overlaps, exchange)), ideal(scenario), steps(n) {}

  static Scenario scenario_of(std::int64_t n, bool overlaps, std::int64_t exchange) {
    Scenario scenario = layout_scenario({1, 1}, overlaps ? "cp_comm_overlap" : "plain", true, "fp32", 1, 3);
    scenario.model.seq_length = scenario.model.max_position_embeddings = 4 * n * exchange;
    scenario.parallel.context_parallel_size = n * exchange;
    if (exchange == 1) return scenario;
    scenario.parallel.cp_comm_type = {CpCommType::a2a_p2p};
    scenario.parallel.hierarchical_context_parallel_sizes = {exchange, n};
    return scenario;
  }
  void set(Time message, Time both) {
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::string number = "." + std::to_string(i);
      ideal.set("attention.fprop" + number, kForward);
      ideal.set("attention.dgrad" + number, kBackward);
      if (i > 0 && i + 1 < steps) ideal.set("attention.sum_dkv" + number, kSum);
      const bool is_end = i == 0 || i + 1 == steps;
      for (const char* way : {".send", ".recv"}) {
        if (i + 1 < steps) ideal.set(std::string("attention.kv") + way + number, message);
        ideal.set(std::string("attention.dkv") + way + number, is_end ? message : both);
      }
    }
    ideal.set("attention.merge", kMerge);
    ideal.set("attention.sum_dqkv", kSum);
  }
  std::int64_t layers() const { return scenario.model.num_layers * scenario.num_microbatches(); }  // layers of a step

  Scenario scenario;
  Ideal ideal;
  std::int64_t steps;
};

}  // namespace

TEST_CASE("ring attention: exposed is what a message takes longer than the concurrent step", "[closed]") {
  for (const std::int64_t n : {2, 3, 4, 8})
    for (const std::int64_t exchange : {1, 2})
      for (const Time message : {0, 400, 1000, 1700, 4000}) {
        const Time both = 2 * message;
        INFO(n << " groups of " << exchange << ", messages of " << message);
        Ring ring(n, true, exchange);
        ring.set(message, both);
        const Time forward = kForward + (n - 1) * std::max(kForward, message) + kMerge,
                   ends = 2 * std::max(kBackward, message) + kSum,
                   middle = (n - 2) * (std::max(kBackward, both) + kSum);
        const sim::SimResult result = ring.ideal.run();
        CHECK(result.step == ring.layers() * (forward + ends + middle));
        const Breakdown b = breakdown(ring.ideal.schedule, result.programs.front(), result.timeline);
        CHECK(b.exposed_total == ring.layers() * ((n - 1) * std::max<Time>(0, message - kForward) +
                                                  2 * std::max<Time>(0, message - kBackward) +
                                                  (n - 2) * std::max<Time>(0, both - kBackward)));
        CHECK(b.bubble == 0);
      }
}

// n ranks exchange tokens for heads. A, D: attention to all keys of one rank's queries; M: its message; S: a sum.
//   forward    A + (n − 1)·max(A, M)
//   backward   max(n·D + (n − 2)·S,  M + (n − 1)·D + (n − 2)·S,  (n − 1)·M + D), and dq packed with dkv
TEST_CASE("Ulysses by queries: attention to the next rank's tokens hides a message", "[closed]") {
  for (const std::int64_t n : {2, 3, 4, 5})
    for (const Time message : {0, 300, 1000, 1900, 2550, 4000}) {
      INFO(n << " ranks, messages of " << message);
      Scenario scenario = layout_scenario({1, 1}, "cp_flash_overlap", false, "fp32", 1, 3);
      scenario.model.num_attention_heads = n;
      scenario.model.hidden_size = 8 * n;
      scenario.model.seq_length = scenario.model.max_position_embeddings = 4 * n;
      scenario.parallel.context_parallel_size = n;
      scenario.parallel.cp_comm_type = {CpCommType::a2a};
      Ideal ideal(scenario);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::string number = std::to_string(i);
        ideal.set("attention.fprop." + number, kForward);
        ideal.set("attention.dgrad." + number, kBackward);
        if (i > 0 && i + 1 < n) ideal.set("attention.sum_dkv." + number, kSum);
        for (const std::string way : {".send", ".recv"}) {
          if (i + 1 < n) ideal.set("attention.fprop" + way + number, message);
          if (i > 0) ideal.set("attention.dgrad" + way + number, message);
        }
      }
      const Time forward = kForward + (n - 1) * std::max(kForward, message),
                 backward = std::max({n * kBackward + (n - 2) * kSum, message + (n - 1) * kBackward + (n - 2) * kSum,
                                      (n - 1) * message + kBackward});
      const sim::SimResult result = ideal.run();
      CHECK(result.step == scenario.model.num_layers * scenario.num_microbatches() * (forward + backward));
      const Breakdown b = breakdown(ideal.schedule, result.programs.front(), result.timeline);
      CHECK(b.bubble == 0);
    }
}

// Layers of two types alternate, and each takes the time of its type.
TEST_CASE("types of layers: each layer takes its own time", "[closed]") {
  for (const bool overlaps : {false, true})
    for (const Time message : {0, 700, 3000}) {
      INFO((overlaps ? "overlapped" : "plain") << ", messages of " << message);
      const Layout layout{.cp = 2, .cp_type = {CpCommType::p2p, CpCommType::a2a}};
      Scenario scenario = layout_scenario(layout, overlaps ? "cp_comm_overlap" : "plain", true, "fp32", 1, 3);
      scenario.model.num_layers = 5;
      scenario.parallel.cp_comm_type = {CpCommType::a2a, CpCommType::p2p, CpCommType::p2p, CpCommType::a2a,
                                        CpCommType::p2p};
      Ideal ideal(scenario);
      for (const char* number : {"0", "1"}) {
        ideal.set(std::string("attention.p2p.fprop.") + number, kForward);
        ideal.set(std::string("attention.p2p.dgrad.") + number, kBackward);
        for (const std::string way : {".send.", ".recv."}) {
          if (*number == '0') ideal.set("attention.p2p.kv" + way + number, message);
          ideal.set("attention.p2p.dkv" + way + number, message);
        }
      }
      ideal.set("attention.a2a.fprop", kForward);
      ideal.set("attention.a2a.all_to_all_qkv", message);
      ideal.set("attention.a2a.dgrad", kBackward);
      // The forward pass has a message concurrent with attention, the backward pass two such pairs.
      const Time ring = overlaps ? kForward + std::max(kForward, message) + 2 * std::max(kBackward, message)
                                 : 2 * kForward + 2 * kBackward + 3 * message,
                 exchange = kForward + kBackward + message;
      CHECK(ideal.run().step == scenario.num_microbatches() * (3 * ring + 2 * exchange));
    }
}

TEST_CASE("ring attention without overlap: everything one after the other", "[closed]") {
  for (const std::int64_t n : {2, 3, 5})
    for (const Time message : {0, 700}) {
      INFO(n << " ranks, messages of " << message);
      Ring ring(n, false);
      ring.set(message, 2 * message);
      const Time forward = n * kForward + (n - 1) * message + kMerge,
                 backward = n * kBackward + 2 * message + (n - 2) * 2 * message + (n - 1) * kSum;
      CHECK(ring.ideal.run().step == ring.layers() * (forward + backward));
    }
}

// Every rank multiplies equally many queries and keys at every step, which is the purpose of zigzag.
TEST_CASE("each step of a ring has the same share of a causal sequence", "[closed]") {
  for (const std::int64_t n : {2, 3, 4, 8}) {
    const Ring ring(n, true);
    double scores = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Operation& op =
          ring.ideal.schedule
              .operations[ring.ideal.schedule.find_operation("attention.fprop." + std::to_string(i)).value()];
      for (std::int64_t rank = 0; rank < n; ++rank) {
        const Coordinates at = ring.ideal.schedule.mesh.coordinates_of(rank);
        const auto work = std::get<Attention>(evaluate(op.work, at));
        CHECK(attention_pairs(work).count == attention_pairs(std::get<Attention>(op.work)).count);
        scores += attention_pairs(work).count;
      }
    }
    const double seq = double(ring.scenario.model.seq_length);
    CHECK(scores == seq * (seq + 1) / 2);
  }
}

}  // namespace stretto::testing
