#include "model/verify/races.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "model/schedule/issue_order.hpp"
#include "tests/tiny_schedule.hpp"

using namespace stretto;

namespace {

// The oracle looks at every byte, and at every pair of accesses to it. It is quadratic, and knows neither cells nor the
// shortcut of the last access.
struct Oracle {
  struct Touch {
    UnrolledOp at;
    StorageId storage;
    AccessMode mode;
    std::vector<std::int64_t> bytes;
  };
  std::vector<Touch> touches;
  const Schedule& schedule;
  const HappensBefore& clocks;

  Oracle(const Schedule& s, const HappensBefore& c, const RolePlan& plan) : schedule(s), clocks(c) {
    const BoundProgram& program = c.programs[0];
    for (std::uint32_t step = 0; step < kUnrolledSteps; ++step) {
      for (std::uint32_t o = 0; o < program.ops.size(); ++o) {
        for (std::size_t a = 0; a < s.operations[program.ops[o].op].accesses.size(); ++a) {
          const BoundView view = resolve(s, program, program.ops[o], a);
          Touch touch{{o, step}, view.storage, s.operations[program.ops[o].op].accesses[a].mode, {}};
          for (std::int64_t row = 0; row < view.rows; ++row)
            for (std::int64_t byte = 0; byte < view.cols * 4; ++byte)
              touch.bytes.push_back(plan.offset_bytes[view.storage] + (view.offset + row * view.ld) * 4 + byte);
          touches.push_back(touch);
        }
      }
    }
  }

  static bool same(UnrolledOp a, UnrolledOp b) { return a.op == b.op && a.step == b.step; }
  static bool covers(const Touch& touch, std::int64_t byte) {
    return std::find(touch.bytes.begin(), touch.bytes.end(), byte) != touch.bytes.end();
  }

  bool has_race() const {
    for (const Touch& a : touches) {
      for (const Touch& b : touches) {
        if (a.mode == AccessMode::read) continue;
        if (same(a.at, b.at) ? a.storage == b.storage : clocks.ordered(0, a.at, b.at) || clocks.ordered(0, b.at, a.at))
          continue;
        for (const std::int64_t byte : a.bytes)
          if (covers(b, byte)) return true;
      }
    }
    return false;
  }

  // Called only when there is no race, so that the writes of a byte are in one order.
  bool has_uninitialised() const {
    for (const Touch& read : touches) {
      if (read.mode == AccessMode::write) continue;
      for (const std::int64_t byte : read.bytes) {
        const Touch* last = nullptr;
        for (const Touch& write : touches) {
          if (write.mode == AccessMode::read || same(write.at, read.at) || !covers(write, byte)) continue;
          if (clocks.ordered(0, write.at, read.at) && (!last || clocks.ordered(0, last->at, write.at))) last = &write;
        }
        const bool is_outside = is_persistent(schedule.storages[read.storage].kind);
        if (!last ? !is_outside : last->storage != read.storage || (!is_outside && last->at.step != read.at.step))
          return true;
      }
    }
    return false;
  }
};

}  // namespace

TEST_CASE("races and uninitialised reads are those that looking at every byte finds") {
  std::mt19937 random(11);
  const auto draw = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n)); };
  int clean = 0, races = 0, uninitialised = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    TinySchedule t(1);
    std::vector<TensorId> tensors;
    RolePlan apart, shared;
    for (int i = 0; i < 3; ++i) {
      tensors.push_back(
          t.tensor("x" + std::to_string(i), 4, 4, i == 0 ? BufferKind::parameter : BufferKind::activation));
      apart.offset_bytes.push_back(64 * i);
      shared.offset_bytes.push_back(i == 2 ? 64 + 4 * draw(20) : 64 * i);
    }
    const auto view = [&](std::int64_t rows, std::int64_t cols, int storage) {
      const bool whole = rows * cols == 16;
      return View{tensors[static_cast<std::size_t>(storage)],
                  0,
                  0,
                  whole ? 0 : draw(4 - rows + 1) * 4 + draw(4 - cols + 1),
                  rows,
                  cols,
                  4};
    };
    for (OpId i = 0; i < 5; ++i) {
      const bool full = draw(3) > 0;
      const std::int64_t rows = full ? 4 : 1 + draw(4), cols = full ? 4 : 1 + draw(4);
      const int from = static_cast<int>(draw(3)), to = static_cast<int>(draw(3));
      std::vector<Edge> waits;
      for (OpId on = 0; on < i; ++on)
        if (draw(3) > 0) waits.push_back(finish_of(on));
      const auto lane = static_cast<LaneId>(draw(3) == 0);
      if (draw(2) == 0)
        t.fill("op" + std::to_string(i), lane, view(rows, cols, to), waits);
      else
        t.map("op" + std::to_string(i), lane, view(rows, cols, from), view(rows, cols, to), waits);
    }
    for (OpId i = 0; i < 5; ++i)
      for (OpId on = 0; on < 5; ++on)
        if (draw(3) > 0) t.waits_of(i).push_back(finish_of(on, 1));
    const std::vector<BoundProgram> programs = {bind(t.schedule, 0)};
    const IssueOrder issued = find_issue_order(t.schedule, programs, Folding(t.schedule.mesh));
    const HappensBefore clocks = order_steps(t.schedule, programs, issued);
    REQUIRE(clocks.deadlock.empty());
    Footprints footprints(t.schedule, programs[0]);
    for (const bool with_plan : {false, true}) {
      const Oracle oracle(t.schedule, clocks, with_plan ? shared : apart);
      const bool has_race = oracle.has_race(), has_uninitialised = !has_race && oracle.has_uninitialised();
      RaceReport report;
      report.limit = 1000;
      find_races(t.schedule, ValueRules(t.schedule), clocks, 0, footprints, with_plan ? &shared : nullptr, report);
      // The value that a read should get is tested in meaning_test.cpp.
      std::erase_if(report.violations, [](const Violation& v) { return v.kind == Violation::Kind::wrong_value; });
      bool found_race = false;
      for (const Violation& v : report.violations) found_race = found_race || v.kind == Violation::Kind::race;
      CAPTURE(trial, with_plan);
      REQUIRE(found_race == has_race);
      if (!has_race) REQUIRE(report.violations.empty() == !has_uninitialised);
      races += has_race;
      uninitialised += has_uninitialised;
      clean += !has_race && !has_uninitialised;
    }
  }
  CHECK(clean > 50);
  CHECK(races > 500);
  CHECK(uninitialised > 200);
}
