#include "report/chakra.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "model/schedule/partners.hpp"
#include "report/profile.hpp"
#include "report/protobuf.hpp"

namespace stretto {
namespace {

// Field numbers and enumerations of et_def.proto.
enum AttributeField { kAttributeName = 1, kInt32 = 7, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29 };
enum MetadataField { kVersion = 1, kMetadataAttribute = 2 };
enum NodeField { kId = 1, kName, kType, kControl, kData, kStart, kDuration, kInputs, kOutputs, kAttribute };
enum NodeType : unsigned { kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7 };

unsigned number_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 0;
    case CollectiveKind::all_gather:
      return 2;
    case CollectiveKind::all_to_all:
    case CollectiveKind::dispatch:
    case CollectiveKind::combine:
      return 6;
    case CollectiveKind::reduce_scatter:
      return 7;
  }
  return 0;
}

template <typename Value>
ProtoMessage attribute(const char* name, AttributeField type, Value value) {
  ProtoMessage message;
  message.add(kAttributeName, std::string_view(name));
  if constexpr (std::is_convertible_v<Value, std::string_view>)
    message.add(type, std::string_view(value));
  else
    message.add(type, static_cast<std::uint64_t>(value));
  return message;
}

Dtype type_of_first_operand(const Schedule& schedule, const Operation& operation) {
  return schedule.dtype_of(operation.accesses.front().view);
}

// Returns the arithmetic of GEMMs and attention; for other kinds one operation for each element of the largest operand.
std::int64_t operations_of(const Operation& operation) {
  if (const double flops = model_flops(operation.work); flops > 0) return std::int64_t(flops);
  std::int64_t elements = 0;
  for (const Access& access : operation.accesses) elements = std::max(elements, access.view.rows * access.view.cols);
  return elements;
}

// Rounds consecutive times to whole microseconds so that each of their sums is right to half a microsecond.
class WholeMicroseconds {
 public:
  std::uint64_t next(Picoseconds time) {
    passed_ += time;
    const Picoseconds us = (passed_ + kPicosecondsPerMicrosecond / 2) / kPicosecondsPerMicrosecond;
    return static_cast<std::uint64_t>(us - std::exchange(said_, us));
  }

 private:
  Picoseconds passed_ = 0, said_ = 0;
};

// Counts the messages between this rank and others so far: [communicator, sender, receiver].
using Messages = std::map<std::tuple<std::uint32_t, std::int64_t, std::int64_t>, std::int64_t>;

}  // namespace

std::vector<std::vector<std::uint64_t>> dependencies_of(const BoundProgram& program, std::size_t lanes) {
  const auto& ops = program.ops;
  std::vector<std::vector<std::uint64_t>> dependencies(ops.size());
  // [op][lane] number of operations that have finished before the operation starts.
  std::vector<std::vector<std::uint32_t>> finished(ops.size());
  // Returns the position of the first of the joined operations.
  const auto group_begin = [&](LaneId lane, std::uint32_t position) {
    while (ops[program.lanes[lane][position]].joined) --position;
    return position;
  };
  for (std::uint32_t first = 0, end = 0; first < ops.size(); first = end) {
    for (end = first + 1; end < ops.size() && ops[end].joined;) ++end;
    const LaneId own = ops[first].lane;
    // finished operations of each lane that the previous operation of this lane has waited for
    std::vector<std::uint32_t> known(lanes);
    if (ops[first].position > 0) known = finished[program.lanes[own][ops[first].position - 1]];
    std::vector<std::uint32_t> needed = known;
    needed[own] = ops[first].position;
    for (std::uint32_t op = first; op < end; ++op)
      for (std::uint32_t w = ops[op].wait_begin; w < ops[op].wait_end; ++w) {
        const BoundWait& wait = program.waits[w];
        if (wait.steps_ago > 0) continue;
        if (wait.kind == EdgeKind::finish_start) {
          needed[wait.lane] = std::max(needed[wait.lane], wait.position + 1);
          continue;
        }
        assert(wait.op < end && "an operation is issued after those that it waits for");
        if (wait.op >= first) continue;  // the operation is joined with this one
        for (std::size_t lane = 0; lane < lanes; ++lane) needed[lane] = std::max(needed[lane], finished[wait.op][lane]);
      }
    std::vector<std::uint64_t> on;
    for (LaneId lane = 0; lane < lanes; ++lane)
      if (needed[lane] > (lane == own ? 0 : known[lane]))
        for (std::uint32_t p = group_begin(lane, needed[lane] - 1); p < needed[lane]; ++p)
          on.push_back(program.lanes[lane][p]);
    std::sort(on.begin(), on.end());
    for (std::uint32_t op = first; op < end; ++op) {
      dependencies[op] = on;
      finished[op] = needed;
    }
  }
  return dependencies;
}

