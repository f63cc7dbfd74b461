// Buckets of data parallelism on an ideal machine. Schedules come from real scenarios.
//
//   overlap_grad_reduce       f_b = max(r_b, f_{b−1}) + c_b
//   overlap_param_gather      s_k = max(t_k, g_k),  g_{k+1} = s_k + a_{k+1}
//   align_grad_reduce         a chunk's buckets are reduced when its last backward unit has ended on the first stage
//   align_param_gather        a chunk's buckets are gathered when all stages are at the first unit of the previous
//   chunk
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "tests/ideal.hpp"

namespace stretto::testing {
namespace {

struct BucketRows : Rows {
  using Rows::Rows;
  const BoundOp& op(const TimelineRow& row) const { return result.programs[0].ops[row.op]; }
  // Returns the rows of the compute lane that use a storage, of phases up to `last`, in order.
  std::vector<const TimelineRow*> users(StorageId storage, AccessMode mode, Phase last) const {
    std::vector<const TimelineRow*> rows;
    for (const TimelineRow& row : result.timeline.rows) {
      const Operation& operation = schedule.operations[op(row).op];
      if (operation.lane != 0 || operation.phase > last) continue;
      for (std::size_t a = 0; a < operation.accesses.size(); ++a)
        if (operation.accesses[a].mode == mode && resolve(schedule, result.programs[0], op(row), a).storage == storage)
          rows.push_back(&row);
    }
    std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->start < b->start; });
    return rows;
  }
  StorageId storage(const std::string& tensor) const {
    return schedule.tensors[schedule.find_tensor(tensor).value()].places[0].storage;
  }
};

// Every compute operation has a different cost, and so has every bucket.
Ideal with_buckets(const std::string& mode, std::int64_t bucket_size) {
  Scenario scenario = tiny_scenario(4, mode, "fp32", 8);
  scenario.model.num_layers = 3;
  scenario.cluster.ranks_per_device = 1;
  scenario.overlap.bucket_size = bucket_size;
  Ideal ideal(scenario);
  for (OpId op = 0; op < ideal.schedule.operations.size(); ++op)
    if (!is_communication(ideal.schedule.operations[op].work)) ideal.set(op, 1000 + 37 * (op % 11));
  return ideal;
}

}  // namespace

TEST_CASE("overlap_grad_reduce: f_b = max(r_b, f_(b-1)) + c_b", "[closed]") {
  for (const Time transfer : {100, 5'000, 40'000}) {
    Ideal ideal = with_buckets("overlap_grad_reduce", 500);
    std::vector<Time> takes;
    while (ideal.schedule.find_operation("dp.reduce_scatter.b" + std::to_string(takes.size()))) {
      takes.push_back(transfer + 11 * static_cast<Time>(takes.size() % 3));
      ideal.set("dp.reduce_scatter.b" + std::to_string(takes.size() - 1), takes.back());
    }
    REQUIRE(takes.size() > 4);
    const BucketRows rows(ideal);
    Time done = 0;
    for (std::size_t b = 0; b < takes.size(); ++b) {
      const std::string number = ".b" + std::to_string(b);
      const auto gradients = rows.users(rows.storage("bucket.gradient" + number), AccessMode::accumulate, Phase::wgrad);
      REQUIRE_FALSE(gradients.empty());
      done = std::max(gradients.back()->end, done) + takes[b];
      INFO("bucket " << b << ", transfers of " << transfer);
      CHECK(rows.of("dp.reduce_scatter" + number).end == done);
    }
    // The next operation waits for the last bucket.
    CHECK(rows.of("norm.sum_squares.b" + std::to_string(takes.size() - 1)).start >= done);
  }
}

TEST_CASE("overlap_param_gather: s_k = max(t_k, g_k), g_(k+1) = s_k + a_(k+1)", "[closed]") {
  for (const Time transfer : {100, 5'000, 40'000}) {
    Ideal ideal = with_buckets("overlap_param_gather", 500);
    std::size_t count = 0;
    for (; ideal.schedule.find_operation("dp.all_gather.b" + std::to_string(count)); ++count)
      ideal.set("dp.all_gather.b" + std::to_string(count), transfer + 11 * static_cast<Time>(count % 3));
    REQUIRE(count > 4);
    const BucketRows rows(ideal);
    // Buckets are listed by first use; those with one first user are released together.
    std::map<std::pair<Time, const TimelineRow*>, std::vector<std::size_t>> first_uses;
    for (std::size_t b = 0; b < count; ++b) {
      const auto users =
          rows.users(rows.storage("bucket.parameter.b" + std::to_string(b)), AccessMode::read, Phase::forward);
      REQUIRE_FALSE(users.empty());
      first_uses[{users.front()->start, users.front()}].push_back(b);
    }
    REQUIRE(first_uses.size() > 3);
    Time gathered = 0, released = 0;
    bool is_first = true;
    for (const auto& [use, buckets] : first_uses) {
      const TimelineRow& user = *use.second;
      INFO("first used by " << rows.schedule.operations[rows.op(user).op].name << ", transfers of " << transfer);
      for (const std::size_t b : buckets) {
        const TimelineRow& gather = rows.of("dp.all_gather.b" + std::to_string(b));
        const Time takes = transfer + 11 * static_cast<Time>(b % 3);
        if (is_first)
          gathered = gather.end;  // no operation of this step precedes it
        else
          gathered = std::max(released, gathered) + takes;
        CHECK(gather.end == gathered);
        is_first = false;
      }
      // t_k: time at which the compute lane reaches the first user.
      const std::uint32_t position = rows.op(user).position;
      Time reached = rows.result.timeline.step_begin;
      for (const TimelineRow& row : rows.result.timeline.rows)
        if (rows.op(row).lane == 0 && rows.op(row).position + 1 == position) reached = row.end;
      CHECK(user.start == std::max(reached, gathered));
      released = user.start;
    }
  }
}

