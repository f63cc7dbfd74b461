#include "model/verify/meaning.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "model/verify/symbolic.hpp"

namespace stretto {
namespace {

// Bits of a stamp, from the top: micro-batch + 1, chunk, instance. The reader of scenarios allows 2^22 micro-batches x
// layers and 2^10 chunks of a stage.
constexpr int kChunkBits = 11;
constexpr std::uint64_t kInstances = std::uint64_t{1} << kInstanceBits;

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

ValueRules::ValueRules(const Schedule& schedule)
    : is_updated(schedule.storages.size(), false), first_instance(number_instances(schedule)) {
  for (const Operation& operation : schedule.operations) {
    is_communication.push_back(stretto::is_communication(operation.work));
    carries_version.push_back(
        is_communication.back() &&
        std::any_of(operation.accesses.begin(), operation.accesses.end(), [&](const Access& access) {
          const auto& places = schedule.tensors[access.view.tensor].places;
          return access.mode != AccessMode::read &&
                 rule_of(schedule.storages[places.front().storage].kind) == Rule::parameter;
        }));
    // A cast back reads the parameters of the previous step, rounded. Codes are made of the parameters of the step.
    const bool is_cast_back = std::holds_alternative<ScaledCast>(operation.work);
    keeps_version.push_back(is_cast_back || is_of_low_precision(operation.work));
    if (is_communication.back() || is_cast_back) continue;
    for (const Access& access : operation.accesses)
      if (access.mode != AccessMode::read)
        for (const TensorPlace& place : schedule.tensors[access.view.tensor].places) is_updated[place.storage] = true;
  }
  std::map<std::vector<StorageId>, std::uint32_t> numbers;
  for (const Tensor& tensor : schedule.tensors) {
    std::vector<StorageId> storages;
    for (const TensorPlace& place : tensor.places) storages.push_back(place.storage);
    same_places.push_back(numbers.emplace(std::move(storages), numbers.size()).first->second);
  }
}

Meaning::Meaning(const Schedule& schedule, const ValueRules& rules, const BoundProgram& program, std::uint32_t cells)
    : schedule_(schedule), rules_(rules), program_(program), stamps_(cells, 0), versions_(cells, 0) {
  for (std::vector<std::uint32_t>* of_sum : {&sums_.consumer, &sums_.reader, &sums_.terms}) of_sum->assign(cells, 0);
  sums_.micro_batches.assign(cells, 0);
  is_handed_over_.assign(schedule.operations.size(), false);
  std::int32_t last = 0;
  for (const BoundOp& op : program.ops) last = std::max(last, op.micro_batch);
  for (std::int32_t m = 0; m <= last; ++m) {
    hash_.push_back(mix(1, static_cast<std::uint64_t>(m)));
    each_once_ += hash_.back();
  }
}

bool Meaning::visit(std::uint32_t op, std::uint32_t step, std::span<const CellUse> uses) {
  carried_version_.reset();
  const BoundOp& at = program_.ops[op];
  const Stamp unit = ((static_cast<Stamp>(at.micro_batch + 1) << kChunkBits) | static_cast<Stamp>(at.chunk))
                     << kInstanceBits;
  const auto fails = [&](const CellUse& use) {
    wrong_.use = use;
    return false;
  };
  // An operation reads all its inputs before it writes.
  for (const CellUse& use : uses) {
    if (use.mode == AccessMode::write) continue;
    const Rule rule = rule_of(use.kind);
    if (rule == Rule::one_unit && step == 0) {
      std::uint64_t differences = 0;
      for (std::uint32_t c = use.first; c < use.last; ++c) differences |= stamps_[c] ^ (unit | use.instance);
      if (differences != 0 ? !is_of_unit(op, unit | use.instance, use)
                           : is_handed_over_[at.op] && !is_same_way(op, use, {0, tensor_of(use.instance)}))
        return fails(use);
    } else if (rule == Rule::parameter) {
      if (!read_parameter(op, step, use)) return fails(use);
    } else if (rule == Rule::sum && step == 0 && use.mode == AccessMode::read) {
      if (!read_sum(op, use)) return fails(use);
    }
  }
  for (const CellUse& use : uses) {
    if (use.mode == AccessMode::read) continue;
    const Rule rule = rule_of(use.kind);
    if (rule == Rule::one_unit && step == 0)
      for (std::uint32_t c = use.first; c < use.last; ++c) stamps_[c] = unit | use.instance;
    else if (rule == Rule::parameter)
      write_parameter(op, step, use);
    else if (rule == Rule::sum && step == 0 && !write_sum(op, use))
      return fails(use);
  }
  return true;
}

bool Meaning::is_of_unit(std::uint32_t op, Stamp own, const CellUse& use) {
  const auto chunk_of = [](Stamp stamp) {
    return static_cast<std::int64_t>((stamp >> kInstanceBits) % (std::uint64_t{1} << kChunkBits));
  };
  constexpr int kUnitBits = kChunkBits + kInstanceBits;
  std::optional<HandOver> way;  // the distance in chunks is equal for all cells; the tensor is that of the first
  const auto end = std::upper_bound(rules_.first_instance.begin(), rules_.first_instance.end(), use.instance);
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const Stamp stamp = stamps_[c];
    if (stamp == 0) continue;  // no operation has written it: another check finds that
    // Tensors may share instances under different numbers: the output of a layer is the input of the next. Parts of one
    // buffer, however, have the numbers of the whole buffer.
    const std::uint64_t instance = stamp % kInstances;
    const bool is_of_tensor = *(end - 1) <= instance && instance < *end && instance != use.instance;
    const std::size_t other = tensor_of(instance), tensor = tensor_of(use.instance);
    const bool is_other_layer = rules_.same_places[tensor] == rules_.same_places[other] &&
                                instance - rules_.first_instance[other] != use.instance - rules_.first_instance[tensor];
    const std::int64_t from = chunk_of(stamp) - chunk_of(own);
    if (stamp >> kUnitBits == own >> kUnitBits && !is_of_tensor && !is_other_layer && (!way || way->chunks == from)) {
      if (!way) way = {from, other};
      continue;
    }
    wrong_.why = "which " + written_as(stamp) + " has overwritten";
    return false;
  }
  return is_same_way(op, use, way.value_or(HandOver{0, tensor_of(use.instance)}));
}

// A chunk may hand over to the next chunk in memory, and an operation through one tensor to the reader of another. Then
// this operand must come from that chunk, through that tensor, in every call: a slot that another tensor has
// overwritten in the same micro-batch differs from the other slots.
bool Meaning::is_same_way(std::uint32_t op, const CellUse& use, HandOver from) {
  const auto key_of = [&](const BoundOp& at) { return Reading{at.op, at.layer, at.chunk, use.access}; };
  const auto key = key_of(program_.ops[op]);
  const auto known = handed_over_.find(key);
  bool is_same = true;
  if (known != handed_over_.end()) {
    is_same = known->second == from;
  } else if (from != HandOver{0, tensor_of(use.instance)}) {
    const auto begin = program_.ops.begin();
    is_same = std::none_of(begin, begin + op, [&](const BoundOp& before) { return key_of(before) == key; });
    handed_over_.emplace(key, from);
    is_handed_over_[program_.ops[op].op] = true;
  }
  if (!is_same)
    wrong_.why =
        "which comes " +
        (from.chunks == 0 ? "through " + schedule_.tensors[from.tensor].name : std::string("from another chunk")) +
        ", but not in every micro-batch";
  return is_same;
}

std::size_t Meaning::tensor_of(std::uint64_t instance) const {
  const auto next = std::upper_bound(rules_.first_instance.begin(), rules_.first_instance.end(), instance);
  return static_cast<std::size_t>(next - rules_.first_instance.begin()) - 1;
}

std::string Meaning::written_as(Stamp stamp) const {
  const std::size_t tensor = tensor_of(stamp % kInstances);
  const std::uint64_t unit = stamp >> kInstanceBits, chunk = unit % (1u << kChunkBits);
  std::string text = schedule_.tensors[tensor].name;
  if (schedule_.tensors[tensor].layers > 1)
    text += " of layer " + std::to_string(stamp % kInstances - rules_.first_instance[tensor]);
  text += " of micro-batch " + std::to_string((unit >> kChunkBits) - 1);
  return chunk == 0 ? text : text + ", chunk " + std::to_string(chunk);
}

bool Meaning::takes_sum(std::uint32_t op) {
  const auto* collective = std::get_if<Collective>(&program_.work_of(op));
  if (!collective || collective->reduction != Reduction::max) return true;
  wrong_.why = "whose maximum it takes, and not the sum";
  return false;
}

bool Meaning::read_sum(std::uint32_t op, const CellUse& use) {
  if (!is_balanced(use) || !takes_sum(op)) return false;
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    // A reduce-scatter leaves each sum with one member. Other members keep addends there.
    if (const std::uint32_t consumer = sums_.consumer[c]; consumer != 0 && !is_communication_at(op)) [[unlikely]]
      if (const auto* taken = std::get_if<Collective>(&program_.work_of(consumer - 1));
          taken && rule_of(taken->kind).reduces() && rule_of(taken->kind).gets_shard) {
        wrong_.why = "whose sum " + label(schedule_, program_.ops[consumer - 1]) + " has left with another rank";
        return false;
      }
    if (sums_.consumer[c] == 0) sums_.consumer[c] = op + 1;
    sums_.reader[c] = op + 1;
  }
  return true;
}

