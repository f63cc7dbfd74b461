#include "report/critical_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "report/prediction.hpp"

namespace stretto {
namespace {

struct PathNode {
  std::size_t program = 0;
  std::uint32_t op = 0;
};

class PathSearch {
 public:
  PathSearch(const BoundStep& step, const Timeline& timeline) : programs_(step.programs), timeline_(timeline) {
    std::map<std::int64_t, std::size_t> program_of;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      program_of[programs_[p].rank] = p;
      rows_.emplace_back(programs_[p].ops.size(), nullptr);
    }
    for (const TimelineRow& row : timeline.rows) rows_[program_of.at(row.rank)][row.op] = &row;
    join_members(step.issued);
  }

  CriticalPath run() const {
    CriticalPath path;
    const TimelineRow* latest = nullptr;
    PathNode at;
    for (std::size_t p = 0; p < programs_.size(); ++p)
      for (std::uint32_t op = 0; op < rows_[p].size(); ++op)
        if (const TimelineRow* row = rows_[p][op]; row && (!latest || row->end > latest->end)) {
          latest = row;
          at = {p, op};
        }
    if (!latest) return path;
    path.length = std::max<Picoseconds>(0, latest->end - timeline_.step_begin);
    // Operations that began no later than this have been counted already, so that overlap counts once.
    Picoseconds counted = latest->end;
    for (bool is_after_end = true;;) {
      // An operation starts by itself, but ends with all of its members.
      if (is_after_end) at = last_to_come(last_of_joined(at));
      const TimelineRow& row = row_of(at);
      if (is_after_end) {
        const Picoseconds begin = std::clamp(row.transfer, timeline_.step_begin, counted),
                          end = std::clamp(row.moved(), begin, counted);
        (communicates(at) ? path.communication : path.compute) += end - begin;
        counted = begin;
        path.rows.push_back(row);
        path.counted.push_back(end - begin);
      }
      const Cause cause = cause_of(at);
      if (!cause.is_there) break;
      at = cause.node;
      is_after_end = cause.is_end;
    }
    std::reverse(path.rows.begin(), path.rows.end());
    std::reverse(path.counted.begin(), path.counted.end());
    path.between = path.length - path.compute - path.communication;
    return path;
  }

 private:
  struct Cause {
    bool is_there = false;
    PathNode node;
    bool is_end = true;  // otherwise the awaited event was the other operation's start
    Picoseconds time = 0;
  };

  const TimelineRow& row_of(const PathNode& node) const { return *rows_[node.program][node.op]; }
  const Work& work_of(const PathNode& node) const { return programs_[node.program].work_of(node.op); }
  bool communicates(const PathNode& node) const { return is_communication(work_of(node)); }

  // Joins members: the n-th operation of a group, or the n-th message of a pair, is one operation on all its members.
  void join_members(const IssueOrder& issued) {
    for (const BoundProgram& program : programs_) group_.emplace_back(program.ops.size(), kAlone);
    const auto join = [&](std::size_t first, std::uint32_t program, const std::vector<std::uint32_t>& ops) {
      if (groups_.size() < first + ops.size()) groups_.resize(first + ops.size());
      for (std::size_t n = 0; n < ops.size(); ++n) {
        groups_[first + n].push_back({program, ops[n]});
        group_[program][ops[n]] = first + n;
      }
    };
    for (const CollectiveGroup& group : issued.groups)
      for (std::size_t first = groups_.size(), m = 0; m < group.members.size(); ++m)
        join(first, group.members[m], group.sequence[m]);
    for (const MessagePair& pair : issued.pairs) {
      const std::size_t first = groups_.size();
      join(first, pair.from, pair.sends);
      join(first, pair.to, pair.receives);
    }
  }

  // Returns the operations of a lane that are joined with this one, in order: they start and end together.
  std::span<const std::uint32_t> joined_with(const PathNode& node) const {
    const BoundProgram& program = programs_[node.program];
    const std::vector<std::uint32_t>& lane = program.lanes[program.ops[node.op].lane];
    std::size_t first = program.ops[node.op].position, after = first + 1;
    while (program.ops[lane[first]].joined) --first;
    while (after < lane.size() && program.ops[lane[after]].joined) ++after;
    return std::span(lane).subspan(first, after - first);
  }

