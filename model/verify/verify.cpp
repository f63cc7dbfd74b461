#include "model/verify/verify.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "model/schedule/footprint.hpp"
#include "model/schedule/happens_before.hpp"
#include "model/verify/check.hpp"
#include "model/verify/races.hpp"
#include "model/verify/row_orders.hpp"
#include "model/verify/verify_wanted.hpp"

namespace stretto {
namespace {

// The plan is checked like any data, because it may come from a file or a test.
std::vector<Violation> check_plan(const Schedule& schedule, const RolePlan& plan) {
  const auto malformed = [](const std::string& what) {
    return std::vector<Violation>{{Violation::Kind::malformed, "malformed: memory plan: " + what}};
  };
  const std::size_t count = schedule.storages.size();
  if (plan.offset_bytes.size() != count)
    return malformed(std::to_string(plan.offset_bytes.size()) + " offsets for " + std::to_string(count) + " storages");
  const auto end_of = [&](std::size_t s) { return plan.offset_bytes[s] + schedule.storages[s].bytes(); };
  for (std::size_t s = 0; s < count; ++s)
    if (plan.has(StorageId(s)) && (plan.offset_bytes[s] < 0 || end_of(s) > plan.bytes))
      return malformed(schedule.storages[s].name + " leaves the arena of " + std::to_string(plan.bytes) + " bytes");

  std::vector<std::size_t> by_offset;
  for (std::size_t s = 0; s < count; ++s)
    if (schedule.storages[s].bytes() != 0 && plan.has(StorageId(s))) by_offset.push_back(s);
  std::stable_sort(by_offset.begin(), by_offset.end(),
                   [&](std::size_t a, std::size_t b) { return plan.offset_bytes[a] < plan.offset_bytes[b]; });
  // The storages with the highest end so far: among all, and among those that share no memory.
  std::size_t furthest = count, furthest_alone = count;
  for (const std::size_t s : by_offset) {
    const bool is_alone = shares_with_nobody(schedule.storages[s].kind);
    const std::size_t other = is_alone ? furthest : furthest_alone;
    if (other != count && end_of(other) > plan.offset_bytes[s])
      return malformed(schedule.storages[s].name + " and " + schedule.storages[other].name +
                       " overlap, but persistent, input and scalar storages share with nobody");
    if (furthest == count || end_of(s) > end_of(furthest)) furthest = s;
    if (is_alone && (furthest_alone == count || end_of(s) > end_of(furthest_alone))) furthest_alone = s;
  }
  return {};
}

// Calls visit(coordinates) for all ranks that the program represents, as far as they differ on `axes`.
template <class Visit>
void visit_class(const Mesh& mesh, const BoundProgram& program, Coordinates at, const std::vector<Coord>& axes,
                 const Visit& visit, std::size_t next = 0) {
  if (next == program.represents.size()) {
    mesh.complete(at);
    return visit(at);
  }
  const BoundProgram::ClassAxis& of = program.represents[next];
  if (std::find(axes.begin(), axes.end(), of.axis) == axes.end())
    return visit_class(mesh, program, at, axes, visit, next + 1);
  of.coordinates.visit([&](std::int64_t coordinate) {
    at[of.axis] = coordinate;
    visit_class(mesh, program, at, axes, visit, next + 1);
  });
}

// Checks the rule "In place: the shard is slice `rank` of the whole"; without it members would read elements that
// others have overwritten.
void check_in_place(const Schedule& schedule, const BoundProgram& program, Footprints& footprints,
                    std::vector<Violation>& out) {
  std::vector<std::optional<Expr>> place_of(schedule.communicators.size());  // made at the first use
  for (std::uint32_t f = 0; f < footprints.count(); ++f) {
    const BoundOp& op = program.ops[footprints.first_op(f)];
    const auto* work = std::get_if<Collective>(&program.works[op.op]);
    if (!work) continue;
    const CollectiveRule rule = rule_of(work->kind);
    if (rule.gives_shard == rule.gets_shard) continue;  // one buffer, or two separate ones
    const std::size_t of_shard = rule.gives_shard ? 0 : 1, of_whole = 1 - of_shard;
    const std::span<const BoundView> views = footprints.views(f);
    const BoundView &shard = views[of_shard], &whole = views[of_whole];
    if (shard.storage != whole.storage) continue;
    const Communicator& communicator = schedule.communicators[work->communicator];
    std::optional<Expr>& place = place_of[work->communicator];
    if (!place) place = place_in(schedule, communicator);
    const std::int64_t size = work->elements / communicator.size;
    const auto& accesses = schedule.operations[op.op].accesses;
    const Expr &shard_at = accesses[of_shard].view.offset, &whole_at = accesses[of_whole].view.offset;
    // Nearly always the offset is this very expression; then this rank, if its two views overlap, decides for all.
    const bool is_apart_here = shard.offset + size <= whole.offset || whole.offset + work->elements <= shard.offset;
    std::vector<Coord> axes;
    if (is_apart_here || !whole_at.is_constant() || !(shard_at == *place * Expr(size)))
      for (const BoundProgram::ClassAxis& of : program.represents)
        if (schedule.mesh.depends_on(*place + shard_at + whole_at, of.axis)) axes.push_back(of.axis);
    const Coordinates here = coordinates_of(program, op);
    const std::int64_t shard_base = shard.offset - shard_at.eval(here), whole_base = whole.offset - whole_at.eval(here);
    bool is_wrong = false;
    visit_class(schedule.mesh, program, here, axes, [&](const Coordinates& at) {
      const std::int64_t begin = shard_base + shard_at.eval(at), all = whole_base + whole_at.eval(at);
      const std::int64_t index = place->eval(at);
      const bool is_apart = begin + size <= all || all + work->elements <= begin;
      if (is_wrong || is_apart || begin == all + index * size) return;
      is_wrong = true;
      out.push_back({Violation::Kind::malformed, "malformed: " + label(schedule, op) + " is in place on " +
                                                     schedule.storages[shard.storage].name + ", but its shard at " +
                                                     std::to_string(begin) + " is not slice " + std::to_string(index) +
                                                     " of the whole at " + std::to_string(all) + " on rank " +
                                                     std::to_string(schedule.mesh.rank_of(at))});
    });
  }
}

// Checks a sequence of operations that meet others but are on different lanes: each must be ordered before the next.
void check_sequence(const Schedule& schedule, const HappensBefore& clocks, std::uint32_t p,
                    const std::vector<std::uint32_t>& sequence, std::uint32_t communicator,
                    std::vector<Violation>& out) {
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const bool wraps = i + 1 == sequence.size();
    const UnrolledOp first{sequence[i], 0}, second{sequence[wraps ? 0 : i + 1], wraps ? 1u : 0u};
    const auto& ops = clocks.programs[p].ops;
    if (ops[first.op].lane == ops[second.op].lane || clocks.ordered(p, first, second)) continue;
    const std::string a = label(schedule, ops[first.op]);
    const std::string b = label(schedule, ops[second.op]) + (wraps ? " of the next step" : "");
    out.push_back({Violation::Kind::order_mismatch, "order mismatch: " + a + " and " + b + " use communicator " +
                                                        schedule.communicators[communicator].name +
                                                        " on different lanes in no order; missing edge: " + a + " -> " +
                                                        b});
    return;
  }
}

// Checks a communicator on two lanes: the lanes do not order its operations, so edges must, or members may differ in
// order.
void check_serialised(const Schedule& schedule, const HappensBefore& clocks, const IssueOrder& issued,
                      std::vector<Violation>& out) {
  for (const CollectiveGroup& group : issued.groups)
    for (std::size_t m = 0; m < group.members.size(); ++m)
      check_sequence(schedule, clocks, group.members[m], group.sequence[m], group.communicator, out);
  for (const MessagePair& pair : issued.pairs) {
    check_sequence(schedule, clocks, pair.from, pair.sends, pair.communicator, out);
    check_sequence(schedule, clocks, pair.to, pair.receives, pair.communicator, out);
  }
}

std::vector<Violation> at_most(std::vector<Violation> violations, std::size_t limit) {
  if (violations.size() > limit) violations.resize(limit);
  return violations;
}

// Runs the checks before binding.
std::vector<Violation> check_unbound(const Schedule& schedule, const MemoryPlan* plan, std::size_t limit) {
  std::vector<Violation> found = check_form(schedule, limit);
  if (found.empty()) found = check_row_orders(schedule, limit);
  if (!found.empty() || !plan) return found;
  if (plan->roles.size() != schedule.programs.size())
    return {{Violation::Kind::malformed, "malformed: memory plan: " + std::to_string(plan->roles.size()) +
                                             " roles for " + std::to_string(schedule.programs.size()) + " programs"}};
  for (const RolePlan& role : plan->roles) {
    found = check_plan(schedule, role);
    if (!found.empty()) return at_most(found, limit);
  }
  return {};
}

// Runs the checks after ordering; `clocks` has no deadlock.
std::vector<Violation> check_ordered(const Schedule& schedule, const HappensBefore& clocks, const IssueOrder& issued,
                                     std::vector<Footprints>& footprints, const MemoryPlan* plan, std::size_t limit) {
  std::vector<Violation> found;
  check_serialised(schedule, clocks, issued, found);
  if (found.size() >= limit) return at_most(found, limit);
  const ValueRules rules(schedule);
  // Nearly always there is nothing to report, which distinguishes the programs.
  std::atomic<bool> is_any = false;
  parallel_each(std::ssize(clocks.programs), [&](std::int64_t i) {
    const auto p = static_cast<std::size_t>(i);
    RaceReport alone;
    alone.limit = 1;
    try {
      find_races(schedule, rules, clocks, p, footprints[p], plan ? &plan->roles[clocks.programs[p].role] : nullptr,
                 alone);
    } catch (...) {  // it is thrown again below
      is_any = true;
    }
    if (!alone.violations.empty()) is_any = true;
  });
  if (!is_any) return found;
  RaceReport report;
  report.limit = limit - found.size();
  for (std::size_t p = 0; p < clocks.programs.size(); ++p) {
    const std::size_t role = clocks.programs[p].role;
    find_races(schedule, rules, clocks, p, footprints[p], plan ? &plan->roles[role] : nullptr, report);
  }
  std::move(report.violations.begin(), report.violations.end(), std::back_inserter(found));
  return found;
}

// Edges and views are judged where they are evaluated, which throws this error.
Violation malformed(const Error& error) {
  return {Violation::Kind::malformed, std::string("malformed: ") + error.what()};
}

void require_none(const Schedule& schedule, const std::vector<Violation>& violations) {
  if (!violations.empty())
    throw input_error("schedule " + schedule.name + " is not correct: " + violations.front().message);
}

}  // namespace