bool Meaning::write_sum(std::uint32_t op, const CellUse& use) {
  if (use.mode == AccessMode::accumulate) {
    if (!is_unread(op, use)) return false;
    if (is_communication_at(op)) return is_balanced(use) && takes_sum(op);
    const std::uint64_t hash = hash_[static_cast<std::size_t>(program_.ops[op].micro_batch)];
    for (std::uint32_t c = use.first; c < use.last; ++c) ++sums_.terms[c];
    for (std::uint32_t c = use.first; c < use.last; ++c) sums_.micro_batches[c] += hash;
    return true;
  }
  // A reduce-scatter in place reads and writes its shard.
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const bool is_in_place = sums_.reader[c] == op + 1;
    CellUse cell = use;
    cell.first = c, cell.last = c + 1;
    if (is_in_place && !is_unread(op, cell)) return false;
    sums_.consumer[c] = 0;
    if (!is_in_place) sums_.reader[c] = sums_.terms[c] = 0, sums_.micro_batches[c] = 0;
  }
  return true;
}

bool Meaning::is_unread(std::uint32_t op, const CellUse& use) {
  std::uint32_t any = 0;
  for (std::uint32_t c = use.first; c < use.last; ++c) any |= sums_.consumer[c];
  if (any == 0) [[likely]]
    return true;
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const std::uint32_t consumer = sums_.consumer[c];
    if (consumer == 0 || consumer == op + 1) continue;
    wrong_.why = "which " + label(schedule_, program_.ops[consumer - 1]) + " has read before this";
    return false;
  }
  return true;
}

