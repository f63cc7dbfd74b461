// Tests of ZeRO-2 and ZeRO-3: the numerics of one rank, memory, checkpoints, and the overlap on an ideal machine.
#include <algorithm>
#include <catch2/catch.hpp>

#include "model/verify/dataflow.hpp"
#include "tests/ideal.hpp"
#include "tests/message_of.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing {
namespace {

constexpr const char* kMode = "fsdp_comm_overlap";
constexpr std::int64_t kLayers = 6;

struct Sharded {
  Layout layout;
  Sharding sharding = Sharding::optim_grads_params;
  std::int64_t depth = 1;
  bool reshards = true;
  std::int64_t cp = 1;
  std::string text() const {
    return layout.text() + " " + name_of(sharding) + " depth " + std::to_string(depth) + (reshards ? "" : " kept") +
           " cp " + std::to_string(cp);
  }
};

Scenario sharded_scenario(const Sharded& sharded, const std::string& mode, bool llama = false,
                          const std::string& precision = "fp64", std::int64_t global_batch = 12) {
  Scenario scenario = layout_scenario(sharded.layout, mode, llama, precision, 1, global_batch);
  scenario.model.num_layers = kLayers;
  scenario.model.seq_length = 8;
  scenario.parallel.data_parallel_sharding_strategy = sharded.sharding;
  scenario.parallel.reshard_after_forward = sharded.reshards;
  scenario.parallel.context_parallel_size = sharded.cp;
  scenario.overlap.cp_comm_overlap = scenario.parallel.has_cp_ring();
  scenario.overlap.fsdp_prefetch_depth = sharded.depth;
  return scenario;
}

std::vector<Sharded> cases_of_numerics() {
  std::vector<Sharded> cases;
  for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const std::int64_t depth : {0, 1, 2, 7}) cases.push_back({{2, 1}, sharding, depth});
    for (const Layout& layout : {Layout{3, 1}, Layout{2, 2}, Layout{2, 2, true}})
      cases.push_back({layout, sharding, layout.dp == 3 ? 3 : 1});
    cases.push_back({{1, 1}, sharding, 1, true, 2});
    cases.push_back({{2, 1}, sharding, 2, true, 2});
  }
  const Sharding all = Sharding::optim_grads_params;
  for (const std::int64_t depth : {0, 1, 2}) cases.push_back({{2, 1}, all, depth, false});
  // Cases with stages: uneven ones, interleaved ones, and separate weight gradients.
  for (const bool is : {true, false}) {
    cases.push_back({{2, 1, false, 2}, all, 1, is});
    cases.push_back({{.dp = 2, .pp = 3, .split = "Ett|t|tttL"}, is ? Sharding::optim_grads : all, 1, is});
    cases.push_back({{.dp = 2, .tp = 2, .sequence_parallel = true, .pp = 2}, all, 2, is});
    cases.push_back({{.dp = 2, .pp = 2, .vp = 3, .group = 3}, all, 1, is});
    cases.push_back({{.dp = 1, .pp = 2}, all, 0, is, 2});
  }
  cases.push_back({{.dp = 2, .pp = 2, .schedule = PipelineSchedule::zb_h1}, all, 1, false});
  cases.push_back(
      {{.dp = 2, .pp = 2, .vp = 2, .split = "Ett|t|t|ttL", .schedule = PipelineSchedule::zb_v}, all, 1, false});
  return cases;
}

void check_numerics(bool threaded, bool llama) {
  SingleRank single(3);
  Cases cases(threaded ? kThreadedStride : 1);
  for (const Sharded& sharded : cases_of_numerics())
    for (const char* mode : {"plain", kMode}) {
      if (!cases.takes_next()) continue;
      INFO(sharded.text() << ", " << mode << (llama ? ", llama" : ", gpt"));
      single.check(sharded_scenario(sharded, mode, llama), threaded);
    }
}

}  // namespace

