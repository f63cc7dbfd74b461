#include "model/schedule/happens_before.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// The oracle: arrivals and finishes of all instances as a graph, and the graph's transitive closure.
struct Graph {
  std::vector<std::vector<bool>> reaches;
  std::vector<std::size_t> base;  // [program]
  std::size_t nodes = 0;

  std::size_t arrive(const std::vector<BoundProgram>& programs, std::size_t p, UnrolledOp i) const {
    return base[p] + 2 * (i.step * programs[p].ops.size() + i.op);
  }

  Graph(const Schedule& schedule, const std::vector<BoundProgram>& programs) {
    for (const BoundProgram& program : programs) {
      base.push_back(nodes);
      nodes += 2 * program.ops.size() * kUnrolledSteps;
    }
    reaches.assign(nodes, std::vector<bool>(nodes, false));
    for (std::size_t p = 0; p < programs.size(); ++p) {
      const BoundProgram& program = programs[p];
      for (std::uint32_t step = 0; step < kUnrolledSteps; ++step) {
        for (std::uint32_t o = 0; o < program.ops.size(); ++o) {
          const BoundOp& op = program.ops[o];
          const std::size_t me = arrive(programs, p, {o, step});
          reaches[me][me + 1] = true;
          const auto& lane = program.lanes[op.lane];
          if (op.position + 1 < lane.size())
            reaches[me + 1][arrive(programs, p, {lane[op.position + 1], step})] = true;
          else if (step + 1 < kUnrolledSteps)
            reaches[me + 1][arrive(programs, p, {lane[0], step + 1})] = true;
          for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
            const BoundWait& wait = program.waits[w];
            if (wait.steps_ago > step) continue;
            const std::size_t on = arrive(programs, p, {wait.op, step - wait.steps_ago});
            reaches[wait.kind == EdgeKind::finish_start ? on + 1 : on][me] = true;
          }
          if (!std::holds_alternative<Collective>(schedule.operations[op.op].work)) continue;
          // All ranks have the same operations in the same order here.
          for (std::size_t q = 0; q < programs.size(); ++q) reaches[me][arrive(programs, q, {o, step}) + 1] = true;
        }
      }
    }
    for (std::size_t k = 0; k < nodes; ++k)
      for (std::size_t i = 0; i < nodes; ++i)
        if (reaches[i][k])
          for (std::size_t j = 0; j < nodes; ++j)
            if (reaches[k][j]) reaches[i][j] = true;
  }

  bool has_cycle() const {
    for (std::size_t i = 0; i < nodes; ++i)
      if (reaches[i][i]) return true;
    return false;
  }
};

// A random program of `count` operations on four lanes. Waits are drawn per rank, which makes orders that exist only
// through another rank.
std::vector<BoundProgram> random_programs(TinySchedule& t, std::mt19937& random, std::uint32_t count, int ranks) {
  const auto draw = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const TensorId x = t.tensor("x", 1, 8, BufferKind::parameter);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto lane = static_cast<LaneId>(draw(4));
    const std::string name = "op" + std::to_string(i);
    if (lane < 2)
      t.fill(name, lane, x);
    else
      t.all_reduce(name, lane, x);
  }
  std::vector<BoundProgram> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    for (OpId i = 0; i < count; ++i) {
      auto& waits = t.waits_of(i);
      waits.clear();
      for (std::uint32_t w = draw(3); w > 0; --w) {
        const bool is_back = draw(3) == 0;
        // Some edges point forward, which may make a cycle.
        const OpId on = is_back ? draw(count) : draw(12) == 0 ? draw(count) : i > 0 ? draw(i) : 0;
        if (!is_back && on == i) continue;
        waits.push_back(draw(3) == 0 ? start_of(on, is_back) : finish_of(on, is_back));
      }
    }
    programs.push_back(bind(t.schedule, rank));
  }
  return programs;
}

}  // namespace

TEST_CASE("clocks agree with the transitive closure of the event graph") {
  std::mt19937 random(7);
  int deadlocks = 0, through_ranks = 0;
  for (int trial = 0; trial < 250; ++trial) {
    const int ranks = 1 + trial % 3;
    TinySchedule t(ranks, ranks);
    const std::vector<BoundProgram> programs = random_programs(t, random, 4 + trial % 7, ranks);
    const IssueOrder issued = find_issue_order(t.schedule, programs, Folding(t.schedule.mesh));
    const HappensBefore clocks = order_steps(t.schedule, programs, issued);
    const Graph graph(t.schedule, programs);
    REQUIRE(clocks.deadlock.empty() != graph.has_cycle());
    if (graph.has_cycle()) {
      ++deadlocks;
      continue;
    }
    for (std::size_t p = 0; p < programs.size(); ++p) {
      const Graph alone(t.schedule, {programs[p]});
      const auto ops = static_cast<std::uint32_t>(programs[p].ops.size());
      std::vector<std::size_t> place(ops * kUnrolledSteps);
      std::size_t next = 0;
      for (const UnrolledRange& run : clocks.order[p])
        for (std::uint32_t i = 0; i < run.count; ++i) place[run.first.step * ops + run.first.op + i] = next++;
      REQUIRE(next == place.size());
      for (std::uint32_t a = 0; a < ops * kUnrolledSteps; ++a) {
        for (std::uint32_t b = 0; b < ops * kUnrolledSteps; ++b) {
          const UnrolledOp x{a % ops, a / ops}, y{b % ops, b / ops};
          const bool expected = graph.reaches[graph.arrive(programs, p, x) + 1][graph.arrive(programs, p, y)];
          REQUIRE(clocks.ordered(p, x, y) == expected);
          if (expected) REQUIRE(place[a] < place[b]);
          through_ranks +=
              expected && !alone.reaches[alone.arrive({programs[p]}, 0, x) + 1][alone.arrive({programs[p]}, 0, y)];
        }
      }
    }
  }
  // The trials are useful only if some of them deadlock and some do not.
  CHECK(deadlocks > 20);
  CHECK(deadlocks < 200);
  CHECK(through_ranks > 20);
}
