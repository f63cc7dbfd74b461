#include "sim/flat_program.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "model/schedule/residency.hpp"

namespace stretto::sim {
namespace {

// Checks the costs of some rank, out of `all`.
void check_costs(const Schedule& schedule, const OpCosts& costs, const Costs& all) {
  if (costs.compute.size() < schedule.operations.size() || costs.collective.size() < schedule.operations.size())
    throw input_error("simulation: costs are given for " +
                      std::to_string(std::min(costs.compute.size(), costs.collective.size())) +
                      " operations, but the schedule has " + std::to_string(schedule.operations.size()));
  const Disturbance& taken = all.disturbance;
  if (!(taken.share >= 0 && taken.share < 1e3) || (taken.share > 0 && taken.length < 1))
    throw input_error("simulation: a disturbance needs a share of at least 0 and bursts of a length above 0");
  // Kernels concurrent with compute (CollectiveCost::interference) hold none of its cores, whatever the engine.
  const bool holds = std::none_of(costs.collective.begin(), costs.collective.end(),
                                  [](const CollectiveCost& cost) { return cost.interference.has_value(); });
  const bool resides =
      holds && all.cores_per_device > 0 && cores_needed(schedule) > schedule.placement.threads_per_rank;
  if (resides) check_residency(schedule, all.cores_per_device);
  for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    const bool communicates = is_communication(operation.work);
    const Demand& demand = communicates ? costs.collective[i].movement : costs.compute[i];
    const CollectiveCost& collective = costs.collective[i];
    if (demand.alone < 0 || demand.cores < 0 || demand.cores > std::numeric_limits<std::uint16_t>::max() ||
        (communicates && (collective.latency < 0 || collective.edge_bytes < 0 || collective.cores < 0 ||
                          collective.cores > std::numeric_limits<std::uint16_t>::max())))
      throw input_error("simulation: the cost of " + operation.name + " is negative or too large");
    const double rate = collective.most_bytes_per_s > 0 ? std::min(collective.most_bytes_per_s, all.link_bytes_per_s)
                                                        : all.link_bytes_per_s;
    const double wire_s =
        communicates && collective.edge_bytes > 0 && rate > 0 ? static_cast<double>(collective.edge_bytes) / rate : 0;
    if (demand.alone > kLongestOperation || (communicates && collective.latency > kLongestOperation) ||
        wire_s * 1e12 > static_cast<double>(kLongestOperation))
      throw input_error("simulation: a " + operation.name +
                        " takes more than 2.5 hours, the longest that a simulation can represent; check the model's "
                        "dimensions, the link and the platform");
    const int threads = schedule.placement.threads_per_rank;
    if (resides && !communicates && demand.cores > threads)
      throw input_error("simulation: " + operation.name + " needs " + std::to_string(demand.cores) +
                        " cores, but apart from channels a rank has as many cores as threads, " +
                        std::to_string(threads));
    if (communicates && collective.cores > resident_cores(schedule.communicators[communicator_of(operation.work)]))
      throw input_error("simulation: " + operation.name + " holds more cores than its communicator has channels");
    if (communicates && collective.cores > 0 && demand.cores > 0)
      throw input_error("simulation: " + operation.name + " moves data on cores that it holds, and asks for " +
                        std::to_string(demand.cores) + " more");
    if (communicates && collective.interference && (collective.cores > 0 || demand.cores > 0))
      throw input_error("simulation: " + operation.name +
                        " runs concurrently with compute, and asks for compute's cores");
    if (all.cores_per_device > 0 && demand.cores > all.cores_per_device)
      throw input_error("simulation: " + operation.name + " needs " + std::to_string(demand.cores) +
                        " cores, but a device has " + std::to_string(all.cores_per_device));
    if (communicates && collective.edge_bytes > 0 && !(all.link_bytes_per_s > 0))
      throw input_error("simulation: " + operation.name + " sends data, but the platform gives no link bandwidth");
  }
}

// Returns the lanes that carry messages in both directions: lanes of the pipeline with batches, as in the frameworks.
// Overlapped messages have a lane for each side (model/lower/stage_writer.hpp, rings of tensor and context
// parallelism), and the host goes on issuing.
std::vector<bool> lanes_of_batches(const BoundProgram& program) {
  std::vector<bool> sends(program.lanes.size()), receives(program.lanes.size());
  for (const BoundOp& op : program.ops)
    if (const auto* message = std::get_if<PointToPoint>(&program.works[op.op]))
      (message->is_send ? sends : receives)[op.lane] = true;
  for (std::size_t lane = 0; lane < sends.size(); ++lane) sends[lane] = sends[lane] && receives[lane];
  return sends;
}

// How the host issues the operations of a program. Empty without a host.
struct Issue {
  struct At {
    Picoseconds issued = 0;  // time after its segment began
    std::uint32_t segment = 0;
  };
  std::vector<At> at;  // [operation of the program]
  struct End {
    std::uint32_t op = 0;     // the operation of the program for which the host waits
    Picoseconds awaited = 0;  // time at which it begins to wait, after the segment began
  };
  std::vector<End> ends;  // [segment but the last]
};

// Returns [operation of the program] whether a call of a part of a block begins there.
std::vector<bool> begins_of_parts(const Schedule& schedule, const BoundProgram& program) {
  std::vector<bool> begins(program.ops.size());
  std::size_t at = 0;
  for (const Call& call : schedule.programs[schedule.role_of(program.coordinates)].order) {
    if (call.count > 0 && call.count < schedule.blocks[call.block].ops.size()) begins[at] = true;
    at += call.count;
  }
  assert(at == program.ops.size());
  return begins;
}

// Returns the parameters that a program's forward passes read, those of each expert counted.
std::int64_t parameters_of(const Schedule& schedule, const BoundProgram& program) {
  std::map<std::pair<TensorId, std::int64_t>, std::int64_t> experts;  // parameter, layer → experts
  for (const BoundOp& op : program.ops) {
    const Operation& operation = schedule.operations[op.op];
    if (operation.phase != Phase::forward || operation.recomputed != Recomputed::none) continue;
    std::int64_t groups = 1;
    if (const auto* product = std::get_if<GroupedGemm>(&operation.work)) groups = product->groups;
    if (const auto* quantise = std::get_if<Quantise>(&operation.work))
      groups = std::max<std::int64_t>(1, quantise->groups);
    for (const Access& access : operation.accesses) {
      const Tensor& tensor = schedule.tensors[access.view.tensor];
      if (schedule.storages[tensor.places.front().storage].kind != BufferKind::parameter) continue;
      std::int64_t& most = experts[{access.view.tensor, op.layer}];
      most = std::max(most, groups);
    }
  }
  std::int64_t count = 0;
  for (const auto& [parameter, of] : experts) count += of;
  return count;
}

Issue issue_of(const Schedule& schedule, const BoundProgram& program, const HostCosts& host) {
  Issue issue;
  if (host.issue.empty()) return issue;
  issue.at.reserve(program.ops.size());
  Picoseconds now = host.step;
  if (host.parameter > 0) now += host.parameter * parameters_of(schedule, program);
  std::uint32_t segment = 0;
  std::vector<bool> has_begun;  // [micro-batch]
  bool receives = false;        // the group of messages that is being issued has a receive
  const std::vector<bool> is_batched = lanes_of_batches(program);
  const auto wait_for = [&](std::uint32_t op, Picoseconds then = 0) {
    issue.ends.push_back({op, now});
    ++segment;
    now = then;
  };
  std::optional<std::uint32_t> computed;  // the last computation that has been issued
  std::map<OpId, std::uint32_t> counted;  // last instance of an operation for which the host will wait
  for (const auto& [before, on] : host.waits_before) counted[on] = 0;
  const std::vector<bool> begins_part = host.part > 0 ? begins_of_parts(schedule, program) : std::vector<bool>();
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    const BoundOp& op = program.ops[i];
    if (!begins_part.empty() && begins_part[i]) now += host.part;
    const bool is_forward = schedule.operations[op.op].phase == Phase::forward;
    const auto micro_batch = static_cast<std::size_t>(op.micro_batch);
    if (has_begun.size() <= micro_batch) has_begun.resize(micro_batch + 1);
    if (is_forward && !has_begun[micro_batch]) now += host.micro_batch, has_begun[micro_batch] = true;
    if (const auto wait = host.waits_before.find(op.op); wait != host.waits_before.end())
      // An earlier wait may have been for the same instance.
      if (const std::uint32_t on = counted.at(wait->second); issue.at[on].segment == segment) wait_for(on, host.sync);
    if (computed && host.waits_for_device_before.contains(op.op)) {
      if (issue.at[*computed].segment == segment) wait_for(*computed);
      now += host.device_sync;
    }
    now += host.issue[op.op];
    issue.at.push_back({now, segment});
    if (!is_communication(program.works[op.op])) computed = i;
    if (const auto last = counted.find(op.op); last != counted.end()) last->second = i;
    const auto* message = std::get_if<PointToPoint>(&program.works[op.op]);
    if (!host.waits_for_messages || message == nullptr || !is_batched[op.lane]) continue;
    receives = (op.joined && receives) || !message->is_send;
    const bool is_last = i + 1 == program.ops.size() || !program.ops[i + 1].joined;
    if (!is_last || !receives) continue;
    receives = false;
    wait_for(i);
  }
  return issue;
}