TEST_CASE("ZeRO-2 and ZeRO-3 equal the single rank, serially, GPT", "[serial]") { check_numerics(false, false); }
TEST_CASE("ZeRO-2 and ZeRO-3 equal the single rank, serially, Llama", "[serial]") { check_numerics(false, true); }
TEST_CASE("ZeRO-2 and ZeRO-3 equal the single rank, on threads") { check_numerics(true, false); }

TEST_CASE("fsdp_comm_overlap moves operations: the same bits and data flow", "[serial]") {
  Cases cases;
  for (const Sharded& sharded : cases_of_numerics())
    for (const bool in_fp32 : {true, false}) {
      if (!cases.takes_next()) continue;
      Scenario plain = sharded_scenario(sharded, "plain", true, "bf16", 6),
               overlapped = sharded_scenario(sharded, kMode, true, "bf16", 6);
      plain.overlap.grad_reduce_in_fp32 = overlapped.overlap.grad_reduce_in_fp32 = in_fp32;
      INFO(sharded.text() << (in_fp32 ? " fp32" : " bf16"));
      const Trained expected = train(plain, 2, false);
      for (const std::uint64_t seed : {1, 2}) {
        const Trained trained = train(overlapped, 2, false, seed);
        CHECK(trained.losses == expected.losses);
        CHECK(same_bits(trained.gradients, expected.gradients));
        CHECK(same_bits(trained.parameters, expected.parameters));
      }
      CHECK(verify_equivalent(build_schedule(plain), build_schedule(overlapped), SumOrder::same) ==
            std::vector<std::string>{});
    }
}

TEST_CASE("with stages, what is kept whole is communicated once a step", "[closed]") {
  // All stages have equal costs: head, embedding and all operations outside layers cost nothing. Without overlap a
  // gather is part of the pass that needs it.
  constexpr Time kForward = 5'000, kBackward = 11'000, kGather = 700, kScatter = 900;
  constexpr std::int64_t kOfStage = 3;
  for (const std::int64_t micro_batches : {1, 3, 6})
    for (const bool reshards : {true, false}) {
      const Sharded sharded{{.dp = 2, .pp = 2}, Sharding::optim_grads_params, 0, reshards};
      Scenario scenario = sharded_scenario(sharded, "plain", true, "fp32", 2 * micro_batches);
      scenario.cluster.ranks_per_device = 1;
      Ideal ideal(scenario);
      const auto cost = [&](const char* name, Time time) {
        ideal.set(ideal.schedule.find_operation(name).value(), time);
      };
      cost("qkv.fprop", kForward);
      cost("qkv.dgrad", kBackward);
      for (const char* gather : {"dp.all_gather.layer", "dp.all_gather_backward.layer"})
        if (ideal.schedule.find_operation(gather)) cost(gather, kGather);
      cost("dp.reduce_scatter.layer", kScatter);
      const std::int64_t stages = 2, passes = micro_batches + stages - 1;
      const Time gathers = reshards ? passes * 2 * kOfStage * kGather : stages * kOfStage * kGather,
                 scatters = (reshards ? passes : 1) * kOfStage * kScatter;
      INFO(sharded.text() << ", " << micro_batches << " micro-batches");
      CHECK(ideal.run().step == passes * kOfStage * (kForward + kBackward) + gathers + scatters);
    }
}

TEST_CASE("with stages, what is kept whole takes memory of all layers of a stage") {
  const auto count = [](const Schedule& schedule, const char* prefix) {
    return std::count_if(schedule.storages.begin(), schedule.storages.end(),
                         [&](const Storage& storage) { return storage.name.starts_with(prefix); });
  };
  for (const bool is : {true, false}) {
    const Sharded sharded{{.dp = 2, .pp = 2}, Sharding::optim_grads_params, 1, is};
    const Scenario scenario = sharded_scenario(sharded, kMode, true, "bf16", 8);
    const Schedule schedule = build_schedule(scenario);
    CHECK(count(schedule, "unit.parameter.layer.") == (is ? 2 : 6));
    CHECK(count(schedule, "unit.gradient.layer.") == (is ? 2 : 6));
    const MemoryPlan plan = plan_memory(schedule);
    const Trained trained = train(scenario, 1, true);
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank)
      CHECK(trained.allocated_bytes[std::size_t(rank)] ==
            plan.roles[schedule.role_of(schedule.mesh.coordinates_of(rank))].bytes);
  }
}

