#include "model/schedule/print.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "model/schedule/fold.hpp"
#include "model/schedule/json.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

// Two layers, `micro_batches` micro-batches, one bucket: small, but with every feature of an order.
Schedule small(std::int64_t micro_batches = 4, std::int64_t layers = 3) {
  Schedule s;
  s.name = "plain";
  s.mesh = Mesh({{Coord::dp, 2}});
  s.placement = {2, 1};
  s.lanes = {{"compute", LaneKind::compute, 0}, {"dp", LaneKind::communication, -1}};
  s.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, 2}};
  s.storages = {{"bucket", Dtype::f32, BufferKind::parameter, 96},
                {"grad", Dtype::f32, BufferKind::gradient, 96},
                {"x.0", Dtype::f32, BufferKind::activation, 512}};
  s.tensors = {{"weight", 4, 8, layers, 1, std::vector<TensorPlace>(layers, TensorPlace{0, 0})},
               {"bucket.gradient", 1, 96, 1, 1, {{1, 0}}},
               {"x", 16, 8, layers, 2, std::vector<TensorPlace>(2 * layers, TensorPlace{2, 0})}};
  const View weight{0, Coord::layer, 0, 0, 4, 8, 8}, x{2, Coord::layer, mod(Expr(Coord::micro_batch), 2), 0, 16, 8, 8};
  s.operations = {{"fc1",
                   Gemm{16, 4, 8, false, true, false},
                   0,
                   Phase::forward,
                   {{AccessMode::read, x}, {AccessMode::read, weight}}},
                  {"fc1.wgrad", Gemm{4, 8, 16, true, false, false}, 0, Phase::wgrad, {{AccessMode::read, x}}},
                  {"dp.reduce_scatter",
                   Collective{CollectiveKind::reduce_scatter, 0, 96},
                   1,
                   Phase::grad_sync,
                   {{AccessMode::write, {1, 0, 0, Expr(Coord::dp) * Expr(48), 1, 48, 48}}}},
                  {"adamw",
                   AdamW{48, {{0, 32}, {64, 96}}, 2},
                   0,
                   Phase::optimizer,
                   {{AccessMode::accumulate, {1, 0, 0, 0, 1, 96, 96}}}},
                  {"gelu", Elementwise{ElementwiseFn::gelu, 16, 8}, 0, Phase::forward, {{AccessMode::write, x}}}};
  s.blocks = {{"layer.forward", {0, 4}}, {"layer.backward", {1}}, {"reduce", {2}}, {"optimizer", {3}}};
  s.programs = {{"rank", {}}};
  auto& order = s.programs[0].order;
  for (std::int64_t mb = 0; mb < micro_batches; ++mb) {
    for (std::int64_t layer = 0; layer < layers; ++layer) order.push_back({0, layer, mb, 0, 0, 2, {}});
    for (std::int64_t layer = layers; layer-- > 0;) order.push_back({1, layer, mb, 0, 0, 1, {}});
  }
  order.push_back({2, 0, 0, 0, 0, 1, {{EdgeKind::finish_start, {1, 0, micro_batches - 1, 0, 0}}}});
  order.push_back({3, 0, 0, 0, 0, 1, {{EdgeKind::finish_start, {2, 0, 0, 0, 0}}}});
  return s;
}

void expand(const std::vector<FoldedCall>& items, std::int64_t layer, std::int64_t micro_batch,
            std::vector<Call>& out) {
  for (const FoldedCall& item : items) {
    for (std::int64_t i = 0; i < item.count; ++i) {
      const std::int64_t at_layer = layer + i * item.layer_step, at_mb = micro_batch + i * item.micro_batch_step;
      if (item.call) {
        out.push_back(*item.call);
        out.back().layer += at_layer, out.back().micro_batch += at_mb;
      } else {
        expand(item.body, at_layer, at_mb, out);
      }
    }
  }
}

void check_expands(const std::vector<Call>& order) {
  std::vector<Call> out;
  expand(fold(order), 0, 0, out);
  REQUIRE(out.size() == order.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    REQUIRE(out[i].block == order[i].block);
    REQUIRE(out[i].layer == order[i].layer);
    REQUIRE(out[i].micro_batch == order[i].micro_batch);
    REQUIRE(out[i].first == order[i].first);
    REQUIRE(out[i].count == order[i].count);
    REQUIRE(out[i].waits.size() == order[i].waits.size());
  }
}

}  // namespace

TEST_CASE("repetition in an order is folded", "[print]") {
  const Schedule s = small();
  const auto folded = fold(s.programs[0].order);
  REQUIRE(folded.size() == 3);
  CHECK(folded[0].count == 4);
  CHECK(folded[0].micro_batch_step == 1);
  REQUIRE(folded[0].body.size() == 2);
  CHECK(folded[0].body[1].layer_step == -1);
}

TEST_CASE("expanding a folded order gives the order back", "[print]") {
  for (std::int64_t mb : {1, 2, 7})
    for (std::int64_t layers : {1, 2, 12}) {
      Schedule s = small(mb, layers);
      auto& order = s.programs[0].order;
      check_expands(order);
      order[order.size() / 2].waits.push_back({});  // breaks a repetition in the middle
      check_expands(order);
      std::swap(order[0], order.back());
      check_expands(order);
    }
  check_expands({});
}

