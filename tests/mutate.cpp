#include "tests/mutate.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "model/schedule/folding.hpp"
#include "model/schedule/order.hpp"

namespace stretto::testing {
namespace {

class Random {
 public:
  explicit Random(std::mt19937_64& engine) : engine_(engine) {}
  std::size_t below(std::size_t n) { return engine_() % n; }
  bool coin() { return below(2) == 0; }
  template <class T>
  T& pick(std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::mt19937_64& engine_;
};

// An edit changes the mutant and returns a description, or changes nothing and returns "" when the drawn edit is
// impossible.
using Edit = std::string (*)(Mutant&, Random&);

std::vector<Call>& order_of(Mutant& m) { return m.schedule.programs[m.role].order; }

std::string name_of(const Schedule& schedule, const OpAddress& at) {
  std::string name =
      schedule.operations[at.op].name + " h." + std::to_string(at.layer) + " mb " + std::to_string(at.micro_batch);
  return at.steps_ago > 0 ? name + " of the step before" : name;
}
std::string name_of(const Schedule& schedule, const Call& call) {
  return schedule.blocks[call.block].name + "[" + std::to_string(call.first) + "," +
         std::to_string(call.first + call.count) + ") h." + std::to_string(call.layer) + " mb " +
         std::to_string(call.micro_batch);
}
std::string name_of(const Schedule& schedule, const Edge& edge) {
  return (edge.kind == EdgeKind::start_start ? "start of " : "") + name_of(schedule, edge.on);
}

std::set<LaneId> lanes_of(const Schedule& schedule, const Call& call) {
  std::set<LaneId> lanes;
  for (std::uint32_t i = 0; i < call.count; ++i)
    lanes.insert(schedule.operations[schedule.blocks[call.block].ops[call.first + i]].lane);
  return lanes;
}

OpAddress random_address(Mutant& m, Random& random) {
  const std::size_t call = random.below(order_of(m).size());
  const auto within = static_cast<std::uint32_t>(random.below(order_of(m)[call].count));
  return address_of(m.schedule, m.schedule.programs[m.role], {call, within});
}

struct EdgeAt {
  std::size_t call = 0, wait = 0;
};
std::optional<EdgeAt> random_edge(Mutant& m, Random& random) {
  std::vector<EdgeAt> edges;
  for (std::size_t c = 0; c < order_of(m).size(); ++c)
    for (std::size_t w = 0; w < order_of(m)[c].waits.size(); ++w) edges.push_back({c, w});
  if (edges.empty()) return std::nullopt;
  return random.pick(edges);
}

// ---- edges ----

std::string drop_edge(Mutant& m, Random& random) {
  const auto at = random_edge(m, random);
  if (!at) return "";
  Call& call = order_of(m)[at->call];
  const std::string what =
      name_of(m.schedule, call) + " no longer waits for " + name_of(m.schedule, call.waits[at->wait]);
  call.waits.erase(call.waits.begin() + static_cast<std::ptrdiff_t>(at->wait));
  return what;
}

std::string retarget_edge(Mutant& m, Random& random) {
  const auto at = random_edge(m, random);
  if (!at) return "";
  Call& call = order_of(m)[at->call];
  Edge& edge = call.waits[at->wait];
  const std::string before = name_of(m.schedule, edge);
  const int steps_ago = edge.on.steps_ago;
  edge.on = random_address(m, random);
  edge.on.steps_ago = random.coin() ? steps_ago : 1 - steps_ago;
  return name_of(m.schedule, call) + " waits for " + name_of(m.schedule, edge) + " instead of " + before;
}

std::string change_steps_ago(Mutant& m, Random& random) {
  const auto at = random_edge(m, random);
  if (!at) return "";
  Call& call = order_of(m)[at->call];
  Edge& edge = call.waits[at->wait];
  edge.on.steps_ago = random.below(4) == 0 ? edge.on.steps_ago + 1 : 1 - edge.on.steps_ago;
  return name_of(m.schedule, call) + " waits for " + name_of(m.schedule, edge) + ", " +
         std::to_string(edge.on.steps_ago) + " steps ago";
}

std::string soften_edge(Mutant& m, Random& random) {
  const auto at = random_edge(m, random);
  if (!at) return "";
  Call& call = order_of(m)[at->call];
  Edge& edge = call.waits[at->wait];
  if (edge.kind == EdgeKind::start_start) return "";
  edge.kind = EdgeKind::start_start;
  return name_of(m.schedule, call) + " only waits for the " + name_of(m.schedule, edge);
}

BlockWait* random_block_wait(Mutant& m, Random& random) {
  Block& block = random.pick(m.schedule.blocks);
  return block.waits.empty() ? nullptr : &random.pick(block.waits);
}
std::string name_of(const BlockWait& wait) {
  return std::to_string(wait.op) + " of its block on " + std::to_string(wait.on);
}

std::string drop_block_wait(Mutant& m, Random& random) {
  Block& block = random.pick(m.schedule.blocks);
  if (block.waits.empty()) return "";
  const std::size_t at = random.below(block.waits.size());
  const std::string what = block.name + ": no wait of " + name_of(block.waits[at]);
  block.waits.erase(block.waits.begin() + static_cast<std::ptrdiff_t>(at));
  return what;
}

std::string change_block_wait(Mutant& m, Random& random) {
  BlockWait* wait = random_block_wait(m, random);
  if (wait == nullptr) return "";
  const std::string before = name_of(*wait);
  if (wait->on > 0) wait->on -= 1;
  return before + ", now of " + name_of(*wait);
}

std::string soften_block_wait(Mutant& m, Random& random) {
  BlockWait* wait = random_block_wait(m, random);
  if (wait == nullptr || wait->kind == EdgeKind::start_start) return "";
  wait->kind = EdgeKind::start_start;
  return "start only: " + name_of(*wait);
}

std::string leave_sequence(Mutant& m, Random& random) {
  Call& call = random.pick(order_of(m));
  if (call.sequence == 0) return "";
  call.sequence = random.coin() ? 0 : call.sequence + 1;
  return name_of(m.schedule, call) + " leaves its sequence";
}

// ---- order ----

std::string swap_calls(Mutant& m, std::size_t a, std::size_t b) {
  auto& order = order_of(m);
  std::swap(order[a], order[b]);
  return name_of(m.schedule, order[b]) + " at " + std::to_string(a) + " and " + name_of(m.schedule, order[a]) + " at " +
         std::to_string(b);
}

std::string swap_adjacent_calls(Mutant& m, Random& random) {
  const std::size_t first = random.below(order_of(m).size() - 1);
  return swap_calls(m, first, first + 1);
}

std::string swap_random_calls(Mutant& m, Random& random) {
  const std::size_t a = random.below(order_of(m).size()), b = random.below(order_of(m).size());
  return a == b ? "" : swap_calls(m, std::min(a, b), std::max(a, b));
}

std::string move_collective(Mutant& m, Random& random) {
  auto& order = order_of(m);
  std::vector<std::size_t> collectives;
  for (std::size_t c = 0; c < order.size(); ++c)
    if (is_communication(m.schedule.operations[m.schedule.blocks[order[c].block].ops[order[c].first]].work))
      collectives.push_back(c);
  if (collectives.empty()) return "";
  const std::size_t from = random.pick(collectives), to = random.below(order.size());
  if (from == to) return "";
  Call call = std::move(order[from]);
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), call);
  return name_of(m.schedule, call) + " from " + std::to_string(from) + " to " + std::to_string(to);
}

std::string swap_in_block(Mutant& m, Random& random) {
  Block& block = random.pick(m.schedule.blocks);
  if (block.ops.size() < 2) return "";
  const std::size_t a = random.below(block.ops.size() - 1);
  const std::size_t b = random.coin() ? a + 1 : random.below(block.ops.size());
  if (a == b) return "";
  std::swap(block.ops[a], block.ops[b]);
  return m.schedule.operations[block.ops[b]].name + " and " + m.schedule.operations[block.ops[a]].name;
}

std::string drop_call(Mutant& m, Random& random) {
  auto& order = order_of(m);
  const std::size_t at = random.below(order.size());
  const std::string what = name_of(m.schedule, order[at]);
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(at));
  return what;
}