TEST_CASE("ZeRO-3 with recomputation, dropout, fusions and a frozen base", "[serial]") {
  SingleRank single;
  Cases cases;
  for (const bool frozen : {false, true})
    for (const std::int64_t group : {0, 1, 2, 3})
      for (const char* mode : {"plain", kMode}) {
        if (!cases.takes_next()) continue;
        Scenario scenario = sharded_scenario({{2, 1}, Sharding::optim_grads_params, 2}, mode, false, "fp64", 4);
        Training& training = scenario.training;
        training.frozen_base = frozen;
        training.gelu_fusion = training.bias_gradient_fusion = training.norm_gradient_fusion = true;
        training.recompute.granularity = group > 0 ? Recompute::Granularity::full : Recompute::Granularity::selective;
        training.recompute.num_layers = std::max<std::int64_t>(group, 1);
        scenario.model.hidden_dropout = 0.25;
        INFO(mode << ", groups of " << group << (frozen ? ", frozen" : ""));
        single.check(scenario);
      }
}

TEST_CASE("ZeRO-3 keeps a shard of every parameter, and depth + 1 layers") {
  for (const std::int64_t depth : {0, 1, 3, 9})
    for (const char* precision : {"fp32", "bf16"}) {
      const Scenario scenario = sharded_scenario({{4, 1}, Sharding::optim_grads_params, depth}, kMode, true, precision);
      const Schedule schedule = build_schedule(scenario);
      const MemoryPlan plan = plan_memory(schedule);
      std::int64_t shards = 0, wholes = 0, gradients = 0, layer = 0, layer_shard = 0, expected = 0;
      for (const Storage& storage : schedule.storages) {
        if (storage.kind == BufferKind::parameter) shards += storage.elements;
        if (storage.name.starts_with("unit.parameter.layer.")) ++wholes, layer = storage.elements;
        if (storage.name.starts_with("unit.gradient.layer.")) ++gradients;
        if (storage.name == "shard.parameter.layer.l0") layer_shard = storage.elements;
        // No storage is as large as all parameters.
        if (storage.kind == BufferKind::parameter) CHECK(storage.elements * 4 <= parameter_count(scenario.model));
      }
      expected = parameter_count(scenario.model) / 4;
      INFO("depth " << depth << " " << precision);
      CHECK(wholes == std::min(depth + 1, kLayers));
      CHECK(gradients == 2);
      CHECK(layer == 4 * layer_shard);
      CHECK(shards >= expected);
      CHECK(shards <= expected + (kLayers + 3) * (16 * 64 + 128) / 4);  // the sum allows for padding
      const Trained trained = train(scenario, 1, true);
      for (const std::int64_t bytes : trained.allocated_bytes) CHECK(bytes == plan.peak_bytes());
    }
  // Two depths differ by one layer's parameters.
  const auto peak = [](std::int64_t depth, Sharding sharding) {
    Scenario scenario = sharded_scenario({{4, 1}, sharding, depth}, kMode, true, "fp32");
    scenario.model.num_layers = 12;
    scenario.model.seq_length = 4;
    return plan_memory(build_schedule(scenario)).peak_bytes();
  };
  CHECK(peak(1, Sharding::optim_grads_params) < peak(1, Sharding::optim_grads));
  CHECK(peak(1, Sharding::optim_grads) < peak(1, Sharding::optim));
  CHECK(peak(1, Sharding::optim_grads_params) <= peak(2, Sharding::optim_grads_params));
}