bool Meaning::is_balanced(const CellUse& use) {
  if (use.kind != BufferKind::gradient) return true;
  const auto count = static_cast<std::uint32_t>(hash_.size());
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const std::uint32_t terms = sums_.terms[c];
    if (terms % count == 0 && sums_.micro_batches[c] == terms / count * each_once_) [[likely]]
      continue;
    wrong_.why = "which does not hold equally many gradients of each of " + std::to_string(count) + " micro-batches (" +
                 std::to_string(terms) + " in all)";
    return false;
  }
  return true;
}

bool Meaning::read_parameter(std::uint32_t op, std::uint32_t step, const CellUse& use) {
  if (!rules_.is_updated[use.storage]) return true;
  if (step == 0 && !is_updated_yet_) {
    carried_version_ = 0;
    return true;
  }
  std::uint8_t differences = 0;
  const std::uint8_t first = versions_[use.first];
  const auto expected =
      rules_.carries_version[program_.ops[op].op] ? carried_version_.value_or(first) : static_cast<std::uint8_t>(step);
  for (std::uint32_t c = use.first; c < use.last; ++c) differences |= versions_[c] ^ expected;
  carried_version_ = expected;
  if (differences == 0) [[likely]]
    return true;
  const bool is_newer = std::any_of(versions_.begin() + use.first, versions_.begin() + use.last,
                                    [&](std::uint8_t version) { return version > expected; });
  wrong_.why =
      is_newer ? "which this step's update has changed already" : "which has not the update of the step before";
  return false;
}

void Meaning::write_parameter(std::uint32_t op, std::uint32_t step, const CellUse& use) {
  const auto updated = static_cast<std::uint8_t>(step + 1);
  const bool keeps = rules_.keeps_version[program_.ops[op].op];
  const std::uint8_t version = keeps                     ? static_cast<std::uint8_t>(step)
                               : is_communication_at(op) ? carried_version_.value_or(updated)
                                                         : updated;
  is_updated_yet_ = is_updated_yet_ || version > 0;
  std::fill(versions_.begin() + use.first, versions_.begin() + use.last, version);
}

}  // namespace stretto
