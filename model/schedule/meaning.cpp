#include "model/schedule/meaning.hpp"

#include <algorithm>

#include "model/schedule/symbolic.hpp"

namespace stretto {
namespace {

// One pass of a micro-batch through a model chunk.
std::uint64_t unit_of(const BoundOp& op) {
  return (static_cast<std::uint64_t>(static_cast<std::uint16_t>(op.chunk)) << 32) |
         static_cast<std::uint32_t>(op.micro_batch);
}

enum class Rule : std::uint8_t { none, one_unit, sum, parameter };

Rule rule_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::activation:
    case BufferKind::workspace:
      return Rule::one_unit;
    case BufferKind::gradient:
    case BufferKind::scalar:
      return Rule::sum;
    case BufferKind::parameter:
      return Rule::parameter;
    case BufferKind::optimizer_state:
    case BufferKind::input:
      break;
  }
  return Rule::none;
}

}  // namespace

Meaning::Meaning(const Schedule& schedule, const BoundProgram& program, std::uint32_t cells)
    : schedule_(schedule), program_(program), stamps_(cells), sums_(cells), versions_(cells, 0) {
  for (const Operation& operation : schedule.operations) is_communication_.push_back(is_communication(operation.work));
  std::int32_t last = 0;
  for (const BoundOp& op : program.ops) last = std::max(last, op.micro_batch);
  for (std::int32_t m = 0; m <= last; ++m) {
    hash_.push_back(mix(1, static_cast<std::uint64_t>(m)));
    each_once_ += hash_.back();
  }
}

std::optional<WrongValue> Meaning::visit(std::uint32_t op, std::uint32_t step, std::span<const CellUse> uses) {
  carried_version_.reset();
  std::optional<WrongValue> wrong;
  // An operation reads all that it reads before it writes.
  for (const CellUse& use : uses) {
    if (use.mode == AccessMode::write) continue;
    const Rule rule = rule_of(use.kind);
    if (rule == Rule::parameter)
      wrong = read_parameter(op, step, use);
    else if (step == 0 && rule == Rule::one_unit)
      wrong = read_one_unit(op, use);
    else if (step == 0 && rule == Rule::sum && use.mode == AccessMode::read)
      wrong = read_sum(op, use);
    if (wrong) return wrong;
  }
  for (const CellUse& use : uses) {
    if (use.mode == AccessMode::read) continue;
    const Rule rule = rule_of(use.kind);
    if (rule == Rule::parameter)
      write_parameter(op, step, use);
    else if (step == 0 && rule == Rule::one_unit)
      write_one_unit(op, use);
    else if (step == 0 && rule == Rule::sum)
      wrong = write_sum(op, use);
    if (wrong) return wrong;
  }
  return std::nullopt;
}

std::optional<WrongValue> Meaning::read_one_unit(std::uint32_t op, const CellUse& use) {
  const std::uint64_t unit = unit_of(program_.ops[op]);
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const Stamp& stamp = stamps_[c];
    // Tensors may share instances under other numbers: the output of a layer is the input of the next.
    const bool is_own = stamp.unit == unit && (stamp.tensor != use.tensor || stamp.instance == use.instance);
    if (is_own || stamp.writer == 0) [[likely]]
      continue;
    return WrongValue{use, "which " + name(stamp.writer - 1) + " has overwritten"};
  }
  return std::nullopt;
}

void Meaning::write_one_unit(std::uint32_t op, const CellUse& use) {
  const Stamp stamp{op + 1, use.instance, use.tensor, unit_of(program_.ops[op])};
  std::fill(stamps_.begin() + use.first, stamps_.begin() + use.last, stamp);
}

std::optional<WrongValue> Meaning::read_sum(std::uint32_t op, const CellUse& use) {
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    Sum& sum = sums_[c];
    if (auto wrong = unbalanced(use, sum)) return wrong;
    if (sum.consumer == 0) sum.consumer = op + 1;
    sum.reader = op + 1;
  }
  return std::nullopt;
}

std::optional<WrongValue> Meaning::write_sum(std::uint32_t op, const CellUse& use) {
  const bool adds = use.mode == AccessMode::accumulate, communicates = is_communication_at(op);
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    Sum& sum = sums_[c];
    // A reduce-scatter in place reads and writes its shard.
    const bool is_new = !adds && sum.reader != op + 1;
    if (is_new) {
      sum = {};
      continue;
    }
    if (sum.consumer != 0 && sum.consumer != op + 1)
      return WrongValue{use, "which " + name(sum.consumer - 1) + " has read before this"};
    if (!adds) sum.consumer = 0;
    if (adds && communicates) {
      if (auto wrong = unbalanced(use, sum)) return wrong;
    } else if (adds) {
      ++sum.terms;
      sum.micro_batches += hash_[static_cast<std::size_t>(program_.ops[op].micro_batch)];
    }
  }
  return std::nullopt;
}

std::optional<WrongValue> Meaning::unbalanced(const CellUse& use, const Sum& sum) const {
  if (use.kind != BufferKind::gradient) return std::nullopt;
  const auto count = static_cast<std::uint32_t>(hash_.size());
  if (sum.terms % count == 0 && sum.micro_batches == sum.terms / count * each_once_) [[likely]]
    return std::nullopt;
  return WrongValue{use, "which does not hold equally many gradients of each of " + std::to_string(count) +
                             " micro-batches (" + std::to_string(sum.terms) + " in all)"};
}

std::optional<WrongValue> Meaning::read_parameter(std::uint32_t op, std::uint32_t step, const CellUse& use) {
  const bool communicates = is_communication_at(op);
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const std::uint8_t version = versions_[c];
    if (communicates && carried_version_.value_or(version) == version)
      carried_version_ = version;
    else if (version != step)
      return WrongValue{use, version > step ? "which this step's update has changed already"
                                            : "which has not the update of the step before"};
  }
  return std::nullopt;
}

void Meaning::write_parameter(std::uint32_t op, std::uint32_t step, const CellUse& use) {
  const auto updated = static_cast<std::uint8_t>(step + 1);
  const std::uint8_t version = is_communication_at(op) ? carried_version_.value_or(updated) : updated;
  std::fill(versions_.begin() + use.first, versions_.begin() + use.last, version);
}

std::string Meaning::name(std::uint32_t op) const { return label(schedule_, program_.ops[op]); }

}  // namespace stretto