std::string move_to_other_lane(Mutant& m, Random& random) {
  Operation& operation = random.pick(m.schedule.operations);
  Lane lane = m.schedule.lanes[operation.lane];
  lane.name += " 2";
  operation.lane = static_cast<LaneId>(m.schedule.lanes.size());
  m.schedule.lanes.push_back(lane);
  return operation.name + " to " + lane.name;
}

// ---- messages ----

const PointToPoint* message_of(const Mutant& m, const Call& call) {
  return std::get_if<PointToPoint>(&m.schedule.operations[m.schedule.blocks[call.block].ops[call.first]].work);
}

// Returns indices of the calls that send, or receive, or (nullopt) do either.
std::vector<std::size_t> messages_of(Mutant& m, std::optional<bool> is_send = std::nullopt) {
  std::vector<std::size_t> calls;
  for (std::size_t c = 0; c < order_of(m).size(); ++c)
    if (const PointToPoint* message = message_of(m, order_of(m)[c]);
        message && message->is_send == is_send.value_or(message->is_send))
      calls.push_back(c);
  return calls;
}

std::string drop_message(Mutant& m, Random& random) {
  std::vector<std::size_t> calls = messages_of(m);
  if (calls.empty()) return "";
  const std::size_t at = random.pick(calls);
  const std::string what = name_of(m.schedule, order_of(m)[at]);
  order_of(m).erase(order_of(m).begin() + static_cast<std::ptrdiff_t>(at));
  return what;
}

