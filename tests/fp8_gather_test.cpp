// Tests of fp8_param_gather: weights of linear layers are sent in e4m3 with their scales. They check bytes, memory, and
// how far training deviates from bf16.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "base/fp8.hpp"
#include "model/verify/dataflow.hpp"
#include "tests/ideal.hpp"
#include "tests/small_mixture.hpp"

namespace stretto::testing {
namespace {

Scenario fp8_scenario(const Layout& layout, const std::string& mode, bool in_fp8 = true, std::int64_t instances = 1) {
  Scenario scenario = layout_scenario(layout, mode, true, "bf16", 1, 12);
  if (layout.pp > 1) {
    scenario.model.untie_embeddings_and_output_weights = false;
    scenario.model.num_layers = 4;
  }
  scenario.overlap.fp8_param_gather = in_fp8;
  scenario.parallel.num_distributed_optimizer_instances = instances;
  return scenario;
}

// A layout trained step by step, whose memory can be read.
struct Run {
  explicit Run(const Scenario& of)
      : scenario(of), schedule(build_schedule(of)), plan(plan_memory(schedule)), executor(schedule, plan) {
    exec::initialise_state(schedule, scenario, memory());
  }
  exec::MemoryOf memory() {
    return [this](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
  }
  double step(std::int64_t number) {
    exec::write_batch(schedule, scenario, tiny_tokens(scenario.model.vocab_size), number, memory());
    exec::write_hyper(schedule, scenario, number, memory());
    executor.run(1, static_cast<std::uint64_t>(number));
    return exec::read_metrics(schedule, memory()).loss;
  }
  Scenario scenario;
  Schedule schedule;
  MemoryPlan plan;
  serial::SerialExecutor executor;
};

}  // namespace

TEST_CASE("fp8_param_gather: every rank computes with the masters in fp8", "[serial]") {
  Run run(fp8_scenario({4, 1}, "plain"));
  run.step(0);
  const StateBucket& bucket = run.schedule.state.buckets.front();
  const StorageId parameter = bucket.window(StatePart::parameters)->storage,
                  master = bucket.window(StatePart::master)->storage;
  // Reads the values that the second step will cast.
  std::vector<float> exact;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto shard = run.executor.memory(rank).view<float>(run.schedule, master, 0, bucket.own_elements);
    exact.insert(exact.end(), shard.begin(), shard.end());
  }
  run.step(1);
  // By then AdamW has replaced a rank's own shard: another rank still has the values that were computed with.
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const std::int64_t begin = (rank + 1) % 4 * bucket.own_elements;
    const auto used = run.executor.memory(rank).view<Bf16>(run.schedule, parameter, begin, bucket.own_elements);
    bool differs = false;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const float x = exact[static_cast<std::size_t>(begin) + i];
      float amax = 0;
      for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
        amax = std::max(amax, std::fabs(exact[static_cast<std::size_t>(begin) + j]));
      // The value is rounded to bf16 first, with an error of at most half of 2^-8 of it.
      const float bound = std::fabs(x) * (1.0f / 16 + 1.0f / 256) + amax / 448 * std::exp2(-9.0f);
      CHECK(std::fabs(to_float(used[i]) - x) <= bound);
      differs = differs || std::fabs(to_float(used[i]) - x) > std::fabs(x) / 64;
    }
    CHECK(differs);
  }
}

