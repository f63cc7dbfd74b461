#include "model/schedule/print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/schedule/fold.hpp"

namespace stretto {
namespace {

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string range_text(std::int64_t first, std::int64_t step, std::int64_t count) {
  return count == 1 ? std::to_string(first) : fmt::format("{}..{}", first, first + step * (count - 1));
}

// Returns whether some view of the block's operations names the coordinate, so that the coordinate distinguishes calls.
bool block_depends_on(const Schedule& schedule, BlockId block, Coord coord) {
  for (const OpId op : schedule.blocks[block].ops)
    for (const Access& access : schedule.operations[op].accesses)
      if (access.view.layer.depends_on(coord) || access.view.slot.depends_on(coord) ||
          access.view.offset.depends_on(coord))
        return true;
  return false;
}

class OrderPrinter {
 public:
  OrderPrinter(const Schedule& schedule, std::string& out) : schedule_(schedule), out_(out) {
    for (BlockId block = 0; block < schedule.blocks.size(); ++block) {
      per_layer_.push_back(block_depends_on(schedule, block, Coord::layer));
      per_micro_batch_.push_back(block_depends_on(schedule, block, Coord::micro_batch));
    }
  }

  // Prints items. `layers` and `micro_batches` are how many times the enclosing repetitions advance each.
  void print(const std::vector<FoldedCall>& items, int depth, bool micro_batch_is_folded) {
    for (const FoldedCall& item : items) {
      if (item.call) {
        print_call(*item.call, 0, 1, depth, micro_batch_is_folded);
      } else if (item.micro_batch_step == 0 && item.body.size() == 1 && item.body[0].call) {
        print_call(*item.body[0].call, item.layer_step, item.count, depth, micro_batch_is_folded);
      } else {
        const Call& first = first_call(item);
        const bool layers = item.layer_step != 0;
        out_ += fmt::format("{:{}}×{} {} {}\n", "", 2 * depth, item.count, layers ? "layers" : "micro-batches",
                            layers ? range_text(first.layer, item.layer_step, item.count)
                                   : range_text(first.micro_batch, item.micro_batch_step, item.count));
        print(item.body, depth + 1, micro_batch_is_folded || !layers);
      }
    }
  }

 private:
  static const Call& first_call(const FoldedCall& item) {
    return item.call ? *item.call : first_call(item.body.front());
  }

  std::string address_text(const OpAddress& on) const {
    const Operation& operation = schedule_.operations[on.op];
    std::string text = schedule_.lanes[operation.lane].name + ": " + operation.name;
    const auto names = [&](Coord coord) {
      return std::any_of(operation.accesses.begin(), operation.accesses.end(), [&](const Access& access) {
        return access.view.layer.depends_on(coord) || access.view.slot.depends_on(coord);
      });
    };
    if (on.layer != 0 || names(Coord::layer)) text += fmt::format(" h.{}", on.layer);
    if (on.micro_batch != 0 || names(Coord::micro_batch)) text += fmt::format(" mb {}", on.micro_batch);
    if (on.chunk != 0) text += fmt::format(" chunk {}", on.chunk);
    if (on.steps_ago == 1) text += " of the step before";
    if (on.steps_ago > 1) text += fmt::format(" of {} steps before", on.steps_ago);
    return text;
  }

  // Blocks that begin with compute are in a sequence as a rule; the text names only the exceptions.
  std::string sequence_text(const Call& call) const {
    if (call.sequence == 0 || call.joined) return "";
    if (call.concurrent) return ", concurrent with the one before";
    if (call.sequence > 1) return fmt::format(", in sequence {}", call.sequence);
    const OpId first = schedule_.blocks[call.block].ops[call.first];
    return is_communication(schedule_.operations[first].work) ? ", in sequence" : "";
  }

  void print_call(const Call& call, std::int64_t layer_step, std::int64_t layers, int depth,
                  bool micro_batch_is_folded) {
    const Block& block = schedule_.blocks[call.block];
    std::string line = fmt::format("{:{}}{}", "", 2 * depth, block.name);
    if (layers > 1 || call.layer != 0 || per_layer_[call.block])
      line += fmt::format(" h.{}", range_text(call.layer, layer_step, layers));
    if (!micro_batch_is_folded && (call.micro_batch != 0 || per_micro_batch_[call.block]))
      line += fmt::format(" mb {}", call.micro_batch);
    if (call.chunk != 0) line += fmt::format(" chunk {}", call.chunk);
    if (call.slot != 0) line += fmt::format(" slot {}", call.slot);
    if (call.buffer != 0) line += fmt::format(" buffer {}", call.buffer);
    if (call.joined) line += ", in one group with the one before";
    line += sequence_text(call);
    if (call.count != block.ops.size()) {
      const Operation& first = schedule_.operations[block.ops[call.first]];
      line += fmt::format(", operations {}..{} of {} from {}", call.first, call.first + call.count - 1,
                          block.ops.size(), first.name);
    }
    for (std::size_t i = 0; i < call.waits.size(); ++i) {
      line += i == 0 ? "  <- waits for " : "; ";
      if (call.waits[i].kind == EdgeKind::start_start) line += "the start of ";
      line += address_text(call.waits[i].on);
    }
    out_ += line + '\n';
  }