std::string swap_messages(Mutant& m, Random& random) {
  std::vector<std::size_t> calls = messages_of(m, random.coin());
  if (calls.size() < 2) return "";
  const std::size_t a = random.below(calls.size() - 1);
  const std::size_t b = random.coin() ? a + 1 : random.below(calls.size());
  return a == b ? "" : swap_calls(m, calls[std::min(a, b)], calls[std::max(a, b)]);
}

// Swaps the micro-batches of messages in name only: their buffers stay.
std::string swap_names_of_messages(Mutant& m, Random& random) {
  std::vector<std::size_t> calls = messages_of(m);
  if (calls.size() < 2) return "";
  Call &a = order_of(m)[random.pick(calls)], &b = order_of(m)[random.pick(calls)];
  if (a.block != b.block || a.micro_batch == b.micro_batch || a.chunk != b.chunk) return "";
  std::swap(a.micro_batch, b.micro_batch);
  return name_of(m.schedule, a) + " and " + name_of(m.schedule, b);
}

std::string toggle_joined(Mutant& m, Random& random) {
  std::vector<std::size_t> calls = messages_of(m);
  if (calls.empty()) return "";
  Call& call = order_of(m)[random.pick(calls)];
  call.joined = !call.joined;
  return name_of(m.schedule, call) + (call.joined ? " joined to the one before" : " by itself");
}

std::string change_offset(Mutant& m, Random& random) {
  Operation& operation = random.pick(m.schedule.operations);
  auto* message = std::get_if<PointToPoint>(&operation.work);
  if (message == nullptr) return "";
  message->offset = message->offset + (random.coin() ? 1 : -1);
  return operation.name + " to " + message->offset.text();
}

std::string shrink_message(Mutant& m, Random& random) {
  Operation& operation = random.pick(m.schedule.operations);
  auto* message = std::get_if<PointToPoint>(&operation.work);
  if (message == nullptr) return "";
  View& view = operation.accesses[0].view;
  message->elements -= view.rows;
  --view.cols;
  return operation.name + " by a column";
}

