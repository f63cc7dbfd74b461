#include "model/schedule/issue_order.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace stretto {
namespace {

const Collective& collective_of(const Schedule& schedule, const BoundOp& op) {
  return std::get<Collective>(schedule.operations[op.op].work);
}

bool same_call(const Schedule& schedule, const BoundOp& a, const BoundOp& b) {
  const Collective& x = collective_of(schedule, a);
  const Collective& y = collective_of(schedule, b);
  return a.op == b.op && a.layer == b.layer && a.micro_batch == b.micro_batch && a.chunk == b.chunk &&
         x.kind == y.kind && x.elements == y.elements && x.reduction == y.reduction;
}

std::string rank_name(const BoundProgram& program) { return "rank " + std::to_string(program.rank); }

void check_sequence(const Schedule& schedule, std::span<const BoundProgram> programs, const CollectiveGroup& group,
                    std::vector<Violation>& out) {
  const BoundProgram& first = programs[group.members[0]];
  for (std::size_t m = 1; m < group.members.size(); ++m) {
    const BoundProgram& other = programs[group.members[m]];
    const auto& a = group.sequence[0];
    const auto& b = group.sequence[m];
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      if (i < a.size() && i < b.size() && same_call(schedule, first.ops[a[i]], other.ops[b[i]])) continue;
      const std::string of_first = i < a.size() ? label(schedule, first.ops[a[i]]) : "nothing";
      const std::string of_other = i < b.size() ? label(schedule, other.ops[b[i]]) : "nothing";
      out.push_back({Violation::Kind::order_mismatch,
                     "order mismatch: number " + std::to_string(i) + " on communicator " +
                         schedule.communicators[group.communicator].name + " is " + of_first + " on " +
                         rank_name(first) + " but " + of_other + " on " + rank_name(other)});
      break;
    }
  }
}

// Returns the host issue order of the operations of two groups on one member: (belongs to group b, index in its
// sequence).
std::vector<std::pair<bool, std::uint32_t>> merged(const std::vector<std::uint32_t>& a,
                                                   const std::vector<std::uint32_t>& b) {
  std::vector<std::pair<bool, std::uint32_t>> order;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool take_b = i == a.size() || (j < b.size() && b[j] < a[i]);
    order.emplace_back(take_b, static_cast<std::uint32_t>(take_b ? j++ : i++));
  }
  return order;
}

// Returns whether one lane holds the operations of both groups. The lane then orders them, and a disagreement is found
// as a deadlock.
bool on_one_lane(const BoundProgram& program, const std::vector<std::uint32_t>& a,
                 const std::vector<std::uint32_t>& b) {
  if (a.empty() || b.empty()) return true;
  const LaneId lane = program.ops[a[0]].lane;
  const auto same = [&](std::uint32_t op) { return program.ops[op].lane == lane; };
  return std::all_of(a.begin(), a.end(), same) && std::all_of(b.begin(), b.end(), same);
}

void check_pair(const Schedule& schedule, std::span<const BoundProgram> programs, const CollectiveGroup& a,
                const CollectiveGroup& b, std::vector<Violation>& out) {
  const Communicator& first = schedule.communicators[a.communicator];
  const Communicator& second = schedule.communicators[b.communicator];
  if (first.engine != CommEngine::sm || second.engine != CommEngine::sm) return;
  if (first.channels + second.channels <= kResidentChannels) return;
  std::vector<std::pair<std::size_t, std::size_t>> shared;  // member indices in a and in b
  for (std::size_t i = 0; i < a.members.size(); ++i) {
    const auto found = std::lower_bound(b.members.begin(), b.members.end(), a.members[i]);
    if (found != b.members.end() && *found == a.members[i]) {
      shared.emplace_back(i, static_cast<std::size_t>(found - b.members.begin()));
    }
  }
  if (shared.size() < 2) return;
  const auto [a0, b0] = shared[0];
  const BoundProgram& reference = programs[a.members[a0]];
  if (on_one_lane(reference, a.sequence[a0], b.sequence[b0])) return;
  const auto expected = merged(a.sequence[a0], b.sequence[b0]);
  for (std::size_t s = 1; s < shared.size(); ++s) {
    const auto [am, bm] = shared[s];
    const auto order = merged(a.sequence[am], b.sequence[bm]);
    const auto at = std::mismatch(expected.begin(), expected.end(), order.begin(), order.end()).first;
    if (at == expected.end()) continue;
    const BoundProgram& other = programs[a.members[am]];
    const auto& [is_b, index] = *at;
    const auto& [other_is_b, other_index] = order[static_cast<std::size_t>(at - expected.begin())];
    const auto& mine = reference.ops[(is_b ? b.sequence[b0] : a.sequence[a0])[index]];
    const auto& theirs = other.ops[(other_is_b ? b.sequence[bm] : a.sequence[am])[other_index]];
    out.push_back({Violation::Kind::order_mismatch,
                   "order mismatch: " + rank_name(reference) + " issues " + label(schedule, mine) + " before " +
                       label(schedule, theirs) + " but " + rank_name(other) + " issues them the other way round, and " +
                       std::to_string(first.channels) + " + " + std::to_string(second.channels) +
                       " channels of communicators " + first.name + " and " + second.name +
                       " may not be resident together (at most " + std::to_string(kResidentChannels) + ")"});
    return;
  }
}

