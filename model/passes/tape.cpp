#include "model/passes/tape.hpp"

#include <algorithm>

namespace stretto::passes {

Slice Tape::gradient(const Slice& of) {
  const auto known = gradient_.find(of.value);
  if (known != gradient_.end()) return of.of(known->second);
  Value value = graphs_.of(of);
  value.name = value.gradient;
  value.gradient.clear();
  value.role = value.gradient_role;
  value.is_gradient = true;
  value.is_gathered = false;
  value.gradient_of = of.value;
  value.alias_of.reset();
  value.is_family = false;
  value.pool_place = value.gradient_pool_place;
  if (value.kind == ValueKind::given) value.given = Given::stream_gradient;
  const ValueId id = graphs_.add(std::move(value));
  gradient_[of.value] = id;
  return of.of(id);
}

Operand Tape::into(const Slice& of) {
  const Slice g = gradient(of);
  const bool is_added = std::any_of(written_.begin(), written_.end(), [&](const Slice& w) {
    return w.value == g.value && w.first < g.first + g.cols && g.first < w.first + w.cols && w.offset == g.offset;
  });
  written_.push_back(g);
  return is_added ? adds(g) : writes(g);
}

Operand Tape::into_parameter(const Slice& of) {
  const auto known = gradient_.find(of.value);
  if (known != gradient_.end()) return adds(of.of(known->second));
  Value value = graphs_.of(of);
  value.is_gradient = true;
  value.gradient_of = of.value;
  return adds(of.of(gradient_[of.value] = graphs_.add(std::move(value))));
}

Node Tape::node(const Node& of, const std::string& what, Phase phase, Work work, std::vector<Operand> operands) {
  Node made;
  made.work = std::move(work);
  made.operands = std::move(operands);
  made.base = of.base;
  made.of = of.id;
  made.what = what;
  made.suffix = of.suffix;
  made.phase = phase;
  made.module = of.module;
  made.section = of.section;
  made.concurrent_half = of.concurrent_half;
  made.slot = of.slot;
  made.id = graphs_.next++;
  return made;
}

Node& Tape::emit(const Node& of, const std::string& what, Phase phase, Work work, std::vector<Operand> operands) {
  graphs_.backward.push_back(node(of, what, phase, std::move(work), std::move(operands)));
  return graphs_.backward.back();
}

void Tape::insert_after_writer(ValueId value, Node node) {
  const auto last = std::find_if(graphs_.backward.rbegin(), graphs_.backward.rend(),
                                 [&](const Node& n) { return n.writes_value(value); });
  graphs_.backward.insert(last.base(), std::move(node));
}

}  // namespace stretto::passes
