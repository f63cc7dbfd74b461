#include "model/ops/communication.hpp"

#include "base/values_of.hpp"

namespace stretto {

CollectiveRule rule_of(CollectiveKind kind) {
  using enum CollectivePhase::Slice;
  constexpr CollectivePhase gather{.source = of_giver, .target = of_giver},
      sum{.source = of_getter, .target = of_getter, .reduces = true},
      gather_sums{.source = of_giver, .target = of_giver, .from_result = true},
      exchange{.source = of_getter, .target = of_giver};
  switch (kind) {
    case CollectiveKind::all_gather:
      return {.name = "all_gather", .gives_shard = true, .phases = 1, .phase = {gather}};
    case CollectiveKind::reduce_scatter:
      return {.name = "reduce_scatter", .gets_shard = true, .phases = 1, .phase = {sum}};
    case CollectiveKind::all_reduce:
      return {.name = "all_reduce", .one_buffer = true, .phases = 2, .phase = {sum, gather_sums}};
    case CollectiveKind::all_to_all:
      return {.name = "all_to_all", .phases = 1, .phase = {exchange}};
    case CollectiveKind::dispatch:
      return {.name = "dispatch", .of_rows = true, .phases = 1, .phase = {exchange}};
    case CollectiveKind::combine:
      return {.name = "combine", .of_rows = true, .phases = 1, .phase = {exchange}};
  }
  return {};
}

CollectiveKind like_equal_slices(CollectiveKind kind) {
  return rule_of(kind).of_rows ? CollectiveKind::all_to_all : kind;
}

const char* name_of(CollectiveKind kind) { return rule_of(kind).name; }

const char* name_of(Reduction reduction) { return name_in({"sum", "max", "ring_sum"}, reduction); }

OperandList operands(const Collective& c, std::int64_t group_size) {
  using namespace operand_specs;
  if (c.elements < 1) return bad("elements must be positive");
  const CollectiveRule rule = rule_of(c.kind);
  if (c.reduction != Reduction::sum && !rule.reduces())
    return bad(std::string("the reduction is ") + name_of(c.reduction) + ", and nothing is reduced");
  if (rule.one_buffer) return {{vector_of("buffer", "A", c.elements)}, ""};
  if (c.by_rows()) {
    if (c.cols < 1 || c.capacity < 1) return bad("dimensions must be positive");
    if (c.experts % group_size != 0) return bad("every member must have equally many experts");
    if (c.elements % c.cols != 0 || c.capacity % c.cols != 0) return bad("buffers must be whole rows");
    const bool is_dispatch = c.kind == CollectiveKind::dispatch;
    return {{vector_of(is_dispatch ? "rows" : "received", "R", is_dispatch ? c.elements : c.capacity, Type::any),
             vector_of("offsets", "R", group_size * (c.experts + 1), Type::i32),
             vector_of(is_dispatch ? "received" : "rows", "W", is_dispatch ? c.capacity : c.elements, Type::any)},
            ""};
  }
  if (c.elements % group_size != 0)
    return bad(std::to_string(c.elements) + " elements do not divide by the group's " + std::to_string(group_size) +
               " members");
  const auto operand = [&](const char* modes, bool is_shard) {
    return vector_of(is_shard ? "shard" : "whole", modes, is_shard ? c.elements / group_size : c.elements,
                     rule.reduces() ? Type::floating : Type::any);
  };
  return {{operand("R", rule.gives_shard), operand("W", rule.gets_shard)}, ""};
}

OperandList operands(const PointToPoint& p, std::int64_t group_size) {
  using namespace operand_specs;
  if (p.elements < 1) return bad("elements must be positive");
  if (p.offset.is_constant() && p.offset.eval({}) % group_size == 0) return bad("a message to the rank itself");
  return {{vector_of("buffer", p.is_send ? "R" : "W", p.elements, Type::floating_or_codes)}, ""};
}

std::string sizes_text(const Collective& c) {
  return std::to_string(c.elements) + (c.reduction == Reduction::sum ? "" : std::string(" ") + name_of(c.reduction));
}

std::string sizes_text(const PointToPoint& p) {
  return std::to_string(p.elements) + (p.is_send ? " to " : " from ") +
         (p.offset.is_constant() && p.offset.eval({}) > 0 ? "+" : "") + p.offset.text();
}

}  // namespace stretto
