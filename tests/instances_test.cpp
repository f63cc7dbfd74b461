// Tests of several instances of the distributed optimizer, including HSDP: the numerics of one rank, shards,
// checkpoints, and the all-reduce across instances overlapped with other communication, on an ideal machine.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/ideal.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

struct Hybrid {
  Layout layout;
  std::int64_t instances = 2;
  Sharding sharding = Sharding::optim;
  std::string text() const {
    return layout.text() + ", " + std::to_string(instances) + " instances, " + name_of(sharding);
  }
};

Scenario hybrid_scenario(const Hybrid& hybrid, const std::string& mode, const std::string& precision = "fp64",
                         std::int64_t global_batch = 12) {
  const bool has_stages = hybrid.layout.pp > 1;
  Scenario scenario = layout_scenario(hybrid.layout, mode, true, precision, 1, has_stages ? 16 : global_batch);
  if (has_stages) {
    scenario.model.untie_embeddings_and_output_weights = false;
    scenario.model.num_layers = 4;
  }
  scenario.parallel.num_distributed_optimizer_instances = hybrid.instances;
  scenario.parallel.data_parallel_sharding_strategy = hybrid.sharding;
  scenario.overlap.cp_comm_overlap = scenario.parallel.has_cp_ring();
  return scenario;
}

std::vector<Hybrid> cases() {
  std::vector<Hybrid> cases;
  for (const Sharding sharding : {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const Layout& layout : {Layout{4, 1}, Layout{4, 2, true}, Layout{.dp = 2, .cp = 2}})
      cases.push_back({layout, 2, sharding});
    cases.push_back({{6, 1}, 3, sharding});
    cases.push_back({{6, 1}, 2, sharding});
  }
  for (const Layout& layout : {Layout{4, 1, false, 2}, Layout{4, 1, false, 2, 2}})
    for (const Sharding sharding : {Sharding::optim, Sharding::optim_grads_params})
      cases.push_back({layout, 2, sharding});
  return cases;
}

std::vector<const char*> modes_of(const Hybrid& hybrid) {
  if (hybrid.sharding == Sharding::optim) return {"plain", "overlap_grad_reduce", "overlap_param_gather"};
  return {"plain", "fsdp_comm_overlap"};
}

void check_numerics(bool threaded) {
  SingleRank single(3);
  Cases some(threaded ? kThreadedStride : 1);
  for (const Hybrid& hybrid : cases())
    for (const char* mode : modes_of(hybrid)) {
      if (!some.takes_next()) continue;
      INFO(hybrid.text() << ", " << mode);
      single.check(hybrid_scenario(hybrid, mode), threaded);
    }
}

}  // namespace

TEST_CASE("instances of the optimizer equal the single rank, serially", "[serial]") { check_numerics(false); }
TEST_CASE("instances of the optimizer equal the single rank, on threads") { check_numerics(true); }

TEST_CASE("with instances overlap moves operations: the same bits and data flow", "[serial]") {
  Cases some;
  for (const Hybrid& hybrid : cases())
    for (const bool in_fp32 : {true, false}) {
      if (!some.takes_next()) continue;
      const std::vector<const char*> modes = modes_of(hybrid);
      const auto of = [&](const char* mode) {
        Scenario scenario = hybrid_scenario(hybrid, mode, "bf16", 12);
        scenario.overlap.grad_reduce_in_fp32 = in_fp32;
        return scenario;
      };
      INFO(hybrid.text() << (in_fp32 ? " fp32" : " bf16"));
      const Trained expected = train(of("plain"), 2, false);
      for (std::size_t m = 1; m < modes.size(); ++m) {
        INFO(modes[m]);
        const Trained trained = train(of(modes[m]), 2, false, 3);
        CHECK(trained.losses == expected.losses);
        CHECK(same_bits(trained.gradients, expected.gradients));
        CHECK(same_bits(trained.parameters, expected.parameters));
        CHECK(verify_equivalent(build_schedule(of("plain")), build_schedule(of(modes[m])), SumOrder::any) ==
              std::vector<std::string>{});
      }
    }
}