std::vector<Violation> verify(const Schedule& schedule, const MemoryPlan* plan, std::size_t limit) {
  // Each proof needs the one before it: a malformed schedule cannot be bound, and a schedule that cannot run has no
  // order.
  std::vector<Violation> found = check_unbound(schedule, plan, limit);
  if (!found.empty()) return found;
  try {
    const BoundStep step = bind_step(schedule);
    std::vector<Footprints> footprints = footprints_of(schedule, step.programs);
    for (std::size_t p = 0; p < step.programs.size(); ++p)
      check_in_place(schedule, step.programs[p], footprints[p], found);
    if (!found.empty()) return at_most(found, limit);
    found = check_issue_order(schedule, step.programs, step.issued, limit);
    if (!found.empty()) return found;
    const HappensBefore clocks = order_steps(schedule, step.programs, step.issued);
    if (!clocks.deadlock.empty()) return {{Violation::Kind::deadlock, clocks.deadlock}};
    found = check_ordered(schedule, clocks, step.issued, footprints, plan, limit);
  } catch (const Error& error) {
    found.push_back(malformed(error));
  }
  return at_most(found, limit);
}

void require_verified(const Schedule& schedule, const MemoryPlan* plan) {
  require_none(schedule, verify(schedule, plan, 1));
}

std::optional<VerifiedSchedule> plan_and_verify_wanted(Schedule schedule, const IsWanted& is_wanted) {
  BoundStep step = bind_step(schedule);
  const HappensBefore clocks = require_order(schedule, step.programs, step.issued);
  std::vector<Footprints> footprints = footprints_of(schedule, step.programs);
  MemoryPlan plan = plan_memory(schedule, clocks, footprints);
  if (!is_wanted(schedule, plan, step)) return std::nullopt;
  std::vector<Violation> found = check_unbound(schedule, &plan, 1);
  try {
    for (std::size_t p = 0; found.empty() && p < step.programs.size(); ++p)
      check_in_place(schedule, step.programs[p], footprints[p], found);
    if (found.empty()) found = check_ordered(schedule, clocks, step.issued, footprints, &plan, 1);
  } catch (const Error& error) {
    found.push_back(malformed(error));
  }
  require_none(schedule, found);
  return VerifiedSchedule{std::move(step), std::move(schedule), std::move(plan)};
}

VerifiedSchedule plan_and_verify(Schedule schedule) {
  return *plan_and_verify_wanted(std::move(schedule),
                                 [](const Schedule&, const MemoryPlan&, const BoundStep&) { return true; });
}

}  // namespace stretto
