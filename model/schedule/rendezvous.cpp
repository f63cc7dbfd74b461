#include "model/schedule/rendezvous.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
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
         x.kind == y.kind && x.elements == y.elements;
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

// Host issue order of the operations of two groups on one member: (is of group b, index in its sequence).
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

// On one lane the lane itself orders them, and a disagreement is found as a deadlock.
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
  std::vector<std::pair<std::size_t, std::size_t>> shared;  // index as a member of a, of b
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

// Sorts messages by their ends as they are issued.
class Messages {
 public:
  Messages(const Schedule& schedule, std::span<const BoundProgram> programs, Rendezvous& out)
      : schedule_(schedule), out_(out) {
    for (const BoundProgram& program : programs) ranks_.push_back(program.rank);
  }

  void add(std::uint32_t p, std::uint32_t op, OpId id, const PointToPoint& message) {
    const std::uint32_t number = pair_of(p, id, message);
    MessagePair& pair = out_.pairs[number];
    auto& list = message.is_send ? pair.sends : pair.receives;
    out_.slots[p][op] = {message.is_send ? MeetingSlot::Kind::send : MeetingSlot::Kind::receive, number,
                         static_cast<std::uint32_t>(list.size())};
    list.push_back(op);
  }

 private:
  // The messages of a template go to one rank.
  std::uint32_t pair_of(std::uint32_t p, OpId id, const PointToPoint& message) {
    if (p != program_ || known_.empty()) known_.assign(schedule_.operations.size(), kUnknown);
    program_ = p;
    if (known_[id] == kUnknown) known_[id] = find_pair(p, message);
    return known_[id];
  }

  std::uint32_t find_pair(std::uint32_t p, const PointToPoint& message) {
    const Peer other = peer_of(schedule_, message, ranks_[p]);
    const std::int64_t stands_for_it = representative_of(schedule_, ranks_, other.rank);
    const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), stands_for_it) - ranks_.begin();
    const auto peer = static_cast<std::uint32_t>(found);
    const std::uint32_t from = message.is_send ? p : peer, to = message.is_send ? peer : p;
    const auto [at, is_new] = pair_.try_emplace({message.communicator, from, to, other.distance},
                                                static_cast<std::uint32_t>(out_.pairs.size()));
    if (is_new) out_.pairs.push_back({message.communicator, from, to, {}, {}});
    return at->second;
  }

  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  const Schedule& schedule_;
  Rendezvous& out_;
  std::vector<std::int64_t> ranks_;
  std::uint32_t program_ = 0;
  std::vector<std::uint32_t> known_;  // [OpId], of the program: the pair
  // Ranks that are folded onto one are told apart by the distance.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::int64_t>, std::uint32_t> pair_;
};

// The n-th send and the n-th receive.
void check_messages(const Schedule& schedule, std::span<const BoundProgram> programs, const MessagePair& pair,
                    std::vector<Violation>& out) {
  const auto text = [&](std::uint32_t p, const std::vector<std::uint32_t>& ops, std::size_t i) {
    return i < ops.size() ? label(schedule, programs[p].ops[ops[i]]) : std::string("nothing");
  };
  const auto elements = [&](std::uint32_t p, const std::vector<std::uint32_t>& ops, std::size_t i) {
    return std::get<PointToPoint>(schedule.operations[programs[p].ops[ops[i]].op].work).elements;
  };
  // Both ends mean one micro-batch. Chunks are numbered stage by stage, and the last stage sends to the next chunk of
  // the first: their difference is that of the first message.
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

Rendezvous find_rendezvous(const Schedule& schedule, std::span<const BoundProgram> programs) {
  Rendezvous result;
  const std::size_t communicators = schedule.communicators.size();
  std::vector<std::vector<std::vector<std::uint32_t>>> issued(programs.size());  // [program][communicator]
  std::vector<bool> used(communicators, false);
  Messages messages(schedule, programs, result);
  for (std::size_t p = 0; p < programs.size(); ++p) {
    issued[p].resize(communicators);
    result.slots.emplace_back(programs[p].ops.size());
    for (std::uint32_t i = 0; i < programs[p].ops.size(); ++i) {
      const Work& work = schedule.operations[programs[p].ops[i].op].work;
      if (const auto* collective = std::get_if<Collective>(&work)) {
        issued[p][collective->communicator].push_back(i);
        used[collective->communicator] = true;
      } else if (const auto* message = std::get_if<PointToPoint>(&work)) {
        messages.add(p, i, programs[p].ops[i].op, *message);
      }
    }
  }
  for (std::uint32_t c = 0; c < communicators; ++c) {
    if (!used[c]) continue;
    std::map<std::int64_t, std::uint32_t> group_of;  // first rank of the instance → group
    for (std::uint32_t p = 0; p < programs.size(); ++p) {
      const auto members = members_of(schedule, schedule.communicators[c], programs[p].rank);
      if (members.empty() && issued[p][c].empty()) continue;
      if (members.empty())
        throw input_error("schedule: " + label(schedule, programs[p].ops[issued[p][c].front()]) + " of rank " +
                          std::to_string(programs[p].rank) + " uses communicator " + schedule.communicators[c].name +
                          ", of which the rank is not a member");
      const auto [at, is_new] = group_of.try_emplace(members.front(), static_cast<std::uint32_t>(result.groups.size()));
      if (is_new) result.groups.push_back({c, {}, {}});
      CollectiveGroup& group = result.groups[at->second];
      for (std::uint32_t i = 0; i < issued[p][c].size(); ++i)
        result.slots[p][issued[p][c][i]] = {MeetingSlot::Kind::collective, at->second, i};
      group.members.push_back(p);
      group.sequence.push_back(std::move(issued[p][c]));
    }
  }
  return result;
}

std::vector<Violation> check_issue_order(const Schedule& schedule, std::span<const BoundProgram> programs,
                                         const Rendezvous& rendezvous, std::size_t limit) {
  std::vector<Violation> out;
  for (const CollectiveGroup& group : rendezvous.groups) check_sequence(schedule, programs, group, out);
  for (const MessagePair& pair : rendezvous.pairs) check_messages(schedule, programs, pair, out);
  // The second rule compares positions in sequences that the first one has proved equal.
  if (out.empty()) {
    for (std::size_t a = 0; a < rendezvous.groups.size(); ++a) {
      for (std::size_t b = a + 1; b < rendezvous.groups.size(); ++b) {
        check_pair(schedule, programs, rendezvous.groups[a], rendezvous.groups[b], out);
      }
    }
  }
  if (out.size() > limit) out.resize(limit);
  return out;
}

}  // namespace stretto