// Norm weights, all near 1, would become one value in fp8.
TEST_CASE("fp8_param_gather: norm weights, biases, embeddings and the head are what bf16 makes of the masters",
          "[serial]") {
  Run run(fp8_scenario({2, 1}, "plain"));
  for (std::int64_t number = 0; number < 3; ++number) run.step(number);
  // A rank's own shard was just rounded by AdamW; the other rank's shard came by the gather.
  std::map<std::string, std::size_t> different;  // [array] elements that differ from the master in bf16
  for (const StatePiece& piece : run.schedule.state.pieces) {
    const ModelArray& array = run.schedule.state.arrays[piece.array];
    const StateBucket& bucket = run.schedule.state.buckets[piece.bucket];
    const StorageId parameter = bucket.window(StatePart::parameters)->storage,
                    master = bucket.window(StatePart::master)->storage;
    std::vector<float> exact;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const auto shard = run.executor.memory(rank).view<float>(run.schedule, master, 0, bucket.own_elements);
      exact.insert(exact.end(), shard.begin(), shard.end());
    }
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const auto used = run.executor.memory(rank).view<Bf16>(run.schedule, parameter, piece.offset, array.elements());
      for (std::size_t i = 0; i < used.size(); ++i)
        different[array.name] +=
            to_float(used[i]) != to_float(to_bf16(exact[static_cast<std::size_t>(piece.offset) + i]));
    }
  }
  for (const auto& [name, count] : different) {
    INFO(name);
    const bool in_fp8 = name == "qkv.weight" || name == "proj.weight" || name == "fc1.weight" || name == "fc2.weight";
    CHECK((count > 0) == in_fp8);
  }
  CHECK(different.size() > 8);
}

TEST_CASE("fp8_param_gather: training stays near that in bf16, with any layout and mode") {
  constexpr int kSteps = 3;
  const Trained expected = train(fp8_scenario({2, 1}, "plain", false), kSteps, false);
  const Trained plain = train(fp8_scenario({2, 1}, "plain"), kSteps, false);
  for (int step = 0; step < kSteps; ++step) {
    CHECK(plain.losses[step] != expected.losses[step]);
    CHECK(plain.losses[step] == Approx(expected.losses[step]).epsilon(0.02));
  }
  // A scale's block is inside a parameter, so nothing depends on how parameters are cut into buckets and shards.
  struct Case {
    Layout layout;
    const char* mode;
    std::int64_t instances;
    bool threaded;
  };
  for (const Case& c : {Case{{2, 1}, "overlap_grad_reduce", 1, false}, Case{{2, 1}, "overlap_param_gather", 1, true},
                        Case{{4, 1}, "overlap_param_gather", 1, false}, Case{{3, 1}, "plain", 1, true},
                        Case{{4, 1}, "overlap_param_gather", 2, true}}) {
    INFO(c.layout.text() << " " << c.mode << " " << c.instances << " instances");
    const Scenario scenario = fp8_scenario(c.layout, c.mode, true, c.instances);
    const Trained trained = train(scenario, kSteps, c.threaded);
    for (int step = 0; step < kSteps; ++step) CHECK(trained.losses[step] == Approx(plain.losses[step]).epsilon(2e-3));
    CHECK(worst_relative_difference(trained.parameters, plain.parameters) < 0.02);
    const MemoryPlan plan = plan_memory(build_schedule(scenario));
    for (const std::int64_t bytes : trained.allocated_bytes) CHECK(bytes == plan.peak_bytes());
  }
}

