#include "model/ops/expr.hpp"

#include <cassert>
#include <stdexcept>

#include "base/values_of.hpp"

namespace stretto {
namespace {

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  assert(b > 0);
  const std::int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}

}  // namespace

const char* name_of(Coord coord) {
  return name_in({"micro_batch", "layer", "chunk", "slot", "buffer", "pp", "dp_instance", "dp", "cp", "cp_exchange",
                  "edp", "ep", "etp", "tp"},
                 coord);
}

std::int64_t Expr::value() const {
  if (!is_constant()) throw std::logic_error("expression " + text() + " has no value without coordinates");
  return constant_;
}

void Expr::append_to(std::vector<Node>& code) const {
  if (!code_.empty()) {
    code.insert(code.end(), code_.begin(), code_.end());
    return;
  }
  if (coord_ < 0) {
    code.push_back({Op::constant, constant_});
    return;
  }
  code.push_back({Op::coord, coord_});
  if (constant_ != 0) {
    code.push_back({Op::constant, constant_});
    code.push_back({Op::add, 0});
  }
}

Expr Expr::combine(Op op, std::initializer_list<const Expr*> parts) {
  Expr result;
  for (const Expr* part : parts) part->append_to(result.code_);
  result.code_.push_back({op, 0});
  bool constant = true;
  for (const Expr* part : parts) constant = constant && part->is_constant();
  return constant ? Expr(result.eval({})) : result;
}

Expr operator+(const Expr& a, const Expr& b) {
  if (b.is_constant() && a.code_.empty()) {
    Expr sum = a;
    sum.constant_ += b.constant_;
    return sum;
  }
  if (a.is_constant() && b.code_.empty()) return b + a;
  return Expr::combine(Expr::Op::add, {&a, &b});
}

Expr operator-(const Expr& a, const Expr& b) {
  if (b.is_constant()) return a + Expr(-b.constant_);
  return Expr::combine(Expr::Op::sub, {&a, &b});
}

Expr operator*(const Expr& a, const Expr& b) {
  if (a.is_constant() && a.constant_ == 1) return b;
  if (b.is_constant() && b.constant_ == 1) return a;
  return Expr::combine(Expr::Op::mul, {&a, &b});
}

Expr mod(const Expr& a, const Expr& b) {
  if (b.is_constant() && b.constant_ == 1) return 0;
  return Expr::combine(Expr::Op::mod, {&a, &b});
}

Expr select_le(const Expr& a, const Expr& b, const Expr& then, const Expr& otherwise) {
  return Expr::combine(Expr::Op::select_le, {&a, &b, &then, &otherwise});
}

std::int64_t Expr::eval(const Coordinates& at) const {
  if (code_.empty()) return coord_ < 0 ? constant_ : at.value[coord_] + constant_;
  constexpr std::size_t kUsual = 24;  // nodes; longer expressions are rare
  std::int64_t usual[kUsual];
  std::vector<std::int64_t> longer(code_.size() > kUsual ? code_.size() : 0);
  std::int64_t* const bottom = longer.empty() ? usual : longer.data();
  std::int64_t* top = bottom;
  const auto push = [&](std::int64_t value) { *top++ = value; };
  const auto pop = [&] {
    assert(top != bottom);
    return *--top;
  };
  for (const Node& node : code_) {
    switch (node.op) {
      case Op::constant:
        push(node.value);
        break;
      case Op::coord:
        push(at.value[node.value]);
        break;
      case Op::add: {
        const auto b = pop(), a = pop();
        push(a + b);
        break;
      }
      case Op::sub: {
        const auto b = pop(), a = pop();
        push(a - b);
        break;
      }
      case Op::mul: {
        const auto b = pop(), a = pop();
        push(a * b);
        break;
      }
      case Op::mod: {
        const auto b = pop(), a = pop();
        push(floor_mod(a, b));
        break;
      }
      case Op::select_le: {
        const auto otherwise = pop(), then = pop(), b = pop(), a = pop();
        push(a <= b ? then : otherwise);
        break;
      }
    }
  }
  return pop();
}

bool Expr::depends_on(Coord coord) const {
  if (code_.empty()) return coord_ == static_cast<int>(coord);
  for (const Node& node : code_)
    if (node.op == Op::coord && node.value == static_cast<int>(coord)) return true;
  return false;
}

std::string Expr::text() const {
  if (code_.empty()) {
    if (coord_ < 0) return std::to_string(constant_);
    std::string text = name_of(static_cast<Coord>(coord_));
    if (constant_ > 0) text += " + " + std::to_string(constant_);
    if (constant_ < 0) text += " - " + std::to_string(-constant_);
    return text;
  }
  std::vector<std::string> stack;
  auto pop = [&] {
    std::string top = std::move(stack.back());
    stack.pop_back();
    return top;
  };
  auto binary = [&](const char* symbol) {
    std::string b = pop(), a = pop();
    stack.push_back("(" + a + symbol + b + ")");
  };
  for (const Node& node : code_) {
    switch (node.op) {
      case Op::constant:
        stack.push_back(std::to_string(node.value));
        break;
      case Op::coord:
        stack.push_back(name_of(static_cast<Coord>(node.value)));
        break;
      case Op::add:
        binary(" + ");
        break;
      case Op::sub:
        binary(" - ");
        break;
      case Op::mul:
        binary(" * ");
        break;
      case Op::mod:
        binary(" mod ");
        break;
      case Op::select_le: {
        std::string otherwise = pop(), then = pop(), b = pop(), a = pop();
        stack.push_back("select(" + a + " <= " + b + ", " + then + ", " + otherwise + ")");
        break;
      }
    }
  }
  return pop();
}

}  // namespace stretto