ChakraTraces::ChakraTraces(const Schedule& schedule, std::optional<StepTimes> times) : schedule_(schedule) {
  const std::int64_t ranks = schedule.mesh.ranks();
  for (const Communicator& communicator : schedule.communicators) {
    auto& numbers = group_of_.emplace_back(static_cast<std::size_t>(ranks));
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      if (numbers[std::size_t(rank)] != 0) continue;
      std::vector<std::int64_t> members = members_of(schedule, communicator, rank);
      if (members.empty()) continue;
      groups_.push_back(std::move(members));
      for (const std::int64_t member : groups_.back())
        numbers[std::size_t(member)] = static_cast<std::uint32_t>(groups_.size());
    }
  }
  if (!times) return;
  folding_ = times->folding;
  begin_ = std::numeric_limits<Picoseconds>::max();
  for (const TimelineRow& row : times->timeline.rows) {
    rows_[row.rank].push_back(row);
    begin_ = std::min(begin_, row.start);
  }
}

std::string ChakraTraces::groups() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < groups_.size(); ++i) json[std::to_string(i + 1)] = groups_[i];
  return json.dump() + "\n";
}

std::string ChakraTraces::of(std::int64_t rank) const {
  const BoundProgram program = bind(schedule_, rank);
  const auto dependencies = dependencies_of(program, schedule_.lanes.size());
  const std::vector<TimelineRow>* rows = nullptr;
  if (folding_) rows = &rows_.at(folding_->of(rank));
  assert(rows == nullptr || rows->size() == program.ops.size());

  ProtoMessage metadata;
  metadata.add(kVersion, std::string_view("0.0.4"));  // the version that Chakra's own converters write
  metadata.add(kMetadataAttribute, attribute("producer", kString, "stretto"));
  metadata.add(kMetadataAttribute, attribute("schedule", kString, schedule_.name));
  std::string text = metadata.delimited();

  std::vector<WholeMicroseconds> lanes(schedule_.lanes.size());
  Messages messages;
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    const BoundOp& op = program.ops[i];
    const Operation& operation = schedule_.operations[op.op];
    ProtoMessage node;
    node.add(kId, i);
    node.add(kName, label(schedule_, op));
    const auto add = [&](const ProtoMessage& attribute) { node.add(kAttribute, attribute); };
    const auto begin_node = [&](NodeType type) {
      node.add(kType, type);
      node.add(kData, dependencies[i]);
      if (rows == nullptr) return;
      const TimelineRow& row = (*rows)[i];
      const Picoseconds from = row.transfer;
      node.add(kStart, static_cast<std::uint64_t>((from - begin_) / kPicosecondsPerMicrosecond));
      node.add(kDuration, lanes[op.lane].next(row.moved() - from));
    };
    if (const auto* collective = std::get_if<Collective>(&program.work_of(i))) {
      begin_node(kCollective);
      const std::int64_t members = schedule_.communicators[collective->communicator].size;
      const std::int64_t given =
          rule_of(collective->kind).gives_shard ? collective->elements / members : collective->elements;
      add(attribute("comm_type", kInt64, number_of(collective->kind)));
      add(attribute("comm_size", kInt64, given * bytes_of(type_of_first_operand(schedule_, operation))));
    } else if (const auto* message = std::get_if<PointToPoint>(&program.work_of(i))) {
      begin_node(message->is_send ? kSend : kReceive);
      const std::int64_t peer = peer_of(schedule_, *message, rank).rank;
      const std::int64_t from = message->is_send ? rank : peer, to = message->is_send ? peer : rank;
      const auto communicators = static_cast<std::int64_t>(schedule_.communicators.size());
      const std::int64_t tag = messages[{message->communicator, from, to}]++ * communicators + message->communicator;
      add(attribute("comm_size", kInt64, message->elements * bytes_of(type_of_first_operand(schedule_, operation))));
      add(attribute("comm_src", kInt32, from));
      add(attribute("comm_dst", kInt32, to));
      add(attribute("comm_tag", kInt32, tag));
    } else {
      begin_node(kCompute);
      add(attribute("num_ops", kInt64, operations_of(operation)));
      add(attribute("tensor_size", kUint64, bytes_moved(schedule_, operation)));
    }
    if (is_communication(operation.work))
      add(attribute("pg_name", kString, std::to_string(group_of_[communicator_of(operation.work)][std::size_t(rank)])));
    add(attribute("is_cpu_op", kBool, false));
    add(attribute("stream", kInt64, op.lane));
    text += node.delimited();
  }
  return text;
}

}  // namespace stretto
