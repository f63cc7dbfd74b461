#include "exec/cuda/launch_plan.hpp"

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>

#include "exec/comm/local.hpp"

namespace stretto::cuda {
namespace {

using Kind = LaunchAction::Kind;

class Planner {
 public:
  // `issued`: set for ranks that share a device; null for a rank with its own.
  Planner(const Schedule& schedule, std::span<const BoundProgram> programs, const IssueOrder* issued)
      : schedule_(schedule), programs_(programs), issued_(issued) {
    lanes_ = static_cast<std::uint32_t>(schedule.lanes.size());
    plan_.streams = static_cast<std::uint32_t>(programs.size()) * lanes_;
    queues_.resize(plan_.streams);
  }

  LaunchPlan run() {
    for (rank_ = 0; rank_ < programs_.size(); ++rank_) {
      find_counts();
      for (LaneId lane = 0; lane < lanes_; ++lane) lane_actions(lane);
    }
    interleave();
    return std::move(plan_);
  }

 private:
  // The moment that an event marks. Rendezvous of one collective are distinguished by the phase that follows them.
  enum class Moment : std::uint8_t { started, finished, arrived, delivered, counted };
  std::uint32_t event(Moment moment, std::uint32_t rank, std::uint32_t op, int phase = 0) {
    const auto [at, fresh] = events_.try_emplace({moment, rank, op, phase}, plan_.events);
    if (fresh) ++plan_.events;
    return at->second;
  }

  static bool is_wait(const LaunchAction& action) {
    return action.kind == Kind::wait || action.kind == Kind::host_wait;
  }
  struct Queued {
    LaunchAction action;
    std::uint32_t op = 0;  // operation that it belongs to: calls follow this order
  };
  void push(std::uint32_t op, Kind kind, std::uint32_t what, bool of_step_before = false) {
    LaunchAction action;
    action.kind = kind;
    action.stream = stream_;
    action.rank = rank_;
    action.op = op;
    action.event = what;
    action.of_step_before = of_step_before;
    queues_[stream_].push_back({action, op});
  }
  void mark(std::uint32_t op, Kind kind) {
    launch(op);
    queues_[stream_].back().action.kind = kind;
  }
  void launch(std::uint32_t op, int phase = 0, std::uint32_t rendezvous = 0, std::size_t joined = 1) {
    LaunchAction action;
    action.joined = static_cast<std::uint32_t>(joined);
    action.stream = stream_;
    action.rendezvous = rendezvous;
    action.rank = rank_;
    action.op = op;
    action.phase = static_cast<std::uint8_t>(phase);
    queues_[stream_].push_back({action, op});
  }

  // Finds for every operation of the rank that needs numbers of rows the one that has made them: the last to write
  // there, in the order in which the host issues them.
  void find_counts() {
    const BoundProgram& program = programs_[rank_];
    counts_of_.clear();
    makes_counts_.assign(program.ops.size(), false);
    std::map<std::pair<StorageId, std::int64_t>, std::uint32_t> made;  // by place
    const auto place_of = [&](std::uint32_t op, std::size_t access) {
      const BoundView view = resolve(schedule_, program, program.ops[op], access);
      return std::pair(view.storage, view.offset);
    };
    for (std::uint32_t op = 0; op < program.ops.size(); ++op) {
      if (const auto at = made_counts_of(program.work_of(op))) made[place_of(op, *at)] = op;
      const auto at = counts_of(program.work_of(op));
      if (!at) continue;
      const auto found = made.find(place_of(op, *at));
      assert(found != made.end() && "a verified schedule reads what is written before");
      counts_of_[op] = found->second;
      makes_counts_[found->second] = true;
    }
  }

