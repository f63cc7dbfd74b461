#include "model/schedule/work.hpp"

#include <type_traits>

#include "base/overloaded.hpp"
#include "base/values_of.hpp"

namespace stretto {
namespace {

// Returns "rows 4 cols 6", for kinds that have no shorter text below.
template <class Kind>
std::string sizes_text(const Kind& kind) {
  std::string text;
  const auto add =
      Overloaded{[&](const char* name, const Expr& field) { text += std::string(" ") + name + " " + field.text(); },
                 [&](const char* name, const auto& field) {
                   if constexpr (std::is_enum_v<std::decay_t<decltype(field)>>)
                     text += std::string(" ") + name + " " + std::string(name_of(field));
                   else
                     text += std::string(" ") + name + " " + std::to_string(field);
                 }};
  for_each_field(kind, add);
  return text.substr(1);
}

// Kinds without products.
template <class Kind>
double counted_flops(const Kind&) {
  return 0;
}

}  // namespace

const char* name_of(Pass pass) { return name_in({"forward", "dgrad", "wgrad", "backward"}, pass); }

bool is_communication(const Work& work) {
  return std::holds_alternative<Collective>(work) || std::holds_alternative<PointToPoint>(work);
}

std::uint32_t communicator_of(const Work& work) {
  const auto* message = std::get_if<PointToPoint>(&work);
  return message ? message->communicator : std::get<Collective>(work).communicator;
}

const char* kind_of(const Work& work) {
  return std::visit(Overloaded{
                        [](const auto& w) { return std::decay_t<decltype(w)>::kKind; },
                        [](const AttentionProduct& a) { return name_of(a.product); },
                        [](const Elementwise& e) { return name_of(e.fn); },
                        [](const Collective& c) { return name_of(c.kind); },
                        [](const PointToPoint& p) { return p.is_send ? "send" : "receive"; },
                    },
                    work);
}

std::string describe(const Work& work) {
  return std::string(kind_of(work)) + " " + std::visit([](const auto& w) { return sizes_text(w); }, work);
}

namespace {
// A type that holds no expression. A field that may hold expressions has to be looked into, here and in evaluate().
template <class Reference, class T = std::remove_cvref_t<Reference>>
constexpr bool kHoldsNoExpr =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::vector<AdamW::Range>> ||
    std::is_same_v<T, RopeScaling> || std::is_same_v<T, YarnScaling> || std::is_same_v<T, ScoreRules>;
}  // namespace

bool depends_on(const Work& work, Coord axis) {
  bool depends = false;
  const auto check =
      Overloaded{[&](const char*, const Expr& field) { depends = depends || field.depends_on(axis); },
                 [&](const char*, const SequenceParts& field) { depends = depends || field.first.depends_on(axis); },
                 [](const char*, const auto& field) { static_assert(kHoldsNoExpr<decltype(field)>); }};
  std::visit([&](const auto& w) { for_each_field(w, check); }, work);
  return depends;
}

Work evaluate(const Work& work, const Coordinates& at) {
  Work result = work;
  const auto fix = Overloaded{[&](const char*, Expr& field) { field = field.eval(at); },
                              [&](const char*, SequenceParts& field) { field.first = field.first.eval(at); },
                              [](const char*, auto& field) { static_assert(kHoldsNoExpr<decltype(field)>); }};
  std::visit([&](auto& w) { for_each_field(w, fix); }, result);
  return result;
}

namespace {

std::vector<Part> parts_of_gemm(const Gemm& whole) {
  const std::size_t bias = 2, x = whole.x_index(), c = whole.c_index();
  Gemm plain = whole;
  plain.epilogue = GemmEpilogue::none;
  std::vector<Part::Operand> factors = {{0}, {1}};
  const auto product_in = [&](std::size_t result) {
    std::vector<Part::Operand> operands = factors;
    if (plain.bias) operands.push_back({bias});
    if (plain.has_factors()) operands.insert(operands.end(), {{whole.inverse_index()}, {whole.inverse_index() + 1}});
    operands.push_back({result});
    return Part{plain, std::move(operands)};
  };
  const auto apply = [&](ElementwiseFn fn) { return Elementwise{fn, whole.m, whole.n}; };
  switch (whole.epilogue) {
    case GemmEpilogue::none:
      return {};
    case GemmEpilogue::gelu:
      return {product_in(x), {apply(ElementwiseFn::gelu), {{x, true}, {c}}}};
    case GemmEpilogue::gelu_backward:
      return {product_in(c), {apply(ElementwiseFn::gelu_backward), {{c, true}, {x}, {c}}}};
    case GemmEpilogue::gelu_backward_bias_gradient:
      return {product_in(c),
              {apply(ElementwiseFn::gelu_backward), {{c, true}, {x}, {c}}},
              {apply(ElementwiseFn::column_sum), {{c, true}, {whole.s_index()}}}};
    case GemmEpilogue::bias_gradient:
      return {product_in(c), {Elementwise{ElementwiseFn::column_sum, whole.k, whole.m}, {{0}, {x}}}};
    case GemmEpilogue::residual:  // adds the bias too, in the order of bias_add
      plain.bias = false;
      if (whole.bias) return {product_in(c), {apply(ElementwiseFn::bias_add), {{x}, {c, true}, {bias}, {c}}}};
      return {product_in(c), {apply(ElementwiseFn::add), {{x}, {c, true}, {c}}}};
  }
  return {};
}

// Operands of the fused work: dy, x, stats, gamma, gradients of the weights, dx.
template <class Norm>
std::vector<Part> parts_of_norm(Norm norm, std::size_t weights) {
  if (norm.pass != Pass::backward) return {};
  std::vector<Part> parts(2);
  norm.pass = Pass::wgrad;
  parts[0] = {norm, {{0}, {1}, {2}}};
  for (std::size_t i = 0; i < weights; ++i) parts[0].operands.push_back({4 + i});
  norm.pass = Pass::dgrad;
  parts[1] = {norm, {{0}, {1}, {2}, {3}, {4 + weights}}};
  return parts;
}

}  // namespace

std::vector<Part> parts_of(const Work& work) {
  return std::visit(Overloaded{[](const Gemm& gemm) { return parts_of_gemm(gemm); },
                               [](const LayerNorm& norm) { return parts_of_norm(norm, 2); },
                               [](const RmsNorm& norm) { return parts_of_norm(norm, 1); },
                               [](const auto&) { return std::vector<Part>{}; }},
                    work);
}

double model_flops(const Work& work) {
  return std::visit([](const auto& w) { return counted_flops(w); }, work);
}

}  // namespace stretto