// The first operation of a lane waits for the previous step's last operation of every other lane, because the host
// does.
void wait_for_step(const BoundProgram& program, LaneId lane, std::vector<FlatWait>& waits) {
  for (LaneId other = 0; other < program.lanes.size(); ++other)
    if (other != lane && !program.lanes[other].empty())
      waits.push_back({static_cast<std::uint32_t>(program.lanes[other].size() - 1), other, 1, EdgeKind::finish_start});
}

// The first operation of a lane in a segment waits for the operation that ended the previous segment, because the host
// does.
void wait_for_segment(const BoundProgram& program, std::uint32_t end, LaneId lane, std::vector<FlatWait>& waits) {
  const BoundOp& on = program.ops[end];
  if (on.lane != lane) waits.push_back({on.position, on.lane, 0, EdgeKind::finish_start});
}

// Returns the data that all instances of an operation share.
FlatOp template_of(const Work& work, OpId id, const OpCosts& costs) {
  FlatOp op;
  op.id = id;
  if (is_communication(work)) {
    op.communicator = static_cast<std::int16_t>(communicator_of(work));
    const auto* message = std::get_if<PointToPoint>(&work);
    op.kind = !message ? FlatKind::collective : message->is_send ? FlatKind::send : FlatKind::receive;
    op.cores = static_cast<std::uint16_t>(costs.collective[id].cores);
  } else {
    op.duration = costs.compute[id].alone;
    op.cores = static_cast<std::uint16_t>(costs.compute[id].cores);
    op.cls = costs.compute[id].cls;
  }
  return op;
}

