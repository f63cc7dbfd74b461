// Edits that a wrong rewrite of experts could make: each is rejected, by the verifier or because the step computes
// something else. What is edited first passes both.
#include <algorithm>
#include <catch2/catch.hpp>

#include "model/verify/dataflow.hpp"
#include "model/verify/verify.hpp"
#include "tests/training.hpp"

namespace stretto::testing {
namespace {

// Two ranks share six experts, and two times two ranks have the same ones; two layers, two micro-batches.
Scenario sharing_experts() {
  Scenario scenario = layout_scenario({4, 1}, "plain", true, "fp32", 1, 8);
  scenario.model.experts.num_moe_experts = 6;
  scenario.model.experts.moe_ffn_hidden_size = 12;
  scenario.parallel.expert_model_parallel_size = 2;
  return scenario;
}
// Pairs of passes have activations of two micro-batches.
Scenario pairs() {
  Scenario scenario = sharing_experts();
  scenario.overlap.overlap_moe_expert_parallel_comm = scenario.overlap.delay_wgrad_compute = true;
  return scenario;
}

class Edited {
 public:
  explicit Edited(const Scenario& scenario) : plain_(build_schedule(scenario)), schedule(plain_) {
    REQUIRE(verify(schedule).empty());
  }
  Operation& operation(const std::string& name) { return schedule.operations[schedule.find_operation(name).value()]; }
  // Returns the operation's view of a tensor.
  View& view(const std::string& name, const std::string& tensor) {
    const TensorId id = schedule.find_tensor(tensor).value();
    for (Access& access : operation(name).accesses)
      if (access.view.tensor == id) return access.view;
    throw std::logic_error(name + " has no " + tensor);
  }
  Block& block_with(const std::string& name) {
    const OpId op = schedule.find_operation(name).value();
    for (Block& block : schedule.blocks)
      if (std::count(block.ops.begin(), block.ops.end(), op) > 0) return block;
    throw std::logic_error("no block has " + name);
  }
  bool is_rejected() const {
    return !verify(schedule).empty() || !verify_equivalent(plain_, schedule, SumOrder::same).empty();
  }

 private:
  Schedule plain_;