  // Returns the last of joined messages: they end with the one that was complete last.
  PathNode last_of_joined(PathNode node) const {
    for (const std::uint32_t op : joined_with(node))
      if (const PathNode other{node.program, op};
          rows_[node.program][op] && row_of(other).moved() > row_of(node).moved())
        node = other;
    return node;
  }

  PathNode last_to_come(PathNode node) const {
    const std::size_t group = group_[node.program][node.op];
    if (group == kAlone) return node;
    for (const PathNode& member : groups_[group])
      if (rows_[member.program][member.op] && row_of(member).start > row_of(node).start) node = member;
    return node;
  }

  Cause cause_of(const PathNode& node) const {
    const BoundProgram& program = programs_[node.program];
    Cause cause;
    const auto consider = [&](std::uint32_t other, bool is_end) {
      const TimelineRow* row = rows_[node.program][other];
      if (!row) return;
      const Picoseconds time = is_end ? row->end : row->start;
      if (!cause.is_there || time > cause.time) cause = {true, {node.program, other}, is_end, time};
    };
    const std::span<const std::uint32_t> joined = joined_with(node);
    const BoundOp& first = program.ops[joined.front()];
    if (first.position > 0) consider(program.lanes[first.lane][first.position - 1], true);
    for (const std::uint32_t op : joined)
      for (std::uint32_t i = program.ops[op].wait_begin; i < program.ops[op].wait_end; ++i)
        if (const BoundWait& wait = program.waits[i]; wait.steps_ago == 0)
          consider(wait.op, wait.kind == EdgeKind::finish_start);
    return cause;
  }

  static constexpr std::size_t kAlone = ~std::size_t{0};
  const std::vector<BoundProgram>& programs_;
  const Timeline& timeline_;
  std::vector<std::vector<const TimelineRow*>> rows_;  // [program][op]; null: not recorded
  std::vector<std::vector<std::size_t>> group_;        // [program][op] → groups_, or kAlone
  std::vector<std::vector<PathNode>> groups_;          // the members of each communication
};

}  // namespace

CriticalPath critical_path(const BoundStep& step, const Timeline& timeline) { return PathSearch(step, timeline).run(); }

std::vector<std::pair<std::string, double>> path_shares(const Schedule& schedule, const BoundStep& step,
                                                        const CriticalPath& path) {
  std::map<std::int64_t, const BoundProgram*> program_of;
  for (const BoundProgram& program : step.programs) program_of[program.rank] = &program;
  const auto part_of = [&](const TimelineRow& row) -> std::string {
    const BoundProgram& program = *program_of.at(row.rank);
    const Operation& operation = schedule.operations[program.ops[row.op].op];
    const Work& work = program.work_of(row.op);
    if (is_communication(work)) return name_of(axis_of(schedule.communicators[communicator_of(work)].axes));
    return operation.is_recomputed() ? "recompute" : name_of(operation.phase);
  };
  std::map<std::string, Picoseconds> parts = {{"between", path.between}};
  for (std::size_t i = 0; i < path.rows.size(); ++i) parts[part_of(path.rows[i])] += path.counted[i];
  std::vector<std::pair<std::string, double>> shares;
  for (const auto& [part, time] : parts) shares.emplace_back(part, double(time) / double(path.length));
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

std::string path_text(const std::vector<std::pair<std::string, double>>& shares) {
  std::string text;
  for (const auto& [part, share] : shares)
    if (share >= 0.005) text += fmt::format("{}{:.0f} % {}", text.empty() ? "" : ", ", 100 * share, part);
  return "the critical path: " + text;
}

nlohmann::json path_json(const std::vector<std::pair<std::string, double>>& shares) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [part, share] : shares) rows.push_back({{"part", part}, {"share", share}});
  return rows;
}

}  // namespace stretto