TEST_CASE("state goes from one sharding to another and back, bit for bit") {
  const auto state_of = [](const Schedule& schedule, const exec::MemoryOf& memory) {
    std::vector<exec::FullTensor> all;
    for (const StatePart part : {StatePart::parameters, StatePart::adam_m, StatePart::adam_v})
      for (exec::FullTensor& tensor : exec::gather_state(schedule, memory, part)) all.push_back(std::move(tensor));
    return all;
  };
  struct Run {
    explicit Run(const Scenario& scenario)
        : scenario(scenario),
          schedule(build_schedule(scenario)),
          plan(plan_memory(schedule)),
          executor(schedule, plan) {}
    exec::MemoryOf memory() {
      return [this](std::int64_t rank) -> host::RankMemory& { return executor.memory(rank); };
    }
    void step(std::int64_t number) {
      const exec::TokenSource tokens = tiny_tokens(scenario.model.vocab_size);
      exec::write_batch(schedule, scenario, tokens, number, memory());
      exec::write_hyper(schedule, scenario, number, memory());
      executor.run(1, 1);
    }
    Scenario scenario;
    Schedule schedule;
    MemoryPlan plan;
    serial::SerialExecutor executor;
  };
  const Sharded first{{2, 1}, Sharding::optim_grads_params, 2};
  for (const Sharded& other :
       {Sharded{{1, 1}, Sharding::optim}, Sharded{{3, 1}, Sharding::optim_grads, 1},
        Sharded{{2, 2, true}, Sharding::optim_grads_params, 0}, Sharded{{2, 1}, Sharding::optim}})
    for (const char* precision : {"fp32", "bf16"}) {
      INFO(other.text() << " " << precision);
      Run a(sharded_scenario(first, kMode, true, precision));
      Run b(sharded_scenario(other, "plain", true, precision));
      exec::initialise_state(a.schedule, a.scenario, a.memory());
      a.step(0);
      exec::clear_state(b.schedule, b.memory());
      const auto carry = [&](Run& from, Run& to) {
        const std::vector<exec::FullTensor> state = state_of(from.schedule, from.memory());
        for (const StatePart part : {StatePart::parameters, StatePart::adam_m, StatePart::adam_v})
          exec::scatter_state(to.schedule, to.memory(), part, [&](const std::string& name) -> const exec::FullTensor& {
            return *std::find_if(state.begin(), state.end(), [&](const auto& tensor) { return tensor.name == name; });
          });
        return state;
      };
      const std::vector<exec::FullTensor> before = carry(a, b);
      CHECK(same_bits(state_of(b.schedule, b.memory()), before));
      // An interrupted run continues as if it had not been interrupted.
      Run again(sharded_scenario(first, kMode, true, precision));
      exec::clear_state(again.schedule, again.memory());
      carry(b, again);
      a.step(1);
      again.step(1);
      CHECK(same_bits(state_of(again.schedule, again.memory()), state_of(a.schedule, a.memory())));
    }
}

namespace {

// Every compute operation has a different cost.
Ideal ideal_of(std::int64_t depth, Time gather, Time reduction, std::int64_t micro_batches = 1,
               Sharding sharding = Sharding::optim_grads_params) {
  Scenario scenario = sharded_scenario({{4, 1}, sharding, depth}, kMode, true, "fp32", 4 * micro_batches);
  scenario.cluster.ranks_per_device = 1;
  Ideal ideal(scenario);
  for (OpId op = 0; op < ideal.schedule.operations.size(); ++op) {
    const Operation& operation = ideal.schedule.operations[op];
    if (!is_communication(operation.work))
      ideal.set(op, 1000 + 37 * (op % 11));
    else if (operation.name.starts_with("dp.all_gather"))
      ideal.set(op, gather + 13 * (op % 5));
    else if (operation.name.starts_with("dp.reduce_scatter"))
      ideal.set(op, reduction + 17 * (op % 5));
  }
  return ideal;
}

struct BlockRows : Rows {
  using Rows::Rows;
  // Returns the first and last operation of a block.
  std::pair<std::string, std::string> ends(const std::string& block) const {
    for (const Block& b : schedule.blocks)
      if (b.name == block) return {schedule.operations[b.ops.front()].name, schedule.operations[b.ops.back()].name};
    throw std::logic_error("no block " + block);
  }
};

}  // namespace