std::vector<FlatOp> templates_of(const Schedule& schedule, const BoundProgram& program, const OpCosts& costs) {
  std::vector<FlatOp> templates;
  for (OpId id = 0; id < schedule.operations.size(); ++id)
    templates.push_back(template_of(program.works[id], id, costs));
  return templates;
}

void set_issue(FlatOp& op, const Issue& issue) {
  op.issued = issue.at[op.op].issued;
  op.segment = issue.at[op.op].segment;
  op.ends_segment = op.segment < issue.ends.size() && issue.ends[op.segment].op == op.op;
  if (op.ends_segment) op.awaited = issue.ends[op.segment].awaited;
}

// Joins an operation to the first of its group, which holds the cores of all and starts when the host has issued the
// last one.
void join_group(FlatOp& first, const FlatOp& op) {
  first.cores = std::max(first.cores, op.cores);
  first.issued = op.issued, first.segment = op.segment;
}

// Counts the cores that an operation of the lane holds, or its data movement.
void count_cores(int& lane_cores, const FlatOp& op, const OpCosts& costs) {
  const int moving = op.kind == FlatKind::compute ? 0 : costs.collective[op.id].movement.cores;
  lane_cores = std::max({lane_cores, int{op.cores}, moving});
}

// Gives a flat form, whose waits stay, the costs of a program of its.
void set_costs(FlatProgram& flat, const Schedule& schedule, const BoundProgram& program, const OpCosts& costs,
               const HostCosts& host) {
  const Issue issue = issue_of(schedule, program, host);
  const std::vector<FlatOp> templates = templates_of(schedule, program, costs);
  for (LaneId lane = 0; lane < program.lanes.size(); ++lane) {
    flat.lane_cores[lane] = 0;
    std::size_t group_begin = 0;
    for (std::size_t i = flat.lane_begin[lane]; i < flat.lane_begin[lane + 1]; ++i) {
      FlatOp& op = flat.ops[i];
      const FlatOp& of = templates[op.id];
      op.duration = of.duration, op.cores = of.cores, op.cls = of.cls;
      if (!issue.at.empty()) set_issue(op, issue);
      if (program.ops[op.op].joined)
        join_group(flat.ops[group_begin], op);
      else
        group_begin = i;
      count_cores(flat.lane_cores[lane], op, costs);
    }
  }
}

}  // namespace