// Checks that the n-th send and the n-th receive fit.
void check_messages(const Schedule& schedule, std::span<const BoundProgram> programs, const MessagePair& pair,
                    std::vector<Violation>& out) {
  const auto text = [&](std::uint32_t p, const std::vector<std::uint32_t>& ops, std::size_t i) {
    return i < ops.size() ? label(schedule, programs[p].ops[ops[i]]) : std::string("nothing");
  };
  const auto elements = [&](std::uint32_t p, const std::vector<std::uint32_t>& ops, std::size_t i) {
    return std::get<PointToPoint>(programs[p].work_of(ops[i])).elements;
  };
  // Both ends must mean one micro-batch. Chunks are numbered stage by stage, and the last stage sends to the next chunk
  // of the first stage, so the two chunk numbers may differ, but always by the difference of the first message.
  const auto chunks_apart = [&](std::size_t i) {
    return programs[pair.to].ops[pair.receives[i]].chunk - programs[pair.from].ops[pair.sends[i]].chunk;
  };
  const auto agree = [&](std::size_t i) {
    return programs[pair.from].ops[pair.sends[i]].micro_batch == programs[pair.to].ops[pair.receives[i]].micro_batch &&
           chunks_apart(i) == chunks_apart(0);
  };
  for (std::size_t i = 0; i < std::max(pair.sends.size(), pair.receives.size()); ++i) {
    const bool both = i < pair.sends.size() && i < pair.receives.size();
    const bool same_size = both && elements(pair.from, pair.sends, i) == elements(pair.to, pair.receives, i);
    if (same_size && agree(i)) continue;
    out.push_back({Violation::Kind::order_mismatch,
                   "order mismatch: message " + std::to_string(i) + " from " + rank_name(programs[pair.from]) + " to " +
                       rank_name(programs[pair.to]) + " on communicator " +
                       schedule.communicators[pair.communicator].name + " is sent by " +
                       text(pair.from, pair.sends, i) + " but received by " + text(pair.to, pair.receives, i) +
                       (!both       ? ""
                        : same_size ? ", which means another value"
                                    : ", which is of another size")});
    return;
  }
}

}  // namespace

IssueOrder find_issue_order(const Schedule& schedule, std::span<const BoundProgram> programs, const Folding& folding) {
  IssueOrder result;
  result.partners = find_partners(schedule, programs, folding);
  const Partners& partners = result.partners;
  for (const CommunicatorInstance& instance : partners.instances)
    result.groups.push_back(
        {instance.communicator, instance.members, std::vector<std::vector<std::uint32_t>>(instance.members.size())});
  for (const MessageRoute& route : partners.routes)
    result.pairs.push_back({route.communicator, route.from, route.to, {}, {}});
  for (std::uint32_t p = 0; p < programs.size(); ++p) {
    const BoundProgram& program = programs[p];
    // [OpId] the list to which the program's operations of the template are added.
    std::vector<std::vector<std::uint32_t>*> list_of(schedule.operations.size(), nullptr);
    std::vector<RendezvousSlot> slot_of(schedule.operations.size());
    for (OpId id = 0; id < schedule.operations.size(); ++id) {
      if (const auto* collective = std::get_if<Collective>(&program.works[id])) {
        const std::uint32_t group = partners.instance_of[p][collective->communicator];
        if (group == Partners::kNone) continue;
        const auto& members = result.groups[group].members;
        const auto member = std::lower_bound(members.begin(), members.end(), p) - members.begin();
        list_of[id] = &result.groups[group].sequence[static_cast<std::size_t>(member)];
        slot_of[id] = {RendezvousSlot::Kind::collective, group, 0};
      } else if (const std::uint32_t pair = partners.route_of[p][id]; pair != Partners::kNone) {
        const bool is_send = std::get<PointToPoint>(program.works[id]).is_send;
        list_of[id] = is_send ? &result.pairs[pair].sends : &result.pairs[pair].receives;
        slot_of[id] = {is_send ? RendezvousSlot::Kind::send : RendezvousSlot::Kind::receive, pair, 0};
      }
    }
    std::vector<RendezvousSlot>& slots = result.slots.emplace_back(program.ops.size());
    for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
      const OpId id = program.ops[i].op;
      if (!list_of[id]) {
        if (is_communication(program.works[id]))
          throw input_error("schedule: " + label(schedule, program.ops[i]) + " of rank " +
                            std::to_string(program.rank) + " uses communicator " +
                            schedule.communicators[communicator_of(program.works[id])].name +
                            ", and the rank is not a member of it");
        continue;
      }
      slots[i] = slot_of[id];
      slots[i].index = static_cast<std::uint32_t>(list_of[id]->size());
      list_of[id]->push_back(i);
    }
  }
  return result;
}

std::vector<Violation> check_issue_order(const Schedule& schedule, std::span<const BoundProgram> programs,
                                         const IssueOrder& issued, std::size_t limit) {
  std::vector<Violation> out;
  for (const CollectiveGroup& group : issued.groups) check_sequence(schedule, programs, group, out);
  for (const MessagePair& pair : issued.pairs) check_messages(schedule, programs, pair, out);
  // The second rule compares positions in sequences that the first one has proved equal.
  if (out.empty()) {
    for (std::size_t a = 0; a < issued.groups.size(); ++a) {
      for (std::size_t b = a + 1; b < issued.groups.size(); ++b) {
        check_pair(schedule, programs, issued.groups[a], issued.groups[b], out);
      }
    }
  }
  if (out.size() > limit) out.resize(limit);
  return out;
}

}  // namespace stretto