  void lane_actions(LaneId lane) {
    stream_ = rank_ * lanes_ + lane;
    const BoundProgram& program = programs_[rank_];
    const std::vector<std::uint32_t>& ops = program.lanes[lane];
    for (std::size_t i = 0; i < ops.size();) {
      std::size_t end = i + 1;
      while (end < ops.size() && program.ops[ops[end]].joined) ++end;
      const std::span<const std::uint32_t> group = std::span(ops).subspan(i, end - i);
      for (const std::uint32_t op : group) waits(op);
      for (const std::uint32_t op : group) mark(op, Kind::begin);
      for (const std::uint32_t op : group) push(op, Kind::record, event(Moment::started, rank_, op));
      for (const std::uint32_t op : group)
        if (const auto made = counts_of_.find(op); made != counts_of_.end())
          push(op, Kind::host_wait, event(Moment::counted, rank_, made->second));
      const Work& work = program.work_of(ops[i]);
      if (!issued_)
        launch(ops[i], 0, 0, group.size());
      else if (std::holds_alternative<Collective>(work))
        collective(ops[i], std::get<Collective>(work).kind);
      else if (std::holds_alternative<PointToPoint>(work))
        messages(group);
      else
        launch(ops[i]);
      for (const std::uint32_t op : group) mark(op, Kind::end);
      for (const std::uint32_t op : group) push(op, Kind::record, event(Moment::finished, rank_, op));
      for (const std::uint32_t op : group) {
        if (!makes_counts_[op]) continue;
        mark(op, Kind::copy);
        push(op, Kind::record, event(Moment::counted, rank_, op));
      }
      i = end;
    }
  }

  void waits(std::uint32_t op) {
    const BoundProgram& program = programs_[rank_];
    const BoundOp& bound = program.ops[op];
    for (std::uint32_t w = bound.wait_begin; w < bound.wait_end; ++w) {
      const BoundWait& wait = program.waits[w];
      if (wait.lane == bound.lane) continue;
      assert(wait.steps_ago <= 1 && "events are kept for one step");
      const Moment moment = wait.kind == EdgeKind::finish_start ? Moment::finished : Moment::started;
      push(op, Kind::wait, event(moment, rank_, wait.op), wait.steps_ago > 0);
    }
  }

  void collective(std::uint32_t op, CollectiveKind kind) {
    const RendezvousSlot slot = issued_->slots[rank_][op];
    const CollectiveGroup& group = issued_->groups[slot.group];
    const auto meet = [&](int before_phase) {
      push(op, Kind::record, event(Moment::arrived, rank_, op, before_phase));
      for (std::size_t m = 0; m < group.members.size(); ++m)
        if (group.members[m] != rank_)
          push(op, Kind::wait, event(Moment::arrived, group.members[m], group.sequence[m][slot.index], before_phase));
    };
    // The members share the list of the first one.
    const auto [rendezvous, fresh] =
        rendezvous_of_.try_emplace({slot.group, slot.index}, static_cast<std::uint32_t>(plan_.rendezvous.size()));
    if (fresh) {
      auto& places = plan_.rendezvous.emplace_back();
      for (std::size_t m = 0; m < group.members.size(); ++m)
        places.push_back({group.members[m], group.sequence[m][slot.index]});
    }
    const int phases = local::phases(kind);
    for (int phase = 0; phase < phases; ++phase) {
      meet(phase);
      launch(op, phase, rendezvous->second);
    }
    meet(phases);
  }

  void messages(std::span<const std::uint32_t> group) {
    for (const std::uint32_t op : group) push(op, Kind::record, event(Moment::arrived, rank_, op));
    for (const std::uint32_t op : group) {
      const RendezvousSlot slot = issued_->slots[rank_][op];
      if (slot.kind != RendezvousSlot::Kind::receive) continue;
      const MessagePair& pair = issued_->pairs[slot.group];
      const LaunchPlan::Participant sender{pair.from, pair.sends[slot.index]};
      push(op, Kind::wait, event(Moment::arrived, sender.rank, sender.op));
      launch(op, 0, static_cast<std::uint32_t>(plan_.rendezvous.size()));
      plan_.rendezvous.push_back({sender});
      push(op, Kind::record, event(Moment::delivered, rank_, op));
    }
    for (const std::uint32_t op : group) {
      const RendezvousSlot slot = issued_->slots[rank_][op];
      if (slot.kind != RendezvousSlot::Kind::send) continue;
      const MessagePair& pair = issued_->pairs[slot.group];
      push(op, Kind::wait, event(Moment::delivered, pair.to, pair.receives[slot.index]));
    }
  }

