#include "model/verify/check.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "model/schedule/operands.hpp"

namespace stretto {
namespace {

class Findings {
 public:
  explicit Findings(std::size_t limit) : limit_(limit) {}
  void add(const std::string& where, const std::string& what) {
    if (violations.size() < limit_)
      violations.push_back({Violation::Kind::malformed, "malformed: " + where + ": " + what});
  }
  std::vector<Violation> violations;

 private:
  std::size_t limit_;
};

std::string shape(std::int64_t rows, std::int64_t cols) {
  return "[" + std::to_string(rows) + "," + std::to_string(cols) + "]";
}

// Each instance of an input holds numbers of its own, which nobody writes within a step, so no two instances may
// overlap.
void check_inputs_apart(const Schedule& schedule, const Tensor& tensor, Findings& out) {
  const auto is_input = [&](const TensorPlace& place) {
    return place.storage < schedule.storages.size() && schedule.storages[place.storage].kind == BufferKind::input;
  };
  if (tensor.places.size() < 2 || !is_input(tensor.places.front())) return;
  const auto before = [](const TensorPlace& a, const TensorPlace& b) {
    return std::tie(a.storage, a.offset) < std::tie(b.storage, b.offset);
  };
  std::vector<TensorPlace> sorted;
  const bool is_sorted = std::is_sorted(tensor.places.begin(), tensor.places.end(), before);
  if (!is_sorted) {
    sorted = tensor.places;
    std::sort(sorted.begin(), sorted.end(), before);
  }
  const std::vector<TensorPlace>& places = is_sorted ? tensor.places : sorted;
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i].storage == places[i - 1].storage && places[i].offset < places[i - 1].offset + tensor.elements())
      return out.add(tensor.name, "instances of an input lie on each other");
}

void check_tensors(const Schedule& schedule, Findings& out) {
  for (const Tensor& tensor : schedule.tensors) {
    if (tensor.rows < 1 || tensor.cols < 1 || tensor.layers < 1 || tensor.slots < 1) {
      out.add(tensor.name, "rows, cols, layers and slots must be positive");
    } else if (std::int64_t(tensor.places.size()) != tensor.layers * tensor.slots) {
      out.add(tensor.name, std::to_string(tensor.places.size()) + " places for " + std::to_string(tensor.layers) +
                               " layers x " + std::to_string(tensor.slots) + " slots");
    } else {
      // Views are element offsets into storages, so all instances of a tensor must have one element type.
      for (const TensorPlace& place : tensor.places) {
        if (place.storage >= schedule.storages.size()) {
          out.add(tensor.name, "storage " + std::to_string(place.storage) + " does not exist");
        } else if (place.offset < 0 || place.offset + tensor.elements() > schedule.storages[place.storage].elements) {
          out.add(tensor.name, "leaves its storage " + schedule.storages[place.storage].name);
        } else if (tensor.places[0].storage < schedule.storages.size() &&
                   schedule.storages[place.storage].dtype != schedule.storages[tensor.places[0].storage].dtype) {
          out.add(tensor.name, "lies in storages of different element types");
        }
      }
      check_inputs_apart(schedule, tensor, out);
    }
  }
}

void check_communicators(const Schedule& schedule, Findings& out) {
  for (const Communicator& communicator : schedule.communicators) {
    std::int64_t size = 1;
    for (const Coord axis : communicator.axes) size *= schedule.mesh.size(axis);
    if (!communicator.subset.empty()) {
      if (communicator.axes.size() != 1) {
        out.add("communicator " + communicator.name, "a subset needs exactly one axis");
        continue;
      }
      for (std::size_t i = 0; i < communicator.subset.size(); ++i)
        if (communicator.subset[i] < (i == 0 ? 0 : communicator.subset[i - 1] + 1) || communicator.subset[i] >= size)
          out.add("communicator " + communicator.name, "its subset must be ascending coordinates of the axis");
      size = static_cast<std::int64_t>(communicator.subset.size());
    }
    const Mesh::Decomposition& axes = schedule.mesh.decomposition_with(communicator.axes);
    for (const Coord axis : communicator.axes)
      if (schedule.mesh.size(axis) > 1 &&
          std::none_of(axes.begin(), axes.end(), [&](const MeshAxis& of) { return of.coord == axis; }))
        out.add("communicator " + communicator.name, "no decomposition of the mesh has all of its axes");
    if (size != communicator.size)
      out.add("communicator " + communicator.name,
              "size " + std::to_string(communicator.size) + ", but its axes have " + std::to_string(size) + " ranks");
  }
}

