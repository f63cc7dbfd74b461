#include "model/schedule/work.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "model/schedule/json.hpp"
#include "model/schedule/operands.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

TEST_CASE("a work is evaluated where a rank stands, and says on which axes it depends") {
  const Work work = AdamW{8, {{0, 4}}, 4, true, Expr(Coord::dp)};
  CHECK(depends_on(work, Coord::dp));
  CHECK_FALSE(depends_on(work, Coord::tp));
  Coordinates at;
  at[Coord::dp] = 3;
  const Work evaluated = evaluate(work, at);
  CHECK(evaluated == Work(AdamW{8, {{0, 4}}, 4, true, 3}));
  CHECK_FALSE(evaluated == work);
  CHECK_FALSE(depends_on(evaluated, Coord::dp));
}

TEST_CASE("JSON has all fields of a work, under their names") {
  TinySchedule t;
  const TensorId x = t.tensor("x", 4, 6), y = t.tensor("y", 4, 6);
  t.op("gemm", 0, Gemm{4, 6, 5, true, false, true, GemmEpilogue::gelu}, {});
  t.op("embedding", 0, Embedding{Pass::wgrad, 4, 6, 12, 2, false, 2, Expr(Coord::dp)}, {});
  t.op("adamw", 0, AdamW{8, {{0, 4}}, 2, true, 1}, {});
  t.map("map", 0, x, y);
  const nlohmann::json json = write_schedule_json(t.schedule);
  const auto work = [&](int op) { return json["operations"][op]["work"]; };
  CHECK(work(0) == nlohmann::json({{"kind", "gemm"},
                                   {"m", 4},
                                   {"n", 6},
                                   {"k", 5},
                                   {"trans_a", true},
                                   {"scaling_a", "none"},
                                   {"scaling_b", "none"},
                                   {"split_accumulation", false},
                                   {"trans_b", false},
                                   {"bias", true},
                                   {"epilogue", "gelu"}}));
  CHECK(work(1) == nlohmann::json({{"kind", "embedding"},
                                   {"pass", "wgrad"},
                                   {"rows", 4},
                                   {"cols", 6},
                                   {"vocab", 12},
                                   {"seq", 2},
                                   {"positions", false},
                                   {"by_document", false},
                                   {"shards", 2},
                                   {"shard", "dp"},
                                   {"parts", {{"of", 1}, {"first", 0}, {"count", 1}}}}));
  CHECK(work(2)["master"] == true);
  CHECK(work(2)["shard"] == 1);
  CHECK(work(2)["decayed"] == nlohmann::json::array({nlohmann::json::array({0, 4})}));
  CHECK(work(3) == nlohmann::json({{"kind", "gelu"}, {"fn", "gelu"}, {"rows", 4}, {"cols", 6}}));
}

// Executors without a fused kernel run the parts, so their operands must fit.
TEST_CASE("the parts of a fused work are given operands of the right shape") {
  std::vector<Work> fused = {LayerNorm{Pass::backward, 5, 7}, RmsNorm{Pass::backward, 5, 7}};
  for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::gelu_backward, GemmEpilogue::bias_gradient,
                                      GemmEpilogue::residual, GemmEpilogue::gelu_backward_bias_gradient})
    for (const bool bias : {false, true})
      fused.push_back(Gemm{3, 4, 5, epilogue == GemmEpilogue::bias_gradient, false, bias, epilogue});
  for (const Work& whole : fused) {
    INFO(describe(whole));
    const OperandList all = operands_of(whole, 1);
    const std::vector<Part> parts = parts_of(whole);
    const auto* gemm = std::get_if<Gemm>(&whole);
    REQUIRE(parts.size() == (gemm != nullptr && gemm->sums_columns() ? 3 : 2));
    for (const Part& part : parts) {
      CHECK(parts_of(part.work).empty());
      const OperandList list = operands_of(part.work, 1);
      REQUIRE(list.error == "");
      REQUIRE(list.operands.size() == part.operands.size());
      for (std::size_t i = 0; i < list.operands.size(); ++i) {
        const OperandSpec &given = all.operands[part.operands[i].index], &wanted = list.operands[i];
        INFO(given.name << " for " << wanted.name);
        CHECK(given.rows * given.cols == wanted.rows * wanted.cols);
      }
    }
  }
  CHECK(parts_of(Gemm{3, 4, 5}).empty());
  CHECK(parts_of(LayerNorm{Pass::dgrad, 5, 7}).empty());
}
