#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// The coordinates that an expression may depend on. micro_batch to buffer belong to a call and change inside a program;
// the other ones are fixed for a rank. `slot` and `buffer` are assigned with the order: see Call. With context
// parallelism a rank is at `cp` of a ring, or of an all-gather, and at `cp_exchange` among the ranks that exchange
// tokens for heads. With data parallelism a rank is at `dp` of the optimizer instance `dp_instance`.
// Experts may lie on the ranks of a stage in another way: at `ep` of those that share the experts, at `etp` of those
// that cut each of them, and at `edp` of those that have equal experts.
enum class Coord : std::uint8_t {
  micro_batch,
  layer,
  chunk,
  slot,
  buffer,
  pp,
  dp_instance,
  dp,
  cp,
  cp_exchange,
  edp,
  ep,
  etp,
  tp
};
constexpr int kCoordCount = static_cast<int>(Coord::tp) + 1;  // tp is the last
inline constexpr std::array kCallCoords = {Coord::micro_batch, Coord::layer, Coord::chunk, Coord::slot, Coord::buffer};
const char* name_of(Coord coord);

// A point at which expressions are evaluated. Absent axes are 0.
struct Coordinates {
  std::array<std::int64_t, kCoordCount> value{};
  std::int64_t& operator[](Coord coord) { return value[static_cast<int>(coord)]; }
  std::int64_t operator[](Coord coord) const { return value[static_cast<int>(coord)]; }
};

// An integer expression of coordinates: `(tp + 1) mod n`, `dp * shard`, `select(layer <= 3, …)`. A value type;
// immutable once built. Stored as postfix code; a constant and a coordinate + constant, which are nearly all
// expressions, take no memory. mod is the mathematical one: the result has the sign of the divisor, so `(tp - 1) mod n`
// is never negative.
class Expr {
 public:
  Expr() = default;
  Expr(std::int64_t constant) : constant_(constant) {}    // NOLINT: constants convert silently on purpose
  Expr(int constant) : constant_(constant) {}             // NOLINT
  Expr(Coord coord) : coord_(static_cast<int>(coord)) {}  // NOLINT

  std::int64_t eval(const Coordinates& at) const;
  bool is_constant() const { return coord_ < 0 && code_.empty(); }
  std::int64_t value() const;  // value of a constant; throws std::logic_error for any other expression
  // Compares the form: two expressions of different form with equal values are not equal.
  bool operator==(const Expr&) const = default;
  bool depends_on(Coord coord) const;
  std::string text() const;

  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr mod(const Expr& a, const Expr& b);
  friend Expr select_le(const Expr& a, const Expr& b, const Expr& then,
                        const Expr& otherwise);  // a <= b ? then : otherwise

 private:
  enum class Op : std::uint8_t { constant, coord, add, sub, mul, mod, select_le };
  struct Node {
    Op op;
    std::int64_t value;
    bool operator==(const Node&) const = default;
  };
  static Expr combine(Op op, std::initializer_list<const Expr*> parts);
  void append_to(std::vector<Node>& code) const;

  std::int64_t constant_ = 0;  // value when code_ is empty: coord_ + constant_
  int coord_ = -1;             // -1: none
  std::vector<Node> code_;     // postfix
};

}  // namespace stretto