FlatProgram flatten(const Schedule& schedule, const BoundProgram& program, const OpCosts& costs, const HostCosts& host,
                    const Counterparts& counterparts) {
  FlatProgram flat;
  const Issue issue = issue_of(schedule, program, host);
  flat.ops.reserve(program.ops.size());
  flat.waits.reserve(program.waits.size());
  flat.lane_cores.assign(program.lanes.size(), 0);
  const std::vector<FlatOp> templates = templates_of(schedule, program, costs);
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    flat.lane_begin.push_back(static_cast<std::uint32_t>(flat.ops.size()));
    std::size_t group_begin = 0;
    std::uint32_t segment = 0;  // segment of the previous operation
    for (const std::uint32_t index : program.lanes[lane]) {
      const BoundOp& bound = program.ops[index];
      FlatOp op = templates[bound.op];
      op.op = index;
      op.wait_begin = static_cast<std::uint32_t>(flat.waits.size());
      if (!issue.at.empty()) {
        set_issue(op, issue);
        if (bound.position == 0) wait_for_step(program, static_cast<LaneId>(lane), flat.waits);
        if (op.segment != segment) wait_for_segment(program, issue.ends[op.segment - 1].op, bound.lane, flat.waits);
        segment = op.segment;
      }
      for (std::uint32_t i = bound.wait_begin; i < bound.wait_end; ++i) {
        const BoundWait& wait = program.waits[i];
        flat.waits.push_back({wait.position, wait.lane, wait.steps_ago, wait.kind});
      }
      // The first operation of a group waits for the whole group's waits, and for the host to have issued the last one:
      // ncclGroupEnd launches them.
      if (!bound.joined) group_begin = flat.ops.size();
      FlatOp& first = bound.joined ? flat.ops[group_begin] : op;
      if (bound.joined) {
        ++first.group, op.group = 0;
        join_group(first, op);
      }
      const std::size_t waits = flat.waits.size() - first.wait_begin;
      if (waits > std::numeric_limits<std::uint16_t>::max())
        throw input_error("simulation: " + label(schedule, bound) + " has more than 65535 waits");
      first.wait_count = static_cast<std::uint16_t>(waits);
      count_cores(flat.lane_cores[lane], op, costs);
      flat.ops.push_back(op);
    }
  }
  flat.lane_begin.push_back(static_cast<std::uint32_t>(flat.ops.size()));
  SoloCalls calls = find_solo_calls(schedule, program, counterparts);
  for (std::uint32_t i = 0; i < program.ops.size(); ++i)
    if (calls.at[i] != 0 && is_waited_for(program, i, calls.shapes[calls.at[i] - 1u]))
      flat.ops[flat.lane_begin[program.ops[i].lane] + program.ops[i].position].shape = calls.at[i];
  flat.shapes = std::move(calls.shapes);
  return flat;
}