std::string change_instance(Mutant& m, Random& random) {
  std::vector<std::size_t> messages = messages_of(m);
  if (messages.empty()) return "";
  Call& call = order_of(m)[random.coin() ? random.pick(messages) : random.below(order_of(m).size())];
  std::int64_t& number = random.coin() ? call.slot : call.buffer;
  const std::int64_t before = number;
  number += random.coin() ? 1 : -1;
  if (number < 0) number = 1;
  return name_of(m.schedule, call) + (&number == &call.slot ? " slot " : " buffer ") + std::to_string(before) + " to " +
         std::to_string(number);
}

// Places an instance of a tensor where another one lies, although micro-batches use both.
std::string share_slot(Mutant& m, Random& random) {
  Tensor& tensor = random.pick(m.schedule.tensors);
  if (tensor.slots < 2 || tensor.places.size() != static_cast<std::size_t>(tensor.layers * tensor.slots)) return "";
  const auto slots = static_cast<std::size_t>(tensor.slots);
  const std::size_t first = random.below(static_cast<std::size_t>(tensor.layers)) * slots;
  const std::size_t a = random.below(slots), b = random.below(slots);
  TensorPlace &to = tensor.places[first + a], &from = tensor.places[first + b];
  if (to.storage == from.storage && to.offset == from.offset) return "";
  to = from;
  return tensor.name + " slot " + std::to_string(a) + " onto slot " + std::to_string(b);
}

// All users of the last slot, or buffer, use another one instead.
std::string one_instance_fewer(Mutant& m, Random& random) {
  const auto number = random.coin() ? &Call::slot : &Call::buffer;
  std::int64_t last = 0;
  for (const Call& call : order_of(m)) last = std::max(last, call.*number);
  if (last == 0) return "";
  const auto other = static_cast<std::int64_t>(random.below(static_cast<std::size_t>(last)));
  for (Call& call : order_of(m))
    if (call.*number == last) call.*number = other;
  return (number == &Call::slot ? "slot " : "buffer ") + std::to_string(last) + " is " + std::to_string(other);
}

// Posts a receive without waiting for the last user of its buffer.
std::string post_early(Mutant& m, Random& random) {
  std::vector<std::size_t> calls = messages_of(m);
  if (calls.empty()) return "";
  Call& call = order_of(m)[random.pick(calls)];
  if (call.waits.empty()) return "";
  call.waits.clear();
  return name_of(m.schedule, call) + " waits for nothing";
}

// ---- accesses ----

struct AccessAt {
  OpId op = 0;
  std::size_t access = 0;
};
AccessAt random_access(Mutant& m, Random& random) {
  const std::size_t op = random.below(m.schedule.operations.size());
  return {static_cast<OpId>(op), random.below(m.schedule.operations[op].accesses.size())};
}

// Makes a buffer operation shorter, consistently, so that it is well formed.
std::string shrink(Mutant& m, Random& random) {
  Operation& operation = random.pick(m.schedule.operations);
  const auto less = static_cast<std::int64_t>(1 + random.below(9));
  if (auto* fill = std::get_if<Fill>(&operation.work)) {
    if (fill->elements <= less) return "";
    fill->elements -= less;
  } else if (auto* cast = std::get_if<Cast>(&operation.work)) {
    cast->elements -= less;
  } else if (auto* squares = std::get_if<SumSquares>(&operation.work)) {
    squares->elements -= less;
  } else {
    return "";
  }
  for (Access& access : operation.accesses)
    if (access.view.cols > less) access.view.cols -= less;
  return operation.name + " by " + std::to_string(less);
}