bool has_mode(const OperandSpec& operand, AccessMode mode) {
  const char letter = mode == AccessMode::read ? 'R' : mode == AccessMode::write ? 'W' : 'A';
  return std::string_view(operand.modes).find(letter) != std::string_view::npos;
}

bool has_shape(const OperandSpec& operand, const View& view) {
  const bool is_contiguous = view.rows == 1 || view.ld == view.cols;
  switch (operand.shape) {
    case OperandShape::matrix:
      return view.rows == operand.rows && view.cols == operand.cols;
    case OperandShape::table:
      return view.rows >= operand.rows && view.cols == operand.cols;
    case OperandShape::vector:
      return is_contiguous && view.rows * view.cols == operand.rows * operand.cols;
    case OperandShape::elements:
      return view.rows * view.cols == operand.rows * operand.cols;
  }
  return false;
}

bool has_type(const OperandSpec& operand, Dtype dtype) {
  switch (operand.type) {
    case OperandType::floating:
      return dtype != Dtype::i32 && dtype != Dtype::i16 && !is_code(dtype);
    case OperandType::f32:
      return dtype == Dtype::f32;
    case OperandType::codes:
      return is_code(dtype);
    case OperandType::floating_or_codes:
      return dtype != Dtype::i32 && dtype != Dtype::i16;
    case OperandType::i16:
      return dtype == Dtype::i16;
    case OperandType::e4m3:
      return dtype == Dtype::e4m3;
    case OperandType::any:
      return true;
    case OperandType::i32:
      return dtype == Dtype::i32;
    case OperandType::f64:
      return dtype == Dtype::f64;
  }
  return false;
}

const char* type_text(OperandType type) {
  switch (type) {
    case OperandType::floating:
      return "a floating type";
    case OperandType::i32:
      return "i32";
    case OperandType::f64:
      return "f64";
    case OperandType::e4m3:
      return "e4m3";
    case OperandType::f32:
      return "f32";
    case OperandType::codes:
      return "a type of codes";
    case OperandType::floating_or_codes:
      return "a floating type or codes";
    case OperandType::i16:
      return "i16";
    case OperandType::any:
      return "any type";
  }
  return "?";
}

void check_access(const Schedule& schedule, const Operation& operation, const OperandSpec& operand, std::size_t number,
                  Findings& out) {
  const Access& access = operation.accesses[number];
  const View& view = access.view;
  const std::string name = "operand " + std::to_string(number) + " (" + operand.name + ")";
  if (view.tensor >= schedule.tensors.size()) {
    out.add(operation.name, name + ": tensor " + std::to_string(view.tensor) + " does not exist");
    return;
  }
  const Dtype dtype = schedule.dtype_of(view);
  if (view.rows < 1 || view.cols < 1 || (view.rows > 1 && view.ld < view.cols))
    out.add(operation.name, name + ": rows and cols must be positive and ld at least cols");
  if (!has_mode(operand, access.mode))
    out.add(operation.name, name + " has the wrong access mode, " + kind_of(operation.work) + " expects " +
                                operand.modes + " (R read, W write, A accumulate)");
  if (!has_shape(operand, view))
    out.add(operation.name, name + " is " + shape(view.rows, view.cols) + " with ld " + std::to_string(view.ld) + ", " +
                                describe(operation.work) + " expects " + shape(operand.rows, operand.cols) +
                                (operand.shape == OperandShape::vector ? ", contiguous" : ""));
  if (!has_type(operand, dtype))
    out.add(operation.name, name + " is " + std::string(name_of(dtype)) + ", " + kind_of(operation.work) + " expects " +
                                type_text(operand.type));
}

void check_operation(const Schedule& schedule, const Operation& operation, Findings& out) {
  if (operation.lane >= schedule.lanes.size()) {
    out.add(operation.name, "lane " + std::to_string(operation.lane) + " does not exist");
    return;
  }
  const Lane& lane = schedule.lanes[operation.lane];
  if (is_communication(operation.work) != (lane.kind == LaneKind::communication))
    out.add(operation.name, std::string(kind_of(operation.work)) + " does not belong on lane " + lane.name);
  for (const Coord coord : kCallCoords)
    if (depends_on(operation.work, coord))
      out.add(operation.name, std::string("its work names ") + name_of(coord) + ", but may name axes of the mesh only");
  std::int64_t group_size = 1;
  if (is_communication(operation.work)) {
    const std::uint32_t communicator = communicator_of(operation.work);
    if (communicator >= schedule.communicators.size()) {
      out.add(operation.name, "communicator " + std::to_string(communicator) + " does not exist");
      return;
    }
    group_size = std::max<std::int64_t>(1, schedule.communicators[communicator].size);
  }
  const OperandList list = operands_of(operation.work, group_size);
  if (!list.error.empty()) {
    out.add(operation.name, list.error);
  } else if (list.operands.size() != operation.accesses.size()) {
    out.add(operation.name, std::to_string(operation.accesses.size()) + " operands, " + kind_of(operation.work) +
                                " has " + std::to_string(list.operands.size()));
  } else {
    for (std::size_t i = 0; i < list.operands.size(); ++i) check_access(schedule, operation, list.operands[i], i, out);
  }
}