namespace {

// Returns [program] → its flat form; equal forms are one object.
std::vector<std::shared_ptr<FlatProgram>> flat_forms(const Schedule& schedule,
                                                     const std::vector<BoundProgram>& programs, const Costs& costs,
                                                     const Partners& partners) {
  check_costs(schedule, costs, costs);
  for (const auto& [rank, of_rank] : costs.of_rank) check_costs(schedule, of_rank, costs);
  std::vector<std::shared_ptr<FlatProgram>> classes, result;
  // Programs of one role whose counterparts and costs are equal have one flat form.
  std::map<std::tuple<std::size_t, const OpCosts*, std::vector<std::uint32_t>>, std::size_t> known;  // → result
  for (std::size_t p = 0; p < programs.size(); ++p) {
    const Counterparts counterparts = counterparts_of(schedule, partners, p);
    const OpCosts& own = costs.of(programs[p].rank);
    const auto [at, is_new] = known.try_emplace({programs[p].role, &own, counterparts.of}, p);
    if (!is_new && programs[at->second].lanes == programs[p].lanes) {
      result.push_back(result[at->second]);
      continue;
    }
    FlatProgram flat = flatten(schedule, programs[p], own, costs.host, counterparts);
    const auto same = std::find_if(classes.begin(), classes.end(), [&](const auto& other) { return *other == flat; });
    if (same != classes.end()) {
      result.push_back(*same);
    } else {
      classes.push_back(std::make_shared<FlatProgram>(std::move(flat)));
      result.push_back(classes.back());
    }
  }
  return result;
}

}  // namespace

FlatPrograms flatten_all(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Costs& costs,
                         const Partners& partners) {
  const auto forms = flat_forms(schedule, programs, costs, partners);
  return {forms.begin(), forms.end()};
}

const FlatPrograms& TimedPrograms::with(const Schedule& schedule, const BoundStep& step, const Costs& costs) {
  // Flat forms that are equal with some costs are equal with all, unless the host counts what it did not count before.
  const auto counts = [](const HostCosts& host) {
    return std::tuple(host.issue.empty(), host.waits_for_messages, host.micro_batch > 0, host.part > 0,
                      host.parameter > 0);
  };
  if (!distinct_.empty() && counts(host_) == counts(costs.host) && host_.waits_before == costs.host.waits_before &&
      host_.waits_for_device_before == costs.host.waits_for_device_before) {
    check_costs(schedule, costs, costs);
    for (const auto& [flat, program] : distinct_) set_costs(*flat, schedule, step.programs[program], costs, costs.host);
    return programs_;
  }
  distinct_.clear();
  const auto forms = flat_forms(schedule, step.programs, costs, step.issued.partners);
  programs_.assign(forms.begin(), forms.end());
  for (std::size_t p = 0; p < forms.size(); ++p)
    if (std::find(forms.begin(), forms.begin() + static_cast<std::ptrdiff_t>(p), forms[p]) ==
        forms.begin() + static_cast<std::ptrdiff_t>(p))
      distinct_.emplace_back(forms[p], p);
  host_ = costs.host;
  return programs_;
}

}  // namespace stretto::sim