TEST_CASE("an instance has all of the optimizer's state, a rank a shard of it, and gathers go inside it") {
  for (const std::int64_t instances : {1, 2, 4}) {
    const Schedule schedule = build_schedule(hybrid_scenario({{8, 1}, instances}, "plain", "bf16", 8));
    std::int64_t state = 0, parameters = 0;
    for (const Storage& storage : schedule.storages) {
      if (storage.name.starts_with("adam.m")) state += storage.elements;
      if (storage.kind == BufferKind::parameter) parameters += storage.elements;
    }
    CHECK(state == parameters * instances / 8);
    for (const Operation& operation : schedule.operations) {
      const auto* collective = std::get_if<Collective>(&operation.work);
      if (collective == nullptr || operation.phase == Phase::optimizer) continue;
      INFO(operation.name);
      const std::int64_t size = schedule.communicators[collective->communicator].size;
      if (operation.name.starts_with("dp.all_reduce_instances")) {
        CHECK(size == instances);
        CHECK(collective->elements == parameters * instances / 8);
      } else {
        CHECK(size == 8 / instances);
        CHECK(collective->elements == parameters);
      }
    }
    CHECK(schedule.find_operation("dp.all_reduce_instances.b0").has_value() == (instances > 1));
  }
}

TEST_CASE("state goes from some instances to others and back, bit for bit") {
  for (const Sharding sharding : {Sharding::optim, Sharding::optim_grads_params}) {
    const auto state_of = [](const Schedule& schedule, serial::SerialExecutor& executor) {
      const exec::MemoryOf memory = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
      std::vector<exec::FullTensor> all;
      for (const StatePart part : {StatePart::parameters, StatePart::adam_m, StatePart::adam_v, StatePart::master})
        for (exec::FullTensor& tensor : exec::gather_state(schedule, memory, part)) all.push_back(std::move(tensor));
      return all;
    };
    const Scenario from = hybrid_scenario({{4, 1}, 2, sharding}, "plain", "bf16", 8);
    const Schedule schedule = build_schedule(from);
    const MemoryPlan plan = plan_memory(schedule);
    serial::SerialExecutor executor(schedule, plan);
    const exec::MemoryOf memory = [&](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
    exec::initialise_state(schedule, from, memory);
    exec::write_batch(schedule, from, tiny_tokens(from.model.vocab_size), 0, memory);
    exec::write_hyper(schedule, from, 0, memory);
    executor.run(1, 1);
    const std::vector<exec::FullTensor> before = state_of(schedule, executor);
    for (const std::int64_t instances : {1, 2}) {
      const Schedule other = build_schedule(hybrid_scenario({{6, 1}, instances}, "plain", "bf16", 12));
      const MemoryPlan other_plan = plan_memory(other);
      serial::SerialExecutor into(other, other_plan);
      const exec::MemoryOf others = [&](std::int64_t rank) -> host::RankMemory& { return into.memory(rank); };
      exec::clear_state(other, others);
      std::size_t next = 0;
      for (const StatePart part : {StatePart::parameters, StatePart::adam_m, StatePart::adam_v, StatePart::master}) {
        const std::size_t count = exec::gather_state(schedule, memory, part).size();
        exec::scatter_state(other, others, part, [&](const std::string& name) -> const exec::FullTensor& {
          return *std::find_if(before.begin() + static_cast<std::ptrdiff_t>(next),
                               before.begin() + static_cast<std::ptrdiff_t>(next + count),
                               [&](const auto& tensor) { return tensor.name == name; });
        });
        next += count;
      }
      CHECK(same_bits(state_of(other, into), before));
    }
  }
}

namespace {

Ideal ideal_of(Sharding sharding, const char* mode, Time scatter, Time across, std::int64_t global_batch = 4) {
  Scenario scenario = hybrid_scenario({{4, 1}, 2, sharding}, mode, "fp32", global_batch);
  scenario.model.num_layers = 5;
  scenario.cluster.ranks_per_device = 1;
  scenario.overlap.bucket_size = 1500;
  Ideal ideal(scenario);
  for (OpId op = 0; op < ideal.schedule.operations.size(); ++op) {
    const Operation& operation = ideal.schedule.operations[op];
    if (!is_communication(operation.work))
      ideal.set(op, 1000 + 37 * (op % 11));
    else if (operation.name.starts_with("dp.reduce_scatter"))
      ideal.set(op, scatter + 13 * (op % 5));
    else if (operation.name.starts_with("dp.all_reduce") && operation.phase == Phase::grad_sync)
      ideal.set(op, across + 17 * (op % 5));
  }
  return ideal;
}

}  // namespace

TEST_CASE("across instances: g_b = max(f_b, g_(b-1)) + a_b, concurrent with the next reduce-scatter", "[closed]") {
  for (const Time scatter : {100, 4'000, 30'000})
    for (const Time across : {100, 4'000, 30'000}) {
      INFO("reduce-scatters of " << scatter << ", all-reduces of " << across);
      const Ideal ideal = ideal_of(Sharding::optim, "overlap_grad_reduce", scatter, across);
      const Rows rows(ideal);
      const auto takes = [&](const std::string& name) {
        return ideal.costs.collective[rows.schedule.find_operation(name).value()].latency;
      };
      Time scattered = 0, reduced = 0;
      std::size_t b = 0;
      for (; rows.schedule.find_operation("dp.reduce_scatter.b" + std::to_string(b)); ++b) {
        const std::string number = ".b" + std::to_string(b);
        const TimelineRow &inside = rows.of("dp.reduce_scatter" + number),
                          &between = rows.of("dp.all_reduce_instances" + number);
        CHECK(inside.end - takes("dp.reduce_scatter" + number) >= scattered);
        scattered = inside.end;
        reduced = std::max(scattered, reduced) + takes("dp.all_reduce_instances" + number);
        CHECK(between.end == reduced);
      }
      REQUIRE(b > 4);
      // The next reduce-scatter does not wait for it.
      if (scatter == 30'000 && across == 30'000)
        CHECK(rows.of("dp.reduce_scatter.b2").start < rows.of("dp.all_reduce_instances.b1").end);
      CHECK(rows.of("norm.sum_squares.b" + std::to_string(b - 1)).start >= reduced);
    }
}

TEST_CASE("HSDP: f_l = max(r_l, f_(l+1)) + c, g_l = max(f_l, g_(l+1)) + a", "[closed]") {
  for (const Time scatter : {100, 15'000})
    for (const Time across : {100, 60'000}) {
      INFO("reduce-scatters of " << scatter << ", all-reduces of " << across);
      const Ideal ideal = ideal_of(Sharding::optim_grads_params, "fsdp_comm_overlap", scatter, across);
      const Rows rows(ideal);
      const auto takes = [&](const std::string& name) {
        return ideal.costs.collective[rows.schedule.find_operation(name).value()].latency;
      };
      Time done = std::max(rows.of("dp.all_reduce.head").end, rows.of("dp.all_reduce.final_norm").end);
      Time scattered = std::max(rows.of("dp.reduce_scatter.head").end, rows.of("dp.reduce_scatter.final_norm").end);
      for (std::int64_t layer = 5; layer-- > 0;) {
        scattered = std::max(rows.of("ln_1.wgrad", layer).end, scattered) + takes("dp.reduce_scatter.layer");
        CHECK(rows.of("dp.reduce_scatter.layer", layer).end == scattered);
        done = std::max(scattered, done) + takes("dp.all_reduce.layer");
        CHECK(rows.of("dp.all_reduce.layer", layer).end == done);
        CHECK(rows.of("dp.add.layer", layer).start >= done);
      }
    }
}

TEST_CASE("ranks of all instances fold: one costs what all cost") {
  for (const auto& [sharding, mode] : {std::pair{Sharding::optim, "overlap_param_gather"},
                                       std::pair{Sharding::optim_grads_params, "fsdp_comm_overlap"}}) {
    const Ideal folded = ideal_of(sharding, mode, 7000, 9000, 8);
    Ideal unfolded = ideal_of(sharding, mode, 7000, 9000, 8);
    for (const Coord axis : {Coord::dp, Coord::dp_instance}) {
      View view;
      view.slot = Expr(axis) * Expr(3);
      unfolded.schedule.operations.front().accesses.push_back({AccessMode::read, view});
    }
    const sim::SimResult one = folded.run(), all = unfolded.run();
    CHECK(one.programs.size() == 1);
    CHECK(all.programs.size() == 4);
    CHECK(one.step == all.step);
  }
}

TEST_CASE("the reader of scenarios says what instances need") {
  const auto message_of = [](const std::string& parallel) {
    try {
      parse_scenario(
          "[model]\npreset = \"gpt2-124m\"\n[parallel]\n" + parallel + "[training]\nglobal_batch_size = 24\n", "test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string two = "num_distributed_optimizer_instances = 2\n";
  CHECK(message_of("data_parallel_size = 4\n" + two).empty());
  CHECK_THAT(message_of("data_parallel_size = 4\nuse_distributed_optimizer = false\n" + two),
             Catch::Contains("use_distributed_optimizer = true"));
  CHECK_THAT(message_of("data_parallel_size = 3\n" + two), Catch::Contains("divisor of data_parallel_size 3"));
  CHECK_THAT(message_of("data_parallel_size = 2\n" + two), Catch::Contains("at least 2 ranks in each instance"));
}

}  // namespace stretto::testing