 public:
  Schedule schedule;
};

// Returns the index of the other one of two instances.
Expr other(const Expr& own) { return mod(own + Expr(1), Expr(2)); }

}  // namespace

TEST_CASE("counts of rows of another micro-batch are rejected", "[experts][expertsverifier]") {
  for (const char* name : {"experts.fc1.fprop", "experts.act.dgrad", "experts.fc2.wgrad"}) {
    INFO(name);
    Edited step(pairs());
    View& counts = step.view(name, "experts.offsets");
    counts.slot = other(counts.slot);
    CHECK(step.is_rejected());
  }
}

TEST_CASE("places of rows of another layer are rejected", "[experts][expertsverifier]") {
  for (const char* name : {"experts.unpermute.dgrad", "experts.permute.dgrad", "experts.permute_weights.dgrad"}) {
    INFO(name);
    Edited step(sharing_experts());
    View& places = step.view(name, "experts.positions");
    places.layer = other(places.layer);
    CHECK(step.is_rejected());
  }
}

TEST_CASE("an exchange of rows with other splits is rejected", "[experts][expertsverifier]") {
  SECTION("those of another layer") {
    Edited step(sharing_experts());
    View& splits = step.view("experts.dispatch.dgrad", "experts.all_offsets");
    splits.layer = other(splits.layer);
    CHECK(step.is_rejected());
  }
  SECTION("those of the way back") {
    Edited step(sharing_experts());
    std::get<Collective>(step.operation("experts.combine.dgrad").work).kind = CollectiveKind::dispatch;
    CHECK(step.is_rejected());
  }
  SECTION("rows of the other rank's experts are counted") {
    Edited step(sharing_experts());
    auto& count = std::get<CountRows>(step.operation("experts.count.fprop").work);
    count.first = Expr(count.local) - count.first;
    CHECK(step.is_rejected());
  }
}

TEST_CASE("weight gradients before the gradients that they are made of are rejected", "[experts][expertsverifier]") {
  Edited step(pairs());
  // The second product's need the gradient that dispatch brings, the first one's that of the activation.
  for (const auto& [weight, made_by] : {std::pair{"experts.fc2.wgrad", "experts.dispatch.dgrad"},
                                        std::pair{"experts.fc1.wgrad", "experts.act.dgrad"}}) {
    INFO(weight);
    Edited edited = step;
    const OpId first = edited.schedule.find_operation(weight).value(),
               second = edited.schedule.find_operation(made_by).value();
    // The weight gradient and the operation that makes its input are swapped in every block.
    for (Block& block : edited.schedule.blocks)
      for (OpId& op : block.ops) op = op == first ? second : op == second ? first : op;
    CHECK(edited.is_rejected());
  }
}

TEST_CASE("rows that go back before the experts have computed them are rejected", "[experts][expertsverifier]") {
  for (const auto& [back, made_by] : {std::pair{"experts.combine.fprop", "experts.sort_by_rank.fprop"},
                                      std::pair{"experts.sort_by_rank.fprop", "experts.fc2.fprop"},
                                      std::pair{"experts.combine.dgrad", "experts.sort_by_rank.dgrad"}}) {
    INFO(back);
    Edited step(sharing_experts());
    Block& block = step.block_with(back);
    const OpId first = step.schedule.find_operation(back).value(),
               second = step.schedule.find_operation(made_by).value();
    for (OpId& op : block.ops) op = op == first ? second : op == second ? first : op;
    CHECK(step.is_rejected());
  }
  // Nor does the exchange wait for its rows.
  Edited step(sharing_experts());
  Block& block = step.block_with("experts.combine.fprop");
  const OpId back = step.schedule.find_operation("experts.combine.fprop").value();
  const auto at = static_cast<std::uint32_t>(std::find(block.ops.begin(), block.ops.end(), back) - block.ops.begin());
  REQUIRE(std::erase_if(block.waits, [&](const BlockWait& wait) { return wait.op == at; }) > 0);
  CHECK(step.is_rejected());
}

TEST_CASE("gradients of experts that are summed over ranks with other experts are rejected",
          "[experts][expertsverifier]") {
  for (const Sharding sharding : {Sharding::no_shard, Sharding::optim}) {
    INFO(name_of(sharding));
    Scenario scenario = sharing_experts();
    scenario.parallel.data_parallel_sharding_strategy = sharding;
    Edited step(scenario);
    std::uint32_t all = 0, experts = 0;
    for (std::uint32_t c = 0; c < step.schedule.communicators.size(); ++c) {
      if (step.schedule.communicators[c].name == "dp") all = c;
      if (step.schedule.communicators[c].name == "edp") experts = c;
    }
    int edited = 0;
    for (Operation& operation : step.schedule.operations)
      if (auto* sum = std::get_if<Collective>(&operation.work);
          sum != nullptr && sum->communicator == experts && rule_of(sum->kind).reduces())
        sum->communicator = all, ++edited;
    REQUIRE(edited > 0);
    CHECK(step.is_rejected());
  }
}

TEST_CASE("messages of shards that go to another rank, or before their products, are rejected",
          "[experts][expertsverifier]") {
  Scenario scenario = layout_scenario({3, 1}, "plain", true, "fp32", 1, 6);
  scenario.model.experts.num_moe_experts = 6;
  scenario.model.experts.moe_ffn_hidden_size = 12;
  scenario.parallel.expert_model_parallel_size = 3;
  const bool pads = GENERATE(true, false);
  scenario.parallel.moe_pad_expert_input_to_capacity = pads;
  (pads ? scenario.parallel.moe_expert_capacity_factor : scenario.parallel.moe_expert_rank_capacity_factor) = 3;
  scenario.overlap.ep_flash_overlap = true;
  SECTION("counts of another slot") {
    if (pads) return;
    Edited step(scenario);
    step.view("experts.fc1.fprop.1", "experts.offsets") = step.view("experts.fc1.fprop.2", "experts.offsets");
    CHECK(step.is_rejected());
  }
  SECTION("results of two ranks are exchanged") {
    Edited step(scenario);
    auto& one = std::get<PointToPoint>(step.operation("experts.combine.fprop.send1").work);
    auto& two = std::get<PointToPoint>(step.operation("experts.combine.fprop.send2").work);
    std::swap(one.offset, two.offset);
    CHECK(step.is_rejected());
  }
  SECTION("a message does not wait for its rows") {
    Edited step(scenario);
    Block& block = step.block_with("experts.combine.fprop.send1");
    const OpId back = step.schedule.find_operation("experts.combine.fprop.send1").value();
    const auto at = static_cast<std::uint32_t>(std::find(block.ops.begin(), block.ops.end(), back) - block.ops.begin());
    REQUIRE(std::erase_if(block.waits, [&](const BlockWait& wait) { return wait.op == at; }) > 0);
    CHECK(step.is_rejected());
  }
}

// Rows lie shard by shard then, also for weight gradients that have blocks of their own.
TEST_CASE("weight gradients that take rows in shards for rows by expert are rejected", "[experts][expertsverifier]") {
  const PipelineSchedule pipeline =
      GENERATE(PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1, PipelineSchedule::dualpipe_v);
  Scenario scenario = layout_scenario({.dp = 4, .pp = 2, .vp = pipeline == PipelineSchedule::dualpipe_v ? 2 : 1},
                                      "plain", true, "fp64", 1, 16);
  scenario.model.num_layers = 4;
  scenario.model.experts.num_moe_experts = 8;
  scenario.model.experts.moe_ffn_hidden_size = 12;
  scenario.parallel.pipeline_schedule = pipeline;
  scenario.parallel.expert_model_parallel_size = 4;
  scenario.parallel.moe_pad_expert_input_to_capacity = true;
  scenario.parallel.moe_expert_capacity_factor = 2;
  scenario.overlap.ep_flash_overlap = true;
  scenario.overlap.ep_flash_shards = GENERATE(2, 4);
  Edited step(scenario);
  for (const std::string name : {"experts.fc1.wgrad", "experts.fc2.wgrad"}) {
    INFO(name);
    Edited edited = step;
    Operation& second = edited.operation(name + ".1");
    const Operation& first = edited.operation(name + ".0");
    auto& product = std::get<GroupedGemm>(second.work);
    // All rows at once, and none in the first shard.
    product.rows *= 2;
    for (std::size_t i : {0, 1})
      second.accesses[i].view.rows *= 2, second.accesses[i].view.offset = first.accesses[i].view.offset;
    const std::vector<Violation> found = verify(edited.schedule);
    REQUIRE(!found.empty());
    CHECK(found.front().kind == Violation::Kind::wrong_value);
    CHECK(found.front().message.find(name) != std::string::npos);
    CHECK(found.front().message.find("of expert") != std::string::npos);
  }
}

}  // namespace stretto::testing