std::string shrink_collective(Mutant& m, Random& random) {
  Operation& operation = random.pick(m.schedule.operations);
  auto* collective = std::get_if<Collective>(&operation.work);
  if (!collective) return "";
  const std::int64_t members = m.schedule.communicators[collective->communicator].size;
  if (collective->kind == CollectiveKind::all_reduce || random.below(3) == 0) {
    if (collective->elements < 2) return "";
    collective->elements -= 1;
    if (random.coin()) operation.accesses[0].view.cols = operation.accesses[0].view.ld = collective->elements;
    return operation.name + " to " + std::to_string(collective->elements) + " elements";
  }
  // Whole and shards shrink by one factor, and the shards are still slices of the whole.
  collective->elements -= members * static_cast<std::int64_t>(1 + random.below(9));
  const std::int64_t shard = collective->elements / members;
  const bool gathers = collective->kind == CollectiveKind::all_gather;
  View& whole = operation.accesses[gathers ? 1 : 0].view;
  View& own = operation.accesses[gathers ? 0 : 1].view;
  whole.cols = whole.ld = collective->elements;
  own.cols = own.ld = shard;
  own.offset = Expr(Coord::dp) * Expr(shard);
  return operation.name + " to " + std::to_string(members) + " shards of " + std::to_string(shard);
}

std::string shift_view(Mutant& m, Random& random) {
  const AccessAt at = random_access(m, random);
  View& view = m.schedule.operations[at.op].accesses[at.access].view;
  const Tensor& tensor = m.schedule.tensors[view.tensor];
  const std::string where = m.schedule.operations[at.op].name + " operand " + std::to_string(at.access);
  if (view.rows * view.cols < tensor.elements()) {
    const auto by = static_cast<std::int64_t>(1 + random.below(8)) * (random.coin() ? 1 : -1);
    view.offset = view.offset + by;
    return where + " by " + std::to_string(by) + " elements";
  }
  if (tensor.layers < 2) return "";
  view.layer = mod(view.layer + 1, tensor.layers);
  return where + " to the next layer of " + tensor.name;
}

// Changes one rank that is folded away.
std::string shift_on_folded_rank(Mutant& m, const Folding& folding, Random& random) {
  const AccessAt at = random_access(m, random);
  View& view = m.schedule.operations[at.op].accesses[at.access].view;
  std::vector<std::pair<Coord, std::int64_t>> folded;
  for (const MeshAxis& axis : m.schedule.mesh.axes())
    for (std::int64_t c = 0; c < axis.size; ++c)
      if (view.offset.depends_on(axis.coord) && folding.class_of(axis.coord, c).places == 0)
        folded.push_back({axis.coord, c});
  if (folded.empty()) return "";
  const auto [axis, coordinate] = random.pick(folded);
  // The shift is small, or leads to the place of a neighbour.
  const std::int64_t by =
      (random.coin() ? static_cast<std::int64_t>(1 + random.below(8)) : view.rows * view.ld) * (random.coin() ? 1 : -1);
  const Expr as_before = view.offset;
  view.offset =
      select_le(axis, coordinate - 1, as_before, select_le(axis, coordinate, as_before + Expr(by), as_before));
  return m.schedule.operations[at.op].name + " operand " + std::to_string(at.access) + " by " + std::to_string(by) +
         " elements where " + name_of(axis) + " is " + std::to_string(coordinate);
}

std::string change_mode(Mutant& m, Random& random) {
  const AccessAt at = random_access(m, random);
  Access& access = m.schedule.operations[at.op].accesses[at.access];
  if (access.mode == AccessMode::read) return "";
  const bool writes = access.mode == AccessMode::write;
  access.mode = writes ? AccessMode::accumulate : AccessMode::write;
  return m.schedule.operations[at.op].name + " operand " + std::to_string(at.access) +
         (writes ? " write to accumulate" : " accumulate to write");
}

