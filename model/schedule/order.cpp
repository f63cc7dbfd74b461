#include "model/schedule/order.hpp"

#include <stdexcept>

namespace stretto {
namespace {

bool touches(const Schedule& schedule, const Call& call, const Operation& operation, StorageId storage,
             bool writes_only) {
  Coordinates at;
  at[Coord::layer] = call.layer;
  at[Coord::micro_batch] = call.micro_batch;
  at[Coord::chunk] = call.chunk;
  at[Coord::slot] = call.slot;
  at[Coord::buffer] = call.buffer;
  for (const Access& access : operation.accesses) {
    if (writes_only && access.mode == AccessMode::read) continue;
    const Tensor& tensor = schedule.tensors[access.view.tensor];
    const std::int64_t layer = access.view.layer.eval(at), slot = access.view.slot.eval(at);
    if (tensor.places[layer * tensor.slots + slot].storage == storage) return true;
  }
  return false;
}

}  // namespace

std::size_t cut_before(Program& program, OrderPosition at) {
  if (at.within == 0) return at.call;
  Call second = program.order[at.call];
  second.first += at.within;
  second.count -= at.within;
  second.waits.clear();
  second.joined = false;
  program.order[at.call].count = at.within;
  program.order.insert(program.order.begin() + static_cast<std::ptrdiff_t>(at.call) + 1, std::move(second));
  return at.call + 1;
}

OpAddress address_of(const Schedule& schedule, const Program& program, OrderPosition at, int steps_ago) {
  const Call& call = program.order[at.call];
  return {schedule.blocks[call.block].ops[call.first + at.within], call.layer, call.micro_batch, call.chunk, steps_ago};
}

OrderPosition position_of(const Schedule& schedule, const Program& program, const OpAddress& address) {
  for (std::size_t c = 0; c < program.order.size(); ++c) {
    const Call& call = program.order[c];
    if (call.layer != address.layer || call.micro_batch != address.micro_batch || call.chunk != address.chunk) continue;
    for (std::uint32_t i = 0; i < call.count; ++i)
      if (schedule.blocks[call.block].ops[call.first + i] == address.op) return {c, i};
  }
  throw std::logic_error("the order does not have " + schedule.operations[address.op].name);
}

std::optional<OrderPosition> find_first_user(const Schedule& schedule, const Program& program, StorageId storage,
                                             LaneId lane) {
  for (std::size_t c = 0; c < program.order.size(); ++c) {
    const Call& call = program.order[c];
    for (std::uint32_t i = 0; i < call.count; ++i) {
      const Operation& operation = schedule.operations[schedule.blocks[call.block].ops[call.first + i]];
      if (operation.lane == lane && touches(schedule, call, operation, storage, false)) return OrderPosition{c, i};
    }
  }
  return std::nullopt;
}

OrderPosition first_user(const Schedule& schedule, const Program& program, StorageId storage, LaneId lane) {
  if (const auto user = find_first_user(schedule, program, storage, lane)) return *user;
  throw std::logic_error("no operation uses storage " + schedule.storages[storage].name);
}

OrderPosition last_writer(const Schedule& schedule, const Program& program, StorageId storage, LaneId lane) {
  for (std::size_t c = program.order.size(); c-- > 0;) {
    const Call& call = program.order[c];
    for (std::uint32_t i = call.count; i-- > 0;) {
      const Operation& operation = schedule.operations[schedule.blocks[call.block].ops[call.first + i]];
      if (operation.lane == lane && touches(schedule, call, operation, storage, true)) return {c, i};
    }
  }
  throw std::logic_error("no operation writes storage " + schedule.storages[storage].name);
}

std::size_t call_of(const Schedule& schedule, const Program& program, OpId op) {
  for (std::size_t c = 0; c < program.order.size(); ++c) {
    const Call& call = program.order[c];
    if (call.count == 1 && schedule.blocks[call.block].ops[call.first] == op) return c;
  }
  throw std::logic_error("no call consists of " + schedule.operations[op].name);
}

}  // namespace stretto