TEST_CASE("fp8_param_gather: overlap moves operations: the same bits and data flow", "[serial]") {
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2, true}, Layout{2, 1, false, 2, 2}}) {
    INFO(layout.text());
    const Trained expected = train(fp8_scenario(layout, "plain"), 2, false);
    for (const char* mode : {"overlap_grad_reduce", "overlap_param_gather"}) {
      INFO(mode);
      const Trained trained = train(fp8_scenario(layout, mode), 2, false, 5);
      CHECK(trained.losses == expected.losses);
      CHECK(same_bits(trained.parameters, expected.parameters));
      CHECK(verify_equivalent(build_schedule(fp8_scenario(layout, "plain")), build_schedule(fp8_scenario(layout, mode)),
                              SumOrder::any) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("fp8_param_gather: 33 bytes for 32 elements on the wire, of linear layers' weights alone") {
  for (const char* mode : {"plain", "overlap_param_gather"}) {
    const Scenario scenario = fp8_scenario({4, 1}, mode);
    const Schedule schedule = build_schedule(scenario);
    std::int64_t in_fp8 = 0, in_bf16 = 0;  // gathered bytes
    for (const Operation& operation : schedule.operations) {
      const auto* c = std::get_if<Collective>(&operation.work);
      if (c == nullptr || c->kind != CollectiveKind::all_gather) continue;
      const Storage& from = schedule.storages[schedule.tensors[operation.accesses[0].view.tensor].places[0].storage];
      (from.dtype == Dtype::e4m3 ? in_fp8 : in_bf16) += c->elements * bytes_of(from.dtype);
    }
    std::int64_t linear = 0, others = 0;  // elements, without the padding of buckets and of starts to 64
    for (const Parameter& p : parameters(scenario.model)) (p.layer >= 0 && p.decayed ? linear : others) += p.elements();
    CHECK(double(in_fp8) == Approx(double(linear) * 33 / 32).epsilon(0.1));
    CHECK(double(in_bf16) == Approx(double(others) * 2).epsilon(0.3));
    CHECK(in_fp8 % 33 == 0);
  }
}

TEST_CASE("fp8_param_gather: experts that only one rank has are not gathered", "[experts]") {
  for (const std::int64_t ep : {1, 2}) {
    Scenario scenario = small_mixture({.dp = 2}, ep, Mixture::softmax, "plain", "bf16");
    scenario.overlap.fp8_param_gather = true;
    const Schedule schedule = build_schedule(scenario);
    CHECK_NOTHROW(plan_and_verify(schedule));
    const auto casts = std::count_if(schedule.operations.begin(), schedule.operations.end(),
                                     [](const Operation& one) { return one.name.starts_with("dp.cast_to_fp8"); });
    CHECK(casts == 1);  // all linear weights, or those of dense layers
  }
}

TEST_CASE("fp8_param_gather: s_k = max(t_k, g_k) and then the cast back", "[closed]") {
  Scenario scenario = fp8_scenario({4, 1}, "overlap_param_gather");
  scenario.cluster.ranks_per_device = 1;
  scenario.overlap.bucket_size = 800;
  Ideal ideal(scenario);
  const Schedule& schedule = ideal.schedule;
  for (OpId op = 0; op < schedule.operations.size(); ++op)
    if (!is_communication(schedule.operations[op].work)) ideal.set(op, 1000 + 37 * (op % 11));
  std::size_t count = 0;
  for (; schedule.find_operation("dp.cast_to_fp8.b" + std::to_string(count)); ++count)
    ideal.set("dp.all_gather.b" + std::to_string(count), 5000 + 11 * static_cast<Time>(count % 3));
  REQUIRE(count > 3);
  const sim::SimResult result = ideal.run();
  const auto row_of = [&](const std::string& name) {
    const OpId id = schedule.find_operation(name).value();
    for (const TimelineRow& row : result.timeline.rows)
      if (result.programs[0].ops[row.op].op == id) return row;
    throw std::logic_error("no row of " + name);
  };
  for (std::size_t b = 0; b < count; ++b) {
    const std::string number = ".b" + std::to_string(b);
    const TimelineRow pack = row_of("dp.cast_to_fp8" + number), gather = row_of("dp.all_gather" + number),
                      back = row_of("dp.cast_from_fp8" + number);
    CHECK(gather.start >= pack.end);
    Time reached = result.timeline.step_begin;  // time at which the compute lane reaches it
    const std::uint32_t position = result.programs[0].ops[back.op].position;
    for (const TimelineRow& row : result.timeline.rows) {
      const BoundOp& op = result.programs[0].ops[row.op];
      if (op.lane == 0 && op.position + 1 == position) reached = row.end;
    }
    CHECK(back.start == std::max(reached, gather.end));
  }
}

TEST_CASE("the reader of scenarios says what fp8_param_gather needs") {
  const auto message_of = [](const std::string& rest) {
    try {
      parse_scenario("[model]\npreset = \"gpt2-124m\"\n[overlap]\nfp8_param_gather = true\n" + rest, "test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message_of("[training]\nprecision = \"bf16\"\n").empty());
  CHECK_THAT(message_of(""), Catch::Contains("precision = bf16 as well"));
  CHECK_THAT(message_of("[parallel]\nuse_distributed_optimizer = false\n[training]\nprecision = \"bf16\"\n"),
             Catch::Contains("use_distributed_optimizer = true as well"));
}

}  // namespace stretto::testing
