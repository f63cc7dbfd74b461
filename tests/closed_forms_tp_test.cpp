// Tensor-parallel communication overlapped with its GEMM, on an ideal machine. Schedules come from real scenarios. Tg:
// time of a piece of the GEMM, Tc: time of a piece of the communication, n ranks.
//
// Bulk: T_dgrad + T_wgrad + max(0, T_AG − T_dgrad) + max(0, T_RS − T_wgrad).
// All-gather by ring: n·Tg + (n − 1)·max(0, Tc − Tg); the second part is exposed, on any number of compute lanes.
// Aggregate all-gather by ring: Tc + n·Tg + (n/2 − 1)·max(0, 2·Tc − 2·Tg).
// Reduce-scatter by direct sends: n·Tg + (n − 1)·max(0, Tc − Tg) + T_sum.
// Reduce-scatter in pieces: S·Tg + Tc + (S − 1)·max(0, Tc − Tg); the last piece is the tail.
// Flash-Overlap, m slices a rank: at the top of tp_ring_gather.cpp, tp_ring_scatter.cpp and tp_flash_scatter.cpp.
#include <algorithm>
#include <catch2/catch.hpp>

#include "report/exposure.hpp"
#include "tests/ideal.hpp"

namespace stretto::testing {

TEST_CASE("tp_comm_overlap, bulk: each transfer is exposed for what it takes longer than its GEMM", "[closed]") {
  constexpr Time kDgrad = 2000, kWgrad = 3000;
  for (const Time gather : {0, 1500, 2000, 2700})
    for (const Time scatter : {0, 2900, 3000, 4100})
      for (const bool during_dgrad : {false, true})
        for (const bool during_wgrad : {false, true}) {
          Scenario scenario = layout_scenario({1, 2, true}, "tp_comm_overlap", false, "fp32", 1, 3);
          scenario.overlap.tp_comm_overlap_ag = scenario.overlap.tp_comm_overlap_rs = false;
          scenario.overlap.tp_comm_bulk_dgrad = during_dgrad;
          scenario.overlap.tp_comm_bulk_wgrad = during_wgrad;
          Ideal ideal(scenario);
          ideal.set("fc1.dgrad", kDgrad);
          ideal.set("fc1.wgrad", kWgrad);
          ideal.set("fc1.all_gather_wgrad", gather);
          ideal.set("fc1.dgrad.reduce_scatter", scatter);
          const Time exposed_gather = during_dgrad ? std::max<Time>(0, gather - kDgrad) : gather,
                     exposed_scatter = during_wgrad ? std::max<Time>(0, scatter - kWgrad) : scatter;
          INFO("all-gather " << gather << " ps, reduce-scatter " << scatter << " ps, bulk dgrad " << during_dgrad
                             << ", bulk wgrad " << during_wgrad);
          CHECK(ideal.run().step == scenario.model.num_layers * scenario.num_microbatches() *
                                        (kDgrad + kWgrad + exposed_gather + exposed_scatter));
        }
}

namespace {

// One GEMM of every layer with its communication in pieces; all other operations cost nothing.
struct Pieces {
  Pieces(std::int64_t tp, const std::string& gemm, const TpGemm& method, std::int64_t lanes = 1)
      : scenario(scenario_of(tp, gemm, method, lanes)), ideal(scenario) {}

  static Scenario scenario_of(std::int64_t tp, const std::string& gemm, const TpGemm& method, std::int64_t lanes) {
    Scenario scenario = layout_scenario({1, tp, true}, "tp_comm_bulk", false, "fp32", 1, 3);
    scenario.model.hidden_size = scenario.model.ffn_hidden_size = 12 * tp;
    scenario.model.num_attention_heads = tp;
    scenario.model.num_query_groups = tp;
    scenario.model.seq_length = scenario.model.max_position_embeddings = 12 * tp;
    scenario.overlap.tp_comm_bulk_dgrad = scenario.overlap.tp_comm_bulk_wgrad = false;
    scenario.overlap.tp_comm_overlap_cfg = {{gemm, method}};
    scenario.overlap.tp_comm_overlap_compute_lanes = lanes;
    return scenario;
  }
  // Sets the time of all operations with this name and a number after it. Returns how many there are.
  std::int64_t set(const std::string& name, Time time) {
    std::int64_t count = 0;
    for (; ideal.schedule.find_operation(name + std::to_string(count)); ++count)
      ideal.set(name + std::to_string(count), time);
    return count;
  }
  void set_messages(const std::string& gemm, Time time) {
    set(gemm + ".send", time);
    set(gemm + ".recv", time);
  }
  std::int64_t layers() const { return scenario.model.num_layers * scenario.num_microbatches(); }  // layers of a step
  Time layer() const { return ideal.run().step / layers(); }