TEST_CASE("align_grad_reduce: all stages reduce a chunk at the same moment", "[closed]") {
  constexpr std::int64_t kChunks = 3;
  constexpr Time kBackward = 5000, kReduce = 7;
  for (const std::int64_t stages : {2, 3})
    for (const std::int64_t group : {stages, stages + 1}) {
      const std::int64_t micro_batches = 2 * group, units = micro_batches * kChunks;
      Scenario scenario = layout_scenario({2, 1, false, stages, kChunks, "", group}, "overlap_grad_reduce", false,
                                          "fp32", 1, 2 * micro_batches);
      scenario.model.num_layers = stages * kChunks;
      scenario.cluster.ranks_per_device = 1;
      scenario.overlap.bucket_size = 500;
      scenario.overlap.align_grad_reduce = true;
      Ideal ideal(scenario);
      ideal.set("fc1.dgrad", kBackward);
      for (std::size_t b = 0; ideal.schedule.find_operation("dp.reduce_scatter.b" + std::to_string(b)); ++b)
        ideal.set("dp.reduce_scatter.b" + std::to_string(b), kReduce);
      const sim::SimResult result = ideal.run();
      for (const BoundProgram& program : result.programs) {
        const std::int64_t stage = program.coordinates[Coord::pp];
        // The number of backward units from the beginning of the step until reductions start.
        std::map<std::int64_t, int> starts;
        for (const TimelineRow& row : result.timeline.rows)
          if (row.rank == program.rank &&
              ideal.schedule.operations[program.ops[row.op].op].name.starts_with("dp.reduce_scatter"))
            ++starts[(row.start - result.timeline.step_begin) / kBackward];
        INFO(stages << " stages in groups of " << group << ", stage " << stage);
        // Unit k ends on stage s after k + stages - s of them.
        CHECK(starts.size() == kChunks);
        CHECK(starts.contains(units + stages - 1 - stage));  // chunk 0: after the backward pass
        for (std::int64_t chunk = 1; chunk < kChunks; ++chunk)
          CHECK(starts.contains(units - 1 - chunk * group + stages));
      }
    }
}

TEST_CASE("align_grad_reduce without virtual stages: only the first stage reduces during its backward pass",
          "[closed]") {
  constexpr std::int64_t kStages = 3;
  Scenario scenario = layout_scenario({2, 1, false, kStages, 1, ""}, "overlap_grad_reduce", false, "fp32", 1, 4);
  scenario.model.num_layers = 3 * kStages;
  scenario.cluster.ranks_per_device = 1;
  scenario.overlap.bucket_size = 500;
  scenario.overlap.align_grad_reduce = true;
  Ideal ideal(scenario);
  ideal.set("fc1.dgrad", 5000);
  const sim::SimResult result = ideal.run();
  for (const BoundProgram& program : result.programs) {
    Time backward = 0, first = std::numeric_limits<Time>::max();
    for (const TimelineRow& row : result.timeline.rows) {
      if (row.rank != program.rank) continue;
      const std::string& name = ideal.schedule.operations[program.ops[row.op].op].name;
      if (name == "fc1.dgrad") backward = std::max(backward, row.end);
      if (name.starts_with("dp.reduce_scatter")) first = std::min(first, row.start);
    }
    CHECK((program.coordinates[Coord::pp] == 0) == (first < backward));
  }
}

TEST_CASE("align_param_gather: all stages gather a chunk at the same moment", "[closed]") {
  for (const std::int64_t stages : {2, 3})
    for (const std::int64_t group : {stages, stages + 1}) {
      constexpr std::int64_t kChunks = 4;
      constexpr Time kForward = 5000, kGather = 7;
      Scenario scenario = layout_scenario({2, 1, false, stages, kChunks, "", group}, "overlap_param_gather", false,
                                          "fp32", 1, 4 * group);
      scenario.model.num_layers = stages * kChunks;
      scenario.cluster.ranks_per_device = 1;
      scenario.overlap.bucket_size = 500;
      scenario.overlap.align_param_gather = true;
      Ideal ideal(scenario);
      ideal.set("fc1.fprop", kForward);
      std::size_t buckets = 0;
      for (; ideal.schedule.find_operation("dp.all_gather.b" + std::to_string(buckets)); ++buckets)
        ideal.set("dp.all_gather.b" + std::to_string(buckets), kGather);
      const sim::SimResult result = ideal.run();
      // Starts of gathers, by stage, as the time at which stage 0 begins the first unit of a chunk.
      std::map<std::int64_t, std::map<Time, int>> starts;
      for (const BoundProgram& program : result.programs)
        for (const TimelineRow& row : result.timeline.rows)
          if (row.rank == program.rank &&
              ideal.schedule.operations[program.ops[row.op].op].name.starts_with("dp.all_gather"))
            ++starts[program.coordinates[Coord::pp]][(row.start - result.timeline.step_begin) / kForward];
      REQUIRE(static_cast<std::int64_t>(starts.size()) == stages);
      for (const auto& [stage, at] : starts) {
        INFO(stages << " stages in groups of " << group << ", stage " << stage);
        // At the beginning the buckets of two chunks are gathered, then one chunk after the other.
        CHECK(at.size() == kChunks - 1);
        for (std::int64_t chunk = 1; chunk + 1 < kChunks; ++chunk) CHECK(at.contains(chunk * group));
      }
    }
}

}  // namespace stretto::testing