  // Merges the queues into one order of calls in which events are recorded before they are waited for, and drops
  // records of events that nothing waits for.
  void interleave() {
    std::vector<bool> is_awaited(plan_.events), is_recorded(plan_.events);
    for (const auto& queue : queues_)
      for (const Queued& queued : queue)
        if (is_wait(queued.action)) is_awaited[queued.action.event] = true;
    std::vector<bool> is_known(plan_.events);  // the host has waited for it
    std::size_t left = 0;
    for (const auto& queue : queues_) left += queue.size();
    while (left > 0) {
      const std::size_t before = left;
      for (std::uint32_t rank = 0; rank < programs_.size(); ++rank)
        while (const auto stream = next_of(rank, is_recorded)) {
          const LaunchAction action = queues_[*stream].front().action;
          queues_[*stream].pop_front();
          --left;
          if (action.kind == Kind::record) is_recorded[action.event] = true;
          if (action.kind == Kind::record && !is_awaited[action.event]) continue;
          if (action.kind == Kind::host_wait) {
            if (is_known[action.event]) continue;
            is_known[action.event] = true;
          }
          plan_.actions.push_back(action);
        }
      assert(left < before && "a verified schedule has an order of launches");
      if (left == before) return;
    }
    number_events(is_awaited);
  }

  // Returns the stream of a rank whose next action can be called and belongs to the earliest operation.
  std::optional<std::uint32_t> next_of(std::uint32_t rank, const std::vector<bool>& is_recorded) const {
    std::optional<std::uint32_t> best;
    for (std::uint32_t stream = rank * lanes_; stream < (rank + 1) * lanes_; ++stream) {
      if (queues_[stream].empty()) continue;
      const Queued& head = queues_[stream].front();
      if (is_wait(head.action) && !head.action.of_step_before && !is_recorded[head.action.event]) continue;
      if (!best || head.op < queues_[*best].front().op) best = stream;
    }
    return best;
  }

  // Numbers the remaining events without gaps.
  void number_events(const std::vector<bool>& is_awaited) {
    std::vector<std::uint32_t> number(plan_.events);
    std::uint32_t next = 0;
    for (std::uint32_t e = 0; e < plan_.events; ++e)
      if (is_awaited[e]) number[e] = next++;
    for (LaunchAction& action : plan_.actions)
      if (is_wait(action) || action.kind == Kind::record) action.event = number[action.event];
    plan_.events = next;
  }

  const Schedule& schedule_;
  std::span<const BoundProgram> programs_;
  const IssueOrder* const issued_;
  LaunchPlan plan_;
  std::uint32_t lanes_ = 0, rank_ = 0, stream_ = 0;
  std::map<std::tuple<Moment, std::uint32_t, std::uint32_t, int>, std::uint32_t> events_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>
      rendezvous_of_;                                 // for collectives: (group, place in it)
  std::vector<std::deque<Queued>> queues_;            // [stream]
  std::map<std::uint32_t, std::uint32_t> counts_of_;  // of this rank: operation → the one that makes its numbers
  std::vector<bool> makes_counts_;                    // [op]
};

}  // namespace

bool LaunchPlan::waits_on_host() const {
  return std::any_of(actions.begin(), actions.end(),
                     [](const LaunchAction& action) { return action.kind == Kind::host_wait; });
}

std::optional<std::size_t> counts_of(const Work& work) {
  if (const auto* product = std::get_if<GroupedGemm>(&work); product && !product->equal) return 2;
  if (const auto* rows = std::get_if<Collective>(&work); rows && rows->by_rows()) return 1;
  return {};
}

std::optional<std::size_t> made_counts_of(const Work& work) {
  if (const auto* sort = std::get_if<SortTokens>(&work); sort && sort->each == 0) return 1;
  if (std::holds_alternative<CountRows>(work)) return 1;
  // Ranks gather the numbers of all.
  if (const auto* all = std::get_if<Collective>(&work); all && all->kind == CollectiveKind::all_gather) return 1;
  return {};
}

LaunchPlan plan_launches(const Schedule& schedule, const BoundStep& step) {
  return Planner(schedule, step.programs, &step.issued).run();
}

LaunchPlan plan_launches_of_rank(const Schedule& schedule, const BoundProgram& program) {
  return Planner(schedule, {&program, 1}, nullptr).run();
}

}  // namespace stretto::cuda