TEST_CASE("fsdp_comm_overlap: s_i = max(f_(i-1), g_i), g_i = max(s_(i-depth), g_(i-1)) + a_i", "[closed]") {
  for (const std::int64_t depth : {0, 1, 2, 4})
    for (const Time transfer : {100, 20'000, 90'000}) {
      INFO("depth " << depth << ", gathers of " << transfer);
      const Ideal ideal = ideal_of(depth, transfer, 300);
      const BlockRows rows(ideal);
      struct Use {
        std::string block;
        std::int64_t layer;
        std::vector<std::string> gathers;
      };
      std::vector<Use> uses = {{"embedding.forward", 0, {"embedding"}}};
      for (std::int64_t layer = 0; layer < kLayers; ++layer) uses.push_back({"layer.forward", layer, {"layer"}});
      uses.push_back({"head.forward", 0, {"head", "final_norm"}});
      const auto time_of = [&](const std::string& name) {
        return ideal.costs.collective[rows.schedule.find_operation(name).value()].latency;
      };
      std::vector<Time> starts;
      Time finished = 0, gathered = 0;
      for (std::size_t i = 0; i < uses.size(); ++i) {
        const auto [first, last] = rows.ends(uses[i].block);
        Time takes = 0;
        for (const std::string& unit : uses[i].gathers) takes += time_of("dp.all_gather." + unit);
        const auto d = static_cast<std::size_t>(depth);
        if (i == 0)
          gathered = rows.of("dp.all_gather.embedding").end;  // after AdamW of the previous step
        else if (depth == 0)
          gathered = finished + takes;
        else
          gathered = std::max(i < d ? Time{0} : starts[i - d], gathered) + takes;
        const Time before = i == 0 ? rows.of(rows.ends("zero").second).end : finished;
        starts.push_back(std::max(before, gathered));
        INFO("use " << i << ", " << first);
        CHECK(rows.of(first, uses[i].layer).start == starts.back());
        Time length = 0;
        for (const Block& block : rows.schedule.blocks)
          if (block.name == uses[i].block)
            for (const OpId op : block.ops) length += ideal.costs.compute[op].alone;
        finished = starts.back() + length;
        CHECK(rows.of(last, uses[i].layer).end == finished);
      }
    }
}

TEST_CASE("fsdp_comm_overlap: f_l = max(r_l, f_(l+1)) + c, and the gradient two layers before waits for it",
          "[closed]") {
  for (const Time transfer : {100, 15'000, 60'000}) {
    INFO("transfers of " << transfer);
    const Ideal ideal = ideal_of(1, 100, transfer);
    const BlockRows rows(ideal);
    const std::string name = "dp.reduce_scatter.layer", last = rows.ends("layer.backward").second;
    const Time takes = ideal.costs.collective[rows.schedule.find_operation(name).value()].latency;
    Time done = std::max(rows.of("dp.reduce_scatter.head").end, rows.of("dp.reduce_scatter.final_norm").end);
    std::vector<Time> ends(kLayers);
    for (std::int64_t layer = kLayers; layer-- > 0;) {
      const auto l = static_cast<std::size_t>(layer);
      if (layer + 2 < kLayers) {
        const TimelineRow& before = rows.of(last, layer + 1);
        const TimelineRow& add = rows.of("dp.add.layer", layer + 2);
        CHECK(add.start == std::max(before.end, ends[l + 2]));
        CHECK(rows.of("gradients.zero.layer", layer).start == add.end);
      }
      done = std::max(rows.of("ln_1.wgrad", layer).end, done) + takes;
      CHECK(rows.of(name, layer).end == done);
      ends[l] = done;
    }
    CHECK(rows.of("norm.sum_squares").start >= rows.of("dp.reduce_scatter.embedding").end);
  }
}

TEST_CASE("sharded replicas fold: one rank costs what all cost") {
  for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params})
    for (const std::int64_t depth : {0, 1, 2}) {
      const Ideal folded = ideal_of(depth, 7000, 9000, 2, sharding);
      Ideal unfolded = ideal_of(depth, 7000, 9000, 2, sharding);
      View view;
      view.slot = Expr(Coord::dp) * Expr(3);
      unfolded.schedule.operations.front().accesses.push_back({AccessMode::read, view});
      const sim::SimResult one = folded.run(), all = unfolded.run();
      CHECK(one.programs.size() == 1);
      CHECK(all.programs.size() == 4);
      CHECK(one.step == all.step);
    }
}