std::string point_at_other_tensor(Mutant& m, Random& random) {
  const AccessAt at = random_access(m, random);
  View& view = m.schedule.operations[at.op].accesses[at.access].view;
  const Tensor& tensor = m.schedule.tensors[view.tensor];
  const auto dtype = [&](const Tensor& t) { return m.schedule.storages[t.places.front().storage].dtype; };
  std::vector<TensorId> others;
  for (TensorId t = 0; t < m.schedule.tensors.size(); ++t) {
    const Tensor& other = m.schedule.tensors[t];
    if (t != view.tensor && other.rows == tensor.rows && other.cols == tensor.cols && dtype(other) == dtype(tensor) &&
        other.layers >= tensor.layers && other.slots >= tensor.slots)
      others.push_back(t);
  }
  if (others.empty()) return "";
  const std::string before = tensor.name;
  view.tensor = random.pick(others);
  return m.schedule.operations[at.op].name + " operand " + std::to_string(at.access) + " from " + before + " to " +
         m.schedule.tensors[view.tensor].name;
}

// ---- memory ----

std::string overlap_storages(Mutant& m, Random& random) {
  const auto& storages = m.schedule.storages;
  RolePlan& plan = m.plan->roles[m.role];
  const auto a = static_cast<StorageId>(random.below(storages.size())),
             b = static_cast<StorageId>(random.below(storages.size()));
  if (a == b || storages[a].bytes() == 0 || storages[b].bytes() == 0) return "";
  const auto lines = static_cast<std::size_t>((storages[b].bytes() + 63) / 64);
  const std::int64_t offset = plan.offset_bytes[b] + 64 * static_cast<std::int64_t>(random.below(lines));
  if (!plan.has(a) || !plan.has(b) || offset == plan.offset_bytes[a] || offset + storages[a].bytes() > plan.bytes)
    return "";
  plan.offset_bytes[a] = offset;
  return storages[a].name + " onto " + storages[b].name + " at byte " + std::to_string(offset);
}

// ---- harmless edits ----

std::string duplicate_edge(Mutant& m, Random& random) {
  const auto at = random_edge(m, random);
  if (!at) return "";
  Call& call = order_of(m)[at->call];
  call.waits.push_back(Edge(call.waits[at->wait]));
  return name_of(m.schedule, call) + " waits twice for " + name_of(m.schedule, call.waits[at->wait]);
}

std::string cut_call(Mutant& m, Random& random) {
  const std::size_t at = random.below(order_of(m).size());
  const Call& call = order_of(m)[at];
  if (call.count < 2) return "";
  const auto within = static_cast<std::uint32_t>(1 + random.below(call.count - 1));
  const std::string what = name_of(m.schedule, call);
  cut_before(m.schedule.programs[m.role], {at, within});
  return what;
}

std::string add_implied_edge(Mutant& m, Random& random) {
  const std::size_t later = random.below(order_of(m).size()), earlier = random.below(order_of(m).size());
  Call& call = order_of(m)[later];
  if (call.joined) return "";  // the previous call may be in its group, which starts at once
  const OpAddress on = address_of(m.schedule, m.schedule.programs[m.role], {earlier, 0}, earlier < later ? 0 : 1);
  const OpId first = m.schedule.blocks[call.block].ops[call.first];
  if (m.schedule.operations[on.op].lane != m.schedule.operations[first].lane) return "";
  call.waits.push_back({random.coin() ? EdgeKind::finish_start : EdgeKind::start_start, on});
  return name_of(m.schedule, call) + " waits for " + name_of(m.schedule, on) + ", before it on its lane";
}

std::string swap_calls_of_two_lanes(Mutant& m, Random& random) {
  auto& order = order_of(m);
  const std::size_t at = random.below(order.size() - 1);
  const Call &a = order[at], &b = order[at + 1];
  for (const LaneId lane : lanes_of(m.schedule, a))
    if (lanes_of(m.schedule, b).contains(lane)) return "";
  for (const Edge& edge : b.waits)
    for (std::uint32_t i = 0; i < a.count; ++i)
      if (edge.on.op == m.schedule.blocks[a.block].ops[a.first + i]) return "";
  // Messages of a group stay together.
  if (a.joined || b.joined || (at + 2 < order.size() && order[at + 2].joined)) return "";
  // Calls of a sequence have an order, and so have the parts of a block.
  if (a.sequence != 0 && a.sequence == b.sequence) return "";
  const auto has_block_waits = [&](const Call& call) { return !m.schedule.blocks[call.block].waits.empty(); };
  if (has_block_waits(a) || has_block_waits(b)) return "";
  return swap_calls(m, at, at + 1);
}