  const Schedule& schedule_;
  std::string& out_;
  std::vector<bool> per_layer_, per_micro_batch_;  // [BlockId]
};

std::string access_text(const Schedule& schedule, const Access& access) {
  const Tensor& tensor = schedule.tensors[access.view.tensor];
  std::string text = tensor.name;
  const std::string layer = access.view.layer.text(), slot = access.view.slot.text();
  if (tensor.layers > 1 && tensor.slots > 1) text += fmt::format("[{},{}]", layer, slot);
  if (tensor.layers > 1 && tensor.slots == 1) text += fmt::format("[{}]", layer);
  if (tensor.layers == 1 && tensor.slots > 1) text += fmt::format("[0,{}]", slot);
  if (access.view.rows * access.view.cols != tensor.elements())
    text += fmt::format("{{{}x{} at {}}}", access.view.rows, access.view.cols, access.view.offset.text());
  constexpr std::array kModes = {" r", " w", " a"};
  return text + kModes[static_cast<std::size_t>(access.mode)];
}

std::string head_text(const Schedule& schedule) {
  std::string out = fmt::format("schedule {}, compute in {}\n", schedule.name, name_of(schedule.compute_dtype));
  out += fmt::format("mesh: {} rank{} =", schedule.mesh.ranks(), schedule.mesh.ranks() == 1 ? "" : "s");
  for (const MeshAxis& axis : schedule.mesh.axes()) out += fmt::format(" {} {}", name_of(axis.coord), axis.size);
  out += fmt::format("; {} a device, {} thread{} each\n", schedule.placement.ranks_per_device,
                     schedule.placement.threads_per_rank, schedule.placement.threads_per_rank == 1 ? "" : "s");
  out += "lanes:";
  for (const Lane& lane : schedule.lanes) {
    out += fmt::format(" {}", lane.name);
    if (lane.kind == LaneKind::communication) out += " (communication)";
    if (lane.priority != 0) out += fmt::format(" (priority {})", lane.priority);
    if (lane.queue >= 0) out += fmt::format(" (queue {})", lane.queue);
    out += &lane == &schedule.lanes.back() ? "" : ",";
  }
  out += '\n';
  constexpr std::array kEngines = {"SMs", "copy engine", "NIC"};
  for (const Communicator& communicator : schedule.communicators) {
    out += fmt::format("communicator {}: {} ranks along", communicator.name, communicator.size);
    for (const Coord axis : communicator.axes) out += fmt::format(" {}", name_of(axis));
    for (const std::int64_t coordinate : communicator.subset)
      out += fmt::format("{}{}", &coordinate == communicator.subset.data() ? ", only " : " and ", coordinate);
    out += fmt::format(", on the {}, {} channel{}\n", kEngines[static_cast<std::size_t>(communicator.engine)],
                       communicator.channels, communicator.channels == 1 ? "" : "s");
  }
  for (const std::string& note : schedule.notes) out += fmt::format("note: {}\n", note);
  return out;
}

std::string buffers_text(const Schedule& schedule) {
  struct Total {
    std::int64_t storages = 0, bytes = 0;
  };
  std::array<Total, static_cast<std::size_t>(BufferKind::scalar) + 1> by_kind{};
  Total all;
  for (const Storage& storage : schedule.storages) {
    for (Total* total : {&by_kind[static_cast<std::size_t>(storage.kind)], &all})
      ++total->storages, total->bytes += storage.bytes();
  }
  std::string out = "buffers of a rank (before storages share memory):\n";
  const auto line = [&](const char* name, const Total& total) {
    out += fmt::format("  {:<16} {:>6} storage{} {:>12}\n", name, total.storages, total.storages == 1 ? " " : "s",
                       bytes_text(total.bytes));
  };
  for (std::size_t kind = 0; kind < by_kind.size(); ++kind)
    if (by_kind[kind].storages > 0) line(name_of(static_cast<BufferKind>(kind)), by_kind[kind]);
  line("total", all);
  return out;
}

std::string blocks_text(const Schedule& schedule) {
  std::size_t name_width = 0, work_width = 0, lane_width = 0;
  for (const Operation& operation : schedule.operations) {
    name_width = std::max(name_width, operation.name.size());
    work_width = std::max(work_width, describe(operation.work).size());
    lane_width = std::max(lane_width, schedule.lanes[operation.lane].name.size());
  }
  std::string out;
  for (const Block& block : schedule.blocks) {
    out += fmt::format("block {}:\n", block.name);
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      const Operation& operation = schedule.operations[block.ops[i]];
      out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:<10}", operation.name, name_width, describe(operation.work),
                         work_width, schedule.lanes[operation.lane].name, lane_width, name_of(operation.phase));
      for (const Access& access : operation.accesses)
        out += fmt::format("{}{}", &access == operation.accesses.data() ? "  " : ", ", access_text(schedule, access));
      bool first = true;
      for (const BlockWait& wait : block.waits) {
        if (wait.op != i) continue;
        out += fmt::format("{}{}{}", first ? "  <- waits for " : "; ",
                           wait.kind == EdgeKind::start_start ? "the start of " : "",
                           schedule.operations[block.ops[wait.on]].name);
        first = false;
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace

std::string print_schedule(const Schedule& schedule, const PrintOptions& options) {
  std::string out = head_text(schedule) + buffers_text(schedule);
  if (options.order) {
    for (const Program& program : schedule.programs) {
      std::size_t operations = 0;
      for (const Call& call : program.order) operations += call.count;
      out += fmt::format("program {}: {} operations in {} calls\n", program.role, operations, program.order.size());
      OrderPrinter(schedule, out).print(fold(program.order), 1, false);
    }
  }
  if (options.blocks) out += blocks_text(schedule);
  return out;
}

}  // namespace stretto