  Scenario scenario;
  Ideal ideal;
};

constexpr Time kPiece = 1000;

}  // namespace

TEST_CASE("ring all-gather: exposed is what a message takes longer than a piece, (n - 1) times", "[closed]") {
  for (const std::int64_t tp : {2, 3, 4, 8})
    for (const Time message : {0, 400, 1000, 1700}) {
      INFO("tp " << tp << ", messages of " << message);
      Pieces run(tp, "fc1_fprop", {TpMethod::ring_exchange});
      REQUIRE(run.set("fc1.fprop.", kPiece) == tp);
      run.set_messages("fc1.fprop", message);
      CHECK(run.layer() == tp * kPiece + (tp - 1) * std::max<Time>(0, message - kPiece));
    }
}

TEST_CASE("on several compute lanes, exposed is the time in which none of them computes", "[closed]") {
  for (const std::int64_t lanes : {1, 2, 3})
    for (const std::int64_t tp : {2, 3, 8})
      for (const Time message : {0, 400, 1000, 1700}) {
        INFO(lanes << " compute lanes, tp " << tp << ", messages of " << message);
        Pieces run(tp, "fc1_fprop", {TpMethod::ring_exchange}, lanes);
        REQUIRE(run.set("fc1.fprop.", kPiece) == tp);
        run.set_messages("fc1.fprop", message);
        const sim::SimResult result = run.ideal.run();
        const Breakdown b = breakdown(run.ideal.schedule, result.programs.front(), result.timeline);
        CHECK(b.exposed_total == run.layers() * (tp - 1) * std::max<Time>(0, message - kPiece));
        CHECK(b.compute == result.step - b.exposed_total);
        CHECK(b.bubble == 0);
      }
}

TEST_CASE("ring all-gather in pairs: neighbours first, then half as many of twice the size", "[closed]") {
  for (const std::int64_t tp : {2, 4, 6, 8})
    for (const Time message : {0, 400, 1000, 1700}) {
      INFO("tp " << tp << ", messages of " << message);
      Pieces run(tp, "fc1_fprop", {TpMethod::ring_exchange, true});
      REQUIRE(run.set("fc1.fprop.", 2 * kPiece) == tp / 2);
      run.set_messages("fc1.fprop", 2 * message);
      for (const char* neighbour : {"fc1.fprop.send_neighbour", "fc1.fprop.recv_neighbour"})
        run.ideal.set(neighbour, message);
      CHECK(run.layer() == message + tp * kPiece + (tp / 2 - 1) * std::max<Time>(0, 2 * message - 2 * kPiece));
    }
}

TEST_CASE("reduce-scatter by ring: the last messages and the sum are exposed", "[closed]") {
  constexpr Time kSum = 130;
  for (const std::int64_t tp : {2, 3, 4, 8})
    for (const Time message : {0, 400, 1000, 1700}) {
      INFO("tp " << tp << ", messages of " << message);
      Pieces run(tp, "fc2_fprop", {TpMethod::ring_exchange});
      REQUIRE(run.set("fc2.fprop.", kPiece) == tp);
      run.set_messages("fc2.fprop", message);
      run.ideal.set("fc2.fprop.reduce", kSum);
      CHECK(run.layer() == tp * kPiece + (tp - 1) * std::max<Time>(0, message - kPiece) + kSum);
    }
}

namespace {

TpGemm flash_gemm(std::int64_t slices, TpAccumulate accumulate = TpAccumulate::ring) {
  TpGemm gemm{TpMethod::flash};
  gemm.num_slices = slices;
  gemm.accumulate = accumulate;
  return gemm;
}

}  // namespace

TEST_CASE("Flash-AG: the GEMMs of the slices that are here hide a message", "[closed]") {
  for (const char* slot : {"fc1_fprop", "fc2_dgrad"})
    for (const std::int64_t tp : {2, 3, 4, 8})
      for (const std::int64_t m : {1, 2, 3})
        for (const Time message : {0, 400, 1000, 1700, 3500}) {
          INFO(slot << ", tp " << tp << ", " << m << " slices, messages of " << message);
          Pieces run(tp, slot, flash_gemm(m));
          const std::string gemm = slot == std::string("fc1_fprop") ? "fc1.fprop" : "fc2.dgrad";
          REQUIRE(run.set(gemm + ".", kPiece) == m * tp);
          run.set_messages(gemm, message);
          const std::int64_t messages = m * (tp - 1);
          CHECK(run.layer() == std::max({m * tp * kPiece, message + messages * kPiece, kPiece + messages * message}));
          if (m == 1) CHECK(run.layer() == kPiece + (tp - 1) * std::max(kPiece, message));
        }
}

TEST_CASE("Flash-RS: one addition of one slice is the tail", "[closed]") {
  for (const char* slot : {"fc2_fprop", "fc1_dgrad"})
    for (const std::int64_t n : {2, 3, 4, 8})
      for (const std::int64_t m : {1, 2, 3})
        for (const Time c : {0, 400, 900, 1000, 1300, 3500})
          for (const Time a : {0, 100, 300, 1600}) {
            if (m > 1 && a > std::min(c, kPiece)) continue;
            INFO(slot << ", tp " << n << ", " << m << " slices, messages of " << c << ", additions of " << a);
            Pieces run(n, slot, flash_gemm(m));
            const std::string gemm = slot == std::string("fc2_fprop") ? "fc2.fprop" : "fc1.dgrad";
            REQUIRE(run.set(gemm + ".", kPiece) == m * n);
            run.set_messages(gemm, c);
            REQUIRE(run.set(gemm + ".add", a) == m * (n - 1));
            const Time g = kPiece, all = m * n * g + a, slow = g + m * (n - 1) * c + a;
            if (m > 1)
              CHECK(run.layer() == std::max({all, slow, n > 2 ? (m + 1) * g + 2 * a + m * (n - 2) * c : Time{0}}));
            else
              CHECK(run.layer() == std::max({all, 2 * g + a + (n - 2) * (c + a), g + (n - 1) * (c + a)}));
            if (c + a <= g) CHECK(run.layer() == all);
            if (m == 1 && c >= g) CHECK(run.layer() == g + (n - 1) * (c + a));
          }
}

TEST_CASE("Flash-RS with the sum at the owner: that sum is the tail", "[closed]") {
  constexpr Time kSum = 130;
  for (const std::int64_t tp : {2, 3, 4, 8})
    for (const std::int64_t m : {1, 2, 3})
      for (const Time message : {0, 400, 1000, 1700, 3500}) {
        INFO("tp " << tp << ", " << m << " slices, messages of " << message);
        Pieces run(tp, "fc2_fprop", flash_gemm(m, TpAccumulate::owner));
        REQUIRE(run.set("fc2.fprop.", kPiece) == m * tp);
        run.set_messages("fc2.fprop", message);
        run.ideal.set("fc2.fprop.reduce", kSum);
        const std::int64_t messages = m * (tp - 1);
        CHECK(run.layer() ==
              kSum + std::max({m * tp * kPiece, message + messages * kPiece, kPiece + messages * message}));
      }
}

TEST_CASE("reduce-scatter in pieces: the last piece is the tail", "[closed]") {
  for (const std::int64_t splits : {2, 3, 4, 6})
    for (const Time scatter : {0, 400, 1000, 1700}) {
      INFO(splits << " pieces, scattered in " << scatter);
      Pieces run(2, "fc2_fprop", {TpMethod::pipeline, false, splits});
      REQUIRE(run.set("fc2.fprop.", kPiece) == splits);
      REQUIRE(run.set("fc2.reduce_scatter.", scatter) == splits);
      CHECK(run.layer() == splits * kPiece + scatter + (splits - 1) * std::max<Time>(0, scatter - kPiece));
    }
}

}  // namespace stretto::testing