struct Kind {
  const char* name;
  Edit edit;
  bool harmless = false;
  bool edits_plan = false;
  bool of_instances = false;
};
constexpr std::array kKinds = {
    Kind{"drop edge", drop_edge},
    Kind{"retarget edge", retarget_edge},
    Kind{"change the step of an edge", change_steps_ago},
    Kind{"soften edge", soften_edge},
    Kind{"drop block wait", drop_block_wait},
    Kind{"change block wait", change_block_wait},
    Kind{"soften block wait", soften_block_wait},
    Kind{"leave sequence", leave_sequence},
    Kind{"swap adjacent calls", swap_adjacent_calls},
    Kind{"swap calls", swap_random_calls},
    Kind{"move collective", move_collective},
    Kind{"swap in block", swap_in_block},
    Kind{"drop call", drop_call},
    Kind{"move to another lane", move_to_other_lane},
    Kind{"drop message", drop_message},
    Kind{"swap messages", swap_messages},
    Kind{"swap names of messages", swap_names_of_messages},
    Kind{"join or part messages", toggle_joined},
    Kind{"change offset of a message", change_offset},
    Kind{"shrink message", shrink_message},
    Kind{"change slot or buffer", change_instance, false, false, true},
    Kind{"share a slot", share_slot, false, false, true},
    Kind{"an instance fewer", one_instance_fewer, false, false, true},
    Kind{"post early", post_early},
    Kind{"shrink", shrink},
    Kind{"shrink collective", shrink_collective},
    Kind{"shift view", shift_view},
    Kind{"change mode", change_mode},
    Kind{"change tensor", point_at_other_tensor},
    Kind{"overlap storages", overlap_storages, false, true},
    Kind{"duplicate edge", duplicate_edge, true},
    Kind{"cut call", cut_call, true},
    Kind{"add implied edge", add_implied_edge, true},
    Kind{"swap calls of two lanes", swap_calls_of_two_lanes, true},
};

}  // namespace

Mutant mutate(const Schedule& schedule, const MemoryPlan& plan, std::mt19937_64& engine) {
  constexpr int kTries = 100;  // some kinds of edits have nothing to edit in some schedules
  Random random(engine);
  Mutant mutant{schedule, plan, "", false, false, 0};
  mutant.role = random.below(schedule.programs.size());
  while (true) {
    const Kind& kind = kKinds[random.below(kKinds.size())];
    for (int i = 0; i < kTries; ++i) {
      const std::string what = kind.edit(mutant, random);
      if (what.empty()) continue;  // nothing was changed
      if (!kind.edits_plan) mutant.plan.reset();
      mutant.what = kind.name + (": " + what);
      mutant.harmless = kind.harmless;
      mutant.of_instances = kind.of_instances;
      return mutant;
    }
  }
}

std::optional<Mutant> mutate_folded_rank(const Schedule& schedule, const MemoryPlan& plan, std::mt19937_64& engine) {
  constexpr int kTries = 200;
  Random random(engine);
  Mutant mutant{schedule, plan, "", false, false, 0};
  const Folding folding = fold_ranks(schedule);
  for (int i = 0; i < kTries && mutant.what.empty(); ++i) mutant.what = shift_on_folded_rank(mutant, folding, random);
  if (mutant.what.empty()) return std::nullopt;
  mutant.plan.reset();
  return mutant;
}

}  // namespace stretto::testing