// Returns the lane of a call that is one send or receive; nullopt for any other call.
std::optional<LaneId> lane_of_message(const Schedule& schedule, const Call& call) {
  if (call.count != 1 || call.block >= schedule.blocks.size() || call.first >= schedule.blocks[call.block].ops.size())
    return std::nullopt;
  const OpId op = schedule.blocks[call.block].ops[call.first];
  if (op >= schedule.operations.size() || !std::holds_alternative<PointToPoint>(schedule.operations[op].work))
    return std::nullopt;
  return schedule.operations[op].lane;
}

void check_joined(const Schedule& schedule, const Program& program, const Call& call, Findings& out) {
  const auto lane = lane_of_message(schedule, call);
  if (!lane || &call == program.order.data() || lane_of_message(schedule, *(&call - 1)) != lane)
    out.add("program " + program.role, "only a send or receive can be joined, to one before it on its lane");
}

void check_calls(const Schedule& schedule, Findings& out) {
  if (schedule.programs.size() != 1 && std::int64_t(schedule.programs.size()) != schedule.mesh.size(Coord::pp))
    out.add("schedule", std::to_string(schedule.programs.size()) + " programs; expected one, or one for each of the " +
                            std::to_string(schedule.mesh.size(Coord::pp)) + " pipeline stages");
  for (const Block& block : schedule.blocks)
    for (const OpId op : block.ops)
      if (op >= schedule.operations.size())
        out.add("block " + block.name, "operation " + std::to_string(op) + " does not exist");
  for (const Block& block : schedule.blocks)
    for (std::size_t w = 0; w < block.waits.size(); ++w) {
      const BlockWait& wait = block.waits[w];
      if (wait.op >= block.ops.size() || wait.on >= block.ops.size() || wait.op == wait.on)
        out.add("block " + block.name, "a wait does not name two of its operations");
      else if (w > 0 && wait.op < block.waits[w - 1].op)
        out.add("block " + block.name, "waits must be in the order of the operations that wait");
    }
  for (const Program& program : schedule.programs) {
    for (const Call& call : program.order) {
      if (call.block >= schedule.blocks.size()) {
        out.add("program " + program.role, "block " + std::to_string(call.block) + " does not exist");
        continue;
      }
      const Block& block = schedule.blocks[call.block];
      if (call.joined) check_joined(schedule, program, call, out);
      if (std::uint64_t(call.first) + call.count > block.ops.size())
        out.add("program " + program.role, "a call leaves block " + block.name);
      for (const Edge& edge : call.waits) {
        if (edge.on.op >= schedule.operations.size())
          out.add("program " + program.role, "a call of " + block.name + " waits for an operation that does not exist");
        else if (edge.on.steps_ago < 0 || edge.on.steps_ago > 1)
          out.add("program " + program.role, "a call of " + block.name + " waits for " +
                                                 schedule.operations[edge.on.op].name + " " +
                                                 std::to_string(edge.on.steps_ago) + " steps ago: 0 or 1 is possible");
      }
    }
  }
}

// Names must be unique, because rewrites and messages find operations by name.
void check_names(const Schedule& schedule, Findings& out) {
  std::vector<std::string_view> names;
  for (const Operation& operation : schedule.operations) names.push_back(operation.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) out.add(std::string(*twice), "two operations have this name");
}

}  // namespace

std::vector<Violation> check_form(const Schedule& schedule, std::size_t limit) {
  Findings out(limit);
  check_names(schedule, out);
  check_tensors(schedule, out);
  check_communicators(schedule, out);
  // Operands are judged by the element types of their storages, so the storages must exist.
  if (out.violations.empty())
    for (const Operation& operation : schedule.operations) check_operation(schedule, operation, out);
  check_calls(schedule, out);
  return std::move(out.violations);
}

}  // namespace stretto
