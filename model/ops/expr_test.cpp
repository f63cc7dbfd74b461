#include "model/ops/expr.hpp"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <utility>

using namespace stretto;

namespace {

Coordinates at(std::initializer_list<std::pair<Coord, std::int64_t>> values) {
  Coordinates result;
  for (const auto& [coord, value] : values) result[coord] = value;
  return result;
}

}  // namespace

TEST_CASE("constants and coordinates") {
  CHECK(Expr().eval({}) == 0);
  CHECK(Expr(7).eval(at({{Coord::dp, 3}})) == 7);
  CHECK(Expr(Coord::layer).eval(at({{Coord::layer, 5}})) == 5);
  CHECK((Expr(Coord::layer) + 1).eval(at({{Coord::layer, 5}})) == 6);
  CHECK((2 + Expr(Coord::layer)).eval(at({{Coord::layer, 5}})) == 7);
  CHECK(Expr(7).is_constant());
  CHECK_FALSE(Expr(Coord::dp).is_constant());
}

TEST_CASE("arithmetic") {
  const auto point = at({{Coord::dp, 3}, {Coord::tp, 2}, {Coord::micro_batch, 9}});
  const Expr dp = Coord::dp, tp = Coord::tp, mb = Coord::micro_batch;
  CHECK((dp + tp).eval(point) == 5);
  CHECK((dp - tp).eval(point) == 1);
  CHECK((tp - dp).eval(point) == -1);
  CHECK((dp * tp).eval(point) == 6);
  CHECK((dp * 100 + 4).eval(point) == 304);
  CHECK((100 - dp).eval(point) == 97);
  CHECK((dp - 1 - tp * 5).eval(point) == -8);
  CHECK(mod(mb, 4).eval(point) == 1);
  CHECK(mod(mb, tp).eval(point) == 1);
  CHECK((mod(mb + 2, 4) * (tp + 1)).eval(point) == 9);
}

TEST_CASE("mod is never negative") {
  for (std::int64_t tp = 0; tp < 4; ++tp)
    for (std::int64_t back = 0; back < 9; ++back) {
      const std::int64_t value = mod(Expr(Coord::tp) - back, 4).eval(at({{Coord::tp, tp}}));
      CHECK(value == ((tp - back) % 4 + 4) % 4);
    }
}

TEST_CASE("select takes the first when the condition holds") {
  const Expr choice = select_le(Expr(Coord::layer), 3, Expr(Coord::layer) * 10, -1);
  CHECK(choice.eval(at({{Coord::layer, 0}})) == 0);
  CHECK(choice.eval(at({{Coord::layer, 3}})) == 30);
  CHECK(choice.eval(at({{Coord::layer, 4}})) == -1);
}

TEST_CASE("constants fold") {
  CHECK((Expr(3) * Expr(4) + 5).is_constant());
  CHECK((Expr(3) * Expr(4) + 5).eval({}) == 17);
  CHECK(mod(Expr(-1), 4).is_constant());
  CHECK(mod(Expr(-1), 4).eval({}) == 3);
  CHECK(select_le(Expr(1), 2, 10, 20).is_constant());
  CHECK(mod(Expr(Coord::micro_batch), 1).is_constant());  // one slot
}

TEST_CASE("only a constant has a value") {
  CHECK((Expr(2) * 3).value() == 6);
  CHECK_THROWS_AS(Expr(Coord::dp).value(), std::logic_error);
  CHECK_THROWS_AS((Expr(Coord::dp) * 2).value(), std::logic_error);
}

TEST_CASE("what an expression depends on") {
  CHECK(Expr(Coord::dp).depends_on(Coord::dp));
  CHECK_FALSE(Expr(Coord::dp).depends_on(Coord::tp));
  CHECK_FALSE(Expr(3).depends_on(Coord::dp));
  const Expr shard = Expr(Coord::dp) * 64 + Expr(Coord::layer);
  CHECK(shard.depends_on(Coord::dp));
  CHECK(shard.depends_on(Coord::layer));
  CHECK_FALSE(shard.depends_on(Coord::micro_batch));
}

TEST_CASE("text reads like the formula") {
  CHECK(Expr(3).text() == "3");
  CHECK(Expr(Coord::layer).text() == "layer");
  CHECK((Expr(Coord::layer) + 1).text() == "layer + 1");
  CHECK((Expr(Coord::layer) - 2).text() == "layer - 2");
  CHECK((Expr(Coord::dp) * 64).text() == "(dp * 64)");
  CHECK(mod(Expr(Coord::micro_batch), 2).text() == "(micro_batch mod 2)");
  CHECK(select_le(Expr(Coord::layer), 3, 0, 1).text() == "select(layer <= 3, 0, 1)");
}