TEST_CASE("layers whose body alternates between blocks are folded too", "[print]") {
  std::vector<Call> order;
  for (std::int64_t layer = 5; layer >= 0; --layer)
    for (BlockId block : {0u, 1u}) order.push_back({block, layer, 0, 0, 0, 1, {}});
  const auto folded = fold(order);
  REQUIRE(folded.size() == 1);
  CHECK(folded[0].count == 6);
  CHECK(folded[0].body.size() == 2);
  check_expands(order);
}

TEST_CASE("a printed schedule says what a reader looks for", "[print]") {
  Schedule s = small();
  s.notes = {"overlap_param_gather is off: data_parallel_size is 1"};
  const std::string text = print_schedule(s);
  CHECK_THAT(text, Contains("schedule plain, compute in f32"));
  CHECK_THAT(text, Contains("mesh: 2 ranks = dp 2"));
  CHECK_THAT(text, Contains("dp (communication) (priority -1)"));
  CHECK_THAT(text, Contains("communicator dp: 2 ranks along dp, on the NIC"));
  CHECK_THAT(text, Contains("note: overlap_param_gather is off"));
  CHECK_THAT(text, Contains("program rank: 38 operations in 26 calls\n"
                            "  ×4 micro-batches 0..3\n"
                            "    layer.forward h.0..2\n"
                            "    layer.backward h.2..0\n"
                            "  reduce  <- waits for compute: fc1.wgrad h.0 mb 3\n"
                            "  optimizer  <- waits for dp: dp.reduce_scatter\n"));
  CHECK_THAT(text, Contains("block layer.forward:"));
  CHECK_THAT(text, Contains("x[layer," + mod(Expr(Coord::micro_batch), 2).text() + "] r, weight[layer] r"));
  CHECK_THAT(text, Contains("bucket.gradient{1x48 at " + (Expr(Coord::dp) * Expr(48)).text() + "} w"));
  CHECK_THAT(text, Contains("2.0 KiB"));
  CHECK_THAT(print_schedule(s, {true, false}), !Contains("block layer.forward"));
  CHECK_THAT(print_schedule(s, {false, true}), !Contains("program rank"));
}

TEST_CASE("a part of a block and a wait across steps are spelled out", "[print]") {
  Schedule s = small(1, 1);
  auto& order = s.programs[0].order;
  order[0].count = 1;
  order[0].waits = {{EdgeKind::finish_start, {2, 0, 0, 0, 1}}, {EdgeKind::start_start, {2, 0, 0, 0, 0}}};
  order.insert(order.begin() + 1, Call{0, 0, 0, 0, 1, 1, {}});
  const std::string text = print_schedule(s, {true, false});
  CHECK_THAT(text,
             Contains("layer.forward h.0 mb 0, operations 0..0 of 2 from fc1  <- waits for dp: dp.reduce_scatter of "
                      "the step before; the start of dp: dp.reduce_scatter\n"));
  CHECK_THAT(text, Contains("layer.forward h.0 mb 0, operations 1..1 of 2 from gelu\n"));
}

TEST_CASE("schedule JSON is complete and deterministic", "[print]") {
  const Schedule s = small();
  const std::string text = write_schedule_json(s).dump();
  CHECK(text == write_schedule_json(small()).dump());
  const auto json = nlohmann::json::parse(text);
  CHECK(json.at("format") == "stretto-schedule-1");
  CHECK(json.at("mesh").at("axes").at(0) == nlohmann::json{{"coord", "dp"}, {"size", 2}});
  CHECK(json.at("lanes").size() == s.lanes.size());
  CHECK(json.at("communicators").size() == s.communicators.size());
  CHECK(json.at("storages").size() == s.storages.size());
  REQUIRE(json.at("tensors").size() == s.tensors.size());
  for (std::size_t i = 0; i < s.tensors.size(); ++i)
    CHECK(json["tensors"][i]["places"].size() == s.tensors[i].places.size());
  REQUIRE(json.at("operations").size() == s.operations.size());
  for (std::size_t i = 0; i < s.operations.size(); ++i)
    CHECK(json["operations"][i]["accesses"].size() == s.operations[i].accesses.size());
  CHECK(json.at("blocks").size() == s.blocks.size());
  const auto& order = json.at("programs").at(0).at("order");
  REQUIRE(order.size() == s.programs[0].order.size());
  CHECK(order.back().at("waits").at(0).at("op") == 2);
  CHECK(order.back().at("waits").at(0).at("kind") == "finish_start");
  const auto& gemm = json["operations"][0]["work"];
  CHECK(gemm == nlohmann::json{{"kind", "gemm"},
                               {"m", 16},
                               {"n", 4},
                               {"k", 8},
                               {"trans_a", false},
                               {"scaling_a", "none"},
                               {"scaling_b", "none"},
                               {"split_accumulation", false},
                               {"trans_b", true},
                               {"bias", false},
                               {"epilogue", "none"}});
  CHECK(json["operations"][3]["work"]["decayed"] == nlohmann::json{{0, 32}, {64, 96}});
  CHECK(json["operations"][2]["work"]["kind"] == "reduce_scatter");
  CHECK(json["operations"][0]["accesses"][0]["slot"] == mod(Expr(Coord::micro_batch), 2).text());
  CHECK(json["operations"][0]["accesses"][0]["offset"] == 0);
  Schedule changed = small();
  changed.operations[3].accesses[0].view.ld = 95;
  CHECK(write_schedule_json(changed).dump() != text);
}