TEST_CASE("the verifier sees parameters of another layer, and those of the step before") {
  Schedule schedule = build_schedule(sharded_scenario({{2, 1}, Sharding::optim_grads_params, 0}, "plain", true));
  std::vector<Call>& order = schedule.programs.front().order;
  const auto call_of = [&](const char* name, std::int64_t layer) {
    const OpId op = schedule.find_operation(name).value();
    return std::find_if(order.begin(), order.end(), [&](const Call& call) {
      return schedule.blocks[call.block].ops.front() == op && call.layer == layer;
    });
  };
  CHECK(verify(schedule).empty());
  const std::vector<Call> before = order;
  order.erase(call_of("dp.all_gather.layer", 2));
  REQUIRE_FALSE(verify(schedule).empty());
  CHECK_THAT(verify(schedule).front().message, Catch::Contains("unit.parameter.layer of layer 1 of micro-batch 0"));
  // An update that comes before the last backward pass has gathered must be rejected.
  order = before;
  const Call update = *call_of("adamw.layer", 0);
  order.erase(call_of("adamw.layer", 0));
  const auto early = std::find_if(order.rbegin(), order.rend(), [&](const Call& call) {
    return schedule.blocks[call.block].ops.front() == schedule.find_operation("dp.all_gather_backward.layer").value();
  });
  order.insert(early.base() - 1, update);
  REQUIRE_FALSE(verify(schedule).empty());
}

TEST_CASE("gates of sharding say what would open them") {
  const auto notes = [](const Sharded& sharded, const char* mode) {
    const Schedule schedule = build_schedule(sharded_scenario(sharded, mode));
    std::string all;
    for (const std::string& note : schedule.notes) all += note + "\n";
    return all;
  };
  CHECK_THAT(notes({{1, 1}}, "plain"), Catch::Contains("is off: data_parallel_size x context_parallel_size is 1"));
  CHECK_THAT(notes({{2, 1}, Sharding::optim}, kMode), Catch::Contains("fsdp_comm_overlap is off"));
  CHECK_THAT(notes({{2, 1}}, "overlap_grad_reduce"), Catch::Contains("fsdp_comm_overlap overlaps"));
  CHECK_THAT(notes({{2, 1}, Sharding::optim_grads_params, 2}, "plain"), Catch::Contains("fsdp_prefetch_depth is off"));
}

TEST_CASE("weight gradients that come apart need whole ones that are kept") {
  const auto parse = [](const std::string& keys) {
    return parse_scenario("[model]\npreset = \"gpt2-124m\"\n[parallel]\ndata_parallel_size = 2\n" + keys +
                              "pipeline_model_parallel_size = 2\npipeline_schedule = \"zb-h1\"\n" +
                              "[training]\nglobal_batch_size = 8\n",
                          "sharded");
  };
  const std::string all = "data_parallel_sharding_strategy = \"optim_grads_params\"\n";
  for (const std::string& keys : {all, std::string("data_parallel_sharding_strategy = \"optim_grads\"\n")})
    CHECK_THAT(message_of([&] { parse(keys); }),
               Catch::Contains("pipeline_schedule") && Catch::Contains("reshard_after_forward = false"));
  CHECK(parse(all + "reshard_after_forward = false\n").parallel.shards_parameters());
}

TEST_CASE("torchtitan keeps parameters where there are stages, and gives them back where there are none") {
  for (const std::string profile : {"torchtitan", "torchtitan-compile"})
    for (const std::int64_t stages : {1, 2}) {
      const Scenario scenario = parse_scenario("profile = \"" + profile +
                                                   "\"\n[model]\npreset = \"gpt2-124m\"\n[parallel]\n"
                                                   "data_parallel_size = 2\npipeline_model_parallel_size = " +
                                                   std::to_string(stages) + "\n",
                                               "titan");
      CHECK(scenario.parallel.reshard_after_forward == (stages == 1));
    }
}

}  // namespace stretto::testing
