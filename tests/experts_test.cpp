// Models with experts: against a reference that shares no code with them, in every layout and mode, and with what
// composes with them.
#include "model/experts.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "model/recompute.hpp"
#include "model/scenario/keys.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "tests/against_reference.hpp"
#include "tests/message_of.hpp"
#include "tests/single_rank.hpp"

namespace stretto::testing::experts {
namespace {

Transformer mixture() {
  Transformer model = in_llama_style({2, 8, 4, 10, 5, 9, 11, 11});
  model.num_query_groups = 2;
  model.rotary_base = 100;
  model.experts.num_moe_experts = 6;
  model.experts.moe_router_topk = 2;
  model.experts.moe_ffn_hidden_size = 6;
  return model;
}

struct Variant {
  const char* name;
  void (*set)(Transformer&);
};
const Variant kVariants[] = {
    {"Mixtral", [](Transformer&) {}},
    {"Qwen3-MoE", [](Transformer& m) { m.kv_channels = 4, m.experts.moe_router_topk = 3; }},
    {"aux loss and z-loss",
     [](Transformer& m) { m.experts.moe_aux_loss_coeff = 0.3, m.experts.moe_z_loss_coeff = 0.1; }},
    {"loads of the step so far",
     [](Transformer& m) {
       m.experts.moe_aux_loss_coeff = 0.3;
       m.experts.moe_router_load_balancing_type = LoadBalancing::global_aux_loss;
     }},
    {"softmax before, one expert",
     [](Transformer& m) {
       m.experts.moe_router_pre_softmax = true, m.experts.moe_router_topk = 1;
       m.experts.moe_aux_loss_coeff = 0.2;
       m.experts.moe_router_load_balancing_type = LoadBalancing::seq_aux_loss;
     }},
    {"DeepSeek-V3's router, a shared expert, a dense layer first",
     [](Transformer& m) {
       m.experts.moe_router_score_function = RouterScore::sigmoid;
       m.experts.moe_router_enable_expert_bias = true, m.experts.moe_router_bias_update_rate = 0.25;
       m.experts.moe_router_num_groups = 3, m.experts.moe_router_group_topk = 2;
       m.experts.moe_router_topk = 2, m.experts.moe_router_topk_scaling_factor = 2.5;
       m.experts.moe_shared_expert_intermediate_size = 4;
       m.experts.moe_layer_freq = {0, 1};
       m.experts.moe_aux_loss_coeff = 0.2;
       m.experts.moe_router_load_balancing_type = LoadBalancing::seq_aux_loss;
     }},
    {"a gated shared expert",
     [](Transformer& m) {
       m.experts.moe_shared_expert_intermediate_size = 4, m.experts.moe_shared_expert_gate = true;
       m.experts.moe_layer_freq = {2};
     }},
    {"GELU", [](Transformer& m) { m.swiglu = false; }},
};

// Six experts, two of them for a token, in sizes that 2 and 3 divide.
Scenario in_layout(const Layout& layout, const std::string& mode, int kind, const std::string& precision = "fp64") {
  Scenario scenario = layout_scenario(layout, mode, true, precision);
  Transformer& model = scenario.model;
  model.experts.num_moe_experts = 6;
  model.experts.moe_ffn_hidden_size = 12;
  model.experts.moe_z_loss_coeff = 0.01;
  model.experts.moe_aux_loss_coeff = 0.1;
  model.experts.moe_router_load_balancing_type = LoadBalancing::seq_aux_loss;
  if (kind == 1) {
    model.experts.moe_layer_freq = {2};
    model.experts.moe_router_load_balancing_type = LoadBalancing::global_aux_loss;
    model.experts.moe_router_score_function = RouterScore::sigmoid;
    model.experts.moe_router_enable_expert_bias = true;
    model.experts.moe_router_bias_update_rate = 0.25;
    model.experts.moe_shared_expert_intermediate_size = 6;
    model.experts.moe_shared_expert_gate = true;
    model.experts.moe_router_topk = 3;
  }
  return scenario;
}

const Layout kExpertLayouts[] = {{1, 1},
                                 {2, 1},
                                 {1, 2, true},
                                 {2, 2, true},
                                 {1, 3, true},
                                 {2, 1, false, 2},
                                 {1, 2, true, 3},
                                 {1, 1, false, 2, 3},
                                 {.pp = 2, .schedule = PipelineSchedule::zb_h1},
                                 {1, 1, false, 1, 1, "", 0, 2, {CpCommType::p2p, CpCommType::a2a}},
                                 {1, 2, true, 1, 1, "", 0, 2, {CpCommType::all_gather}}};

// Padding with room for all tokens of a rank at each expert.
void pad(Scenario& scenario) {
  const Experts& experts = scenario.model.experts;
  scenario.parallel.moe_pad_expert_input_to_capacity = true;
  scenario.parallel.moe_expert_capacity_factor = double(experts.num_moe_experts) / double(experts.moe_router_topk);
}

// Without padding, with room for all tokens of a rank at each of the other ranks' experts.
void leave_room(Scenario& scenario) {
  scenario.parallel.moe_expert_rank_capacity_factor = double(scenario.parallel.expert_model_parallel_size);
}

// The scenario of a layout and mode with the experts of a kind.
ScenarioOf of_kind(int kind) {
  return [=](const Layout& layout, const std::string& mode) { return in_layout(layout, mode, kind); };
}

}  // namespace

TEST_CASE("loss and every gradient of models with experts are those of a reference of its own", "[experts]") {
  for (const Variant& variant : kVariants)
    for (const std::int64_t micro_batch : {1, 2}) {
      INFO(variant.name << ", " << micro_batch << " sequences a micro-batch");
      Transformer model = mixture();
      variant.set(model);
      check_against_reference(scenario_of(model, micro_batch));
    }
}

TEST_CASE("experts: every layout and mode equals the single rank", "[serial][experts]") {
  const int kind = GENERATE(0, 1);
  SingleRank single(2, change);
  INFO("kind " << kind);
  check_every_mode(single, kExpertLayouts, of_kind(kind));
  check_what_goes_with(single, of_kind(kind));
}

TEST_CASE("experts: modules that are computed again give what a single rank trains", "[serial][experts][moepredict]") {
  using Module = Recompute::Module;
  const int kind = GENERATE(0, 1);
  SingleRank single(2, change);
  INFO("kind " << kind);
  // One layer of kind 1 has experts, whose activations have one buffer in any case.
  check_recomputed(single, of_kind(kind),
                   {{Module::moe_act},
                    {Module::layernorm, Module::core_attn},
                    {Module::moe_act, Module::shared_experts},
                    {Module::moe, Module::layernorm}},
                   kind == 0);
}

TEST_CASE("experts that are computed again, with their exchanges of rows, equal the single rank",
          "[serial][experts][moepredict]") {
  struct Case {
    Layout layout;
    std::int64_t ep;
    const char* mode = "plain";
    bool pads = false, gathers = false;
    std::int64_t etp = 1;
    Sharding sharding = Sharding::optim;
  };
  const Case cases[] = {{{2, 1}, 2},
                        {{3, 1}, 3, "overlap_param_gather", true},
                        {{2, 3, true}, 6, "tp_comm_overlap"},
                        {{2, 1}, 2, "moe_shared_expert_overlap"},
                        {{2, 2, true}, 2, "moe_shared_expert_overlap", true},
                        {{2, 1}, 2, "overlap_dispatch_backward_with_experts_wgrad"},
                        {{3, 1}, 3, "ep_flash_overlap", true},
                        {{3, 1}, 3, "ep_flash_overlap"},
                        {{2, 1}, 2, "plain", false, true},
                        {{4, 1}, 2, "plain", false, false, 2},
                        {{2, 2, true}, 2, "plain", false, false, 0},
                        {{4, 1}, 2, "fsdp_comm_overlap", false, false, 1, Sharding::optim_grads_params},
                        {{2, 1, false, 2, 3}, 2, "overlap_p2p_comm"}};
  Cases taken, threaded(kThreadedStride);
  for (const int kind : {0, 1}) {
    SingleRank single(2, change);
    for (const Case& c : cases)
      for (const bool whole : {false, true}) {
        if (!taken.takes_next()) continue;
        Scenario scenario = in_layout(c.layout, c.mode, kind);
        scenario.parallel.expert_model_parallel_size = c.ep;
        scenario.parallel.expert_tensor_parallel_size = c.etp;
        scenario.parallel.data_parallel_sharding_strategy = c.sharding;
        if (c.gathers) scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
        if (c.pads) pad(scenario);
        const bool in_slots = !c.pads && scenario.overlap.ep_flash_overlap;
        if (in_slots) leave_room(scenario);
        const std::int64_t kept = plan_memory(build_schedule(scenario)).peak_bytes();
        scenario.training.recompute = {
            Recompute::Granularity::selective, Recompute::Method::uniform, 1, whole, {Recompute::Module::moe}};
        INFO(c.layout.text() << ", ep " << c.ep << ", etp " << c.etp << ", " << c.mode << ", kind " << kind
                             << (whole ? ", whole" : "") << (c.gathers ? ", gathers" : "")
                             << (c.pads ? ", padded" : ""));
        single.check(scenario, threaded.takes_next());
        const Schedule schedule = build_schedule(scenario);
        const char* last = in_slots ? "experts.unpermute.fprop.slot0.recompute" : "experts.unpermute.fprop.recompute";
        CHECK(schedule.find_operation(last).has_value() == whole);
        // The only layer with experts of kind 1 has one buffer in any case.
        const std::int64_t needed = plan_memory(schedule).peak_bytes();
        CHECK((kind == 0 ? needed < kept : needed <= kept));
      }
  }
}

TEST_CASE("experts that ranks share, and whole experts next to cut layers, equal the single rank",
          "[serial][experts]") {
  struct Case {
    Layout layout;
    std::int64_t ep = 1;
    Sharding sharding = Sharding::optim;
    std::string order = "tp-cp-ep-dp-pp";
    bool is_cut = false;  // tp cuts every expert
    bool gathers = false, pads = false;
    std::int64_t etp = 0;  // other ranks than tp's cut every expert
  };
  const auto cut = [](std::int64_t etp, Case c) { return c.etp = etp, c; };
  const auto gathering = [](Case c) { return c.gathers = true, c; };
  const auto padded = [](Case c) { return c.pads = true, c; };
  const Case cases[] = {
      {{2, 1}, 2},
      {{3, 1}, 3},
      {{6, 1}, 3},
      {{6, 1}, 6, Sharding::no_shard},
      {{4, 1}, 2, Sharding::optim, "tp-cp-dp-ep-pp"},
      {{1, 2, true}, 1},
      {{1, 2, true}, 2},
      {{2, 2, true}, 2},
      {{2, 3, true}, 6},
      {{2, 1, false, 2}, 2},
      {{2, 2, true, 2, 3}, 2},
      {{.dp = 2, .pp = 2, .schedule = PipelineSchedule::zb_h1}, 2},
      {{.dp = 2,
        .tp = 2,
        .sequence_parallel = true,
        .pp = 2,
        .vp = 2,
        .split = "E|ttt|tt|tL",
        .schedule = PipelineSchedule::dualpipe_v},
       2},
      gathering({{.dp = 2, .pp = 2, .vp = 2, .split = "E|ttt|tt|tL", .schedule = PipelineSchedule::zb_v}, 2}),
      {{1, 1, false, 1, 1, "", 0, 2, {CpCommType::p2p}}, 2},
      {{1, 2, true, 1, 1, "", 0, 2, {CpCommType::all_gather}}, 3},
      {{4, 1}, 2, Sharding::optim_grads},
      {{4, 1}, 2, Sharding::optim_grads_params},
      {{2, 2, true}, 2, Sharding::optim_grads_params},
      {{3, 1, false, 2}, 3, Sharding::optim_grads_params},
      {{2, 2, true}, 2, Sharding::optim, "tp-cp-ep-dp-pp", true},
      {{4, 3, true}, 2, Sharding::no_shard, "tp-cp-ep-dp-pp", true},
      {{4, 2, true}, 2, Sharding::optim_grads_params, "tp-cp-ep-dp-pp", true},
      {{3, 2, true, 2}, 3, Sharding::optim, "tp-cp-dp-ep-pp", true},
      gathering({{2, 1}, 2}),
      gathering({{6, 1}, 3, Sharding::no_shard}),
      gathering({{4, 1}, 2, Sharding::optim, "tp-cp-dp-ep-pp"}),
      gathering({{2, 2, true}, 2}),
      gathering({{1, 2, true, 1, 1, "", 0, 2, {CpCommType::all_gather}}, 2}),
      gathering({{2, 2, true, 2, 3}, 2, Sharding::optim, "tp-cp-ep-dp-pp", true}),
      gathering({{4, 2, true}, 2, Sharding::optim_grads_params, "tp-cp-ep-dp-pp", true}),
      padded({{1, 1}, 1}),
      padded({{1, 2, true}, 1, Sharding::optim, "tp-cp-ep-dp-pp", true}),
      padded({{3, 1}, 3}),
      padded({{6, 1}, 6}),
      padded({{2, 2, true}, 2}),
      padded({{2, 2, true, 2, 3}, 2, Sharding::optim, "tp-cp-ep-dp-pp", true}),
      padded({{2, 1, false, 1, 1, "", 0, 2, {CpCommType::p2p}}, 2}),
      padded({{4, 2, true}, 2, Sharding::optim_grads_params, "tp-cp-ep-dp-pp", true}),
      cut(2, {{2, 1}, 1}),
      cut(2, {{4, 1}, 2}),
      cut(3, {{2, 6, true}, 2}),
      cut(4, {{2, 2, true}, 1, Sharding::no_shard}),
      cut(2, {{2, 2, true}, 2, Sharding::optim, "dp-tp-cp-ep-pp"}),
      cut(2, {{4, 1}, 2, Sharding::optim_grads_params}),
      cut(2, {{4, 1, false, 3, 2}, 2, Sharding::optim, "tp-cp-dp-ep-pp"}),
      gathering(cut(2, {{4, 1}, 2})),
      padded(cut(2, {{4, 1}, 2})),
      padded(gathering({{2, 1}, 1})),
      padded(gathering({{2, 1}, 2})),
      padded(gathering({{2, 2, true}, 2})),
      padded(gathering({{2, 2, true, 2, 3}, 2, Sharding::optim, "tp-cp-ep-dp-pp", true})),
      padded(gathering(cut(2, {{4, 1}, 2}))),
      {{2, 2, true, 2}, 2, Sharding::optim, "tp-cp-ep-pp-dp"},
      {{3, 1, false, 2}, 1, Sharding::optim, "tp-cp-ep-pp-dp"},
  };
  for (const int kind : {0, 1}) {
    SingleRank single(2, change);
    Cases taken;
    for (const Case& c : cases)
      for (const OverlapMode& mode : overlap_modes()) {
        Scenario scenario = in_layout(c.layout, mode.name, kind);
        scenario.parallel.expert_model_parallel_size = c.ep;
        scenario.parallel.expert_tensor_parallel_size = c.etp > 0 ? c.etp : c.is_cut ? 0 : 1;
        scenario.parallel.data_parallel_sharding_strategy = c.sharding;
        scenario.parallel.order = c.order;
        if (c.gathers) scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
        if (c.pads) pad(scenario);
        if (scenario.parallel.replicas() * c.layout.tp % c.ep != 0) continue;
        if (!mode.applies(scenario.parallel) || !taken.takes_next()) continue;
        INFO(c.layout.text() << ", ep " << c.ep << ", etp " << c.etp << ", " << name_of(c.sharding) << ", " << mode.name
                             << ", kind " << kind << (c.gathers ? ", gathers" : "") << (c.pads ? ", padded" : ""));
        single.check(scenario, mode.name == "plain");
      }
  }
}

TEST_CASE("pairs of passes equal the single rank, alone and with other overlap", "[serial][experts]") {
  const std::pair<Layout, std::int64_t> layouts[] = {
      {{2, 1}, 2}, {{6, 1}, 3}, {{2, 2, true}, 2}, {{2, 1, false, 2, 3}, 2}, {{2, 2, true, 2, 3}, 2}, {{4, 1}, 2}};
  Cases cases;
  for (const int kind : {0, 1}) {
    SingleRank single(2, change);
    for (const auto& [layout, ep] : layouts)
      for (const auto& [mode, delays, early] : {std::tuple{"plain", false, false},
                                                {"overlap_grad_reduce", false, true},
                                                {"overlap_param_gather", true, false},
                                                {"plain", true, true}}) {
        if (!cases.takes_next()) continue;
        Scenario scenario = in_layout(layout, mode, kind);
        if (mode == std::string("overlap_param_gather")) pad(scenario);
        scenario.parallel.expert_model_parallel_size = ep;
        scenario.parallel.expert_tensor_parallel_size = layout.dp == 4 ? 2 : 1;
        scenario.overlap.overlap_moe_expert_parallel_comm = true;
        scenario.overlap.delay_wgrad_compute = delays;
        scenario.overlap.ep_overlap_early_attn_memory_release = early;
        scenario.overlap.overlap_p2p_comm = layout.pp > 1;
        scenario.overlap.align_grad_reduce = layout.pp > 1;
        INFO(layout.text() << ", ep " << ep << ", " << mode_name(scenario.overlap) << ", kind " << kind);
        single.check(scenario);
        single.check(scenario, true);
      }
  }
}

TEST_CASE("of two passes at once one computes modules again in places of its own", "[serial][experts]") {
  using Module = Recompute::Module;
  struct Case {
    Layout layout;
    bool delays, gated;
  };
  // Without a gate the backward pass repeats the second product into a workspace. In groups of 4 micro-batches two
  // chunks of a stage use equal slots at once.
  const Case cases[] = {{{2, 1}, false, false},
                        {{2, 2, true}, true, true},
                        {{2, 1, false, 2, 2, "", 4}, false, true},
                        {{2, 1, false, 2, 2, "", 4}, true, false}};
  for (const bool gated : {false, true}) {
    SingleRank single(2, change);
    for (const Case& c : cases) {
      if (c.gated != gated) continue;
      Scenario scenario = in_layout(c.layout, "plain", 1);
      scenario.model.num_layers = 4;
      scenario.model.experts.moe_layer_freq = {1};
      scenario.model.experts.moe_shared_expert_gate = gated;
      scenario.parallel.expert_model_parallel_size = 2;
      scenario.parallel.expert_tensor_parallel_size = 1;
      scenario.overlap.overlap_moe_expert_parallel_comm = true;
      scenario.overlap.delay_wgrad_compute = c.delays;
      scenario.overlap.overlap_p2p_comm = c.layout.pp > 1;
      scenario.training.recompute = {Recompute::Granularity::selective,
                                     Recompute::Method::uniform,
                                     1,
                                     true,
                                     {Module::layernorm, Module::moe_act, Module::shared_experts}};
      INFO(c.layout.text() << (c.delays ? ", weight gradients apart" : "") << (gated ? ", a gate" : ""));
      single.check(scenario);
    }
  }
}

TEST_CASE("experts without replicas, whose parameters stay gathered, equal the single rank", "[serial][experts]") {
  SingleRank single(2, change);
  for (const char* mode : {"plain", "fsdp_comm_overlap"}) {
    Scenario scenario = in_layout({2, 1, false, 2}, mode, 0);
    scenario.parallel.expert_model_parallel_size = 2;
    scenario.parallel.expert_tensor_parallel_size = 1;
    scenario.parallel.data_parallel_sharding_strategy = Sharding::optim_grads_params;
    scenario.parallel.reshard_after_forward = false;
    INFO(mode);
    single.check(scenario);
  }
}

TEST_CASE("experts in shards of ranks equal the single rank, however many shards", "[serial][experts][epflash]") {
  struct Case {
    Layout layout;
    std::int64_t ep = 1, shards = 2, etp = 1;
    const char* mode = "plain";
    Recompute::Granularity recompute = Recompute::Granularity::none;
    Sharding sharding = Sharding::optim;
  };
  using Granularity = Recompute::Granularity;
  const Case cases[] = {
      {{2, 1}, 2},
      {{3, 1}, 3},
      {{3, 1}, 3, 3, 1, "overlap_grad_reduce", Granularity::full},
      {{6, 1}, 6, 4},
      {{4, 1}, 2, 2, 2, "overlap_param_gather"},
      {{2, 3, true}, 6, 2, 1, "tp_comm_overlap"},
      {{3, 1, false, 2}, 3, 2, 1, "overlap_p2p_comm"},
      {{3, 2, true}, 3, 2, 1, "fsdp_comm_overlap", Granularity::selective, Sharding::optim_grads_params}};
  Cases taken;
  for (const int kind : {0, 1}) {
    SingleRank single(2, change);
    for (const Case& c : cases)
      for (const bool pads : {true, false}) {
        if (!taken.takes_next()) continue;
        Scenario scenario = in_layout(c.layout, c.mode, kind);
        scenario.parallel.expert_model_parallel_size = c.ep;
        scenario.parallel.expert_tensor_parallel_size = c.etp;
        scenario.parallel.data_parallel_sharding_strategy = c.sharding;
        scenario.training.recompute.granularity = c.recompute;
        scenario.training.recompute.modules = {Recompute::Module::moe_act};
        if (pads)
          pad(scenario);
        else
          leave_room(scenario);
        scenario.overlap.ep_flash_overlap = true;
        scenario.overlap.ep_flash_shards = c.shards;
        INFO(c.layout.text() << ", ep " << c.ep << ", " << c.shards << " shards, " << c.mode << ", kind " << kind
                             << (pads ? ", padded" : ", slots"));
        CHECK(build_schedule(scenario).name.find("ep_flash_overlap") != std::string::npos);
        single.check(scenario);
        single.check(scenario, true);
      }
  }
}

TEST_CASE("a dense layer's norm is computed again with its MLP, that of experts by itself", "[experts]") {
  using Module = Recompute::Module;
  // The first of two layers has experts.
  for (const auto& [module, experts, dense] :
       {std::tuple{Module::layernorm, true, false}, std::tuple{Module::mlp, false, true}}) {
    Scenario scenario = in_layout({1, 1}, "plain", 1);
    scenario.training.recompute.granularity = Recompute::Granularity::selective;
    scenario.training.recompute.modules = {module};
    const Schedule schedule = build_schedule(scenario);
    const OpId again = schedule.find_operation("ln_2.fprop.recompute").value();
    std::vector<bool> has(2);
    for (const Call& call : schedule.programs.front().order) {
      const std::vector<OpId>& ops = schedule.blocks[call.block].ops;
      if (std::count(ops.begin(), ops.end(), again) > 0) has[static_cast<std::size_t>(call.layer)] = true;
    }
    CHECK(has == std::vector<bool>{experts, dense});
  }
}

TEST_CASE("more rows than a rank's experts have room for are an error with both numbers", "[experts]") {
  Scenario scenario = in_layout({2, 1}, "plain", 0);
  scenario.parallel.expert_model_parallel_size = 2;
  scenario.parallel.moe_expert_rank_capacity_factor = 2;
  SingleRank(2, change).check(scenario);
  scenario.parallel.moe_expert_rank_capacity_factor = 1;
  CHECK_THAT(message_of([&] { train(scenario, 2, true, 1, change); }, ErrorKind::runtime),
             Catch::Matchers::Contains("rows, and moe_expert_rank_capacity_factor leaves room for"));
  scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
  CHECK_THAT(message_of([&] { train(scenario, 2, true, 1, change); }, ErrorKind::runtime),
             Catch::Matchers::Contains("rows, and moe_expert_rank_capacity_factor leaves room for"));
  scenario.parallel.moe_expert_rank_capacity_factor = 2;
  SingleRank(2, change).check(scenario);
  scenario.parallel.moe_expert_rank_capacity_factor = 0;
  scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::alltoall;
  scenario.parallel.moe_pad_expert_input_to_capacity = true;
  scenario.parallel.moe_expert_capacity_factor = 1;
  CHECK_THAT(message_of([&] { train(scenario, 2, true, 1, change); }, ErrorKind::runtime),
             Catch::Matchers::Contains("rows, and moe_expert_capacity_factor leaves room for"));
}

TEST_CASE("with padding no size depends on the router, and ranks exchange no counts", "[experts]") {
  Scenario scenario = in_layout({2, 1}, "plain", 0);
  scenario.parallel.expert_model_parallel_size = 2;
  scenario.parallel.moe_pad_expert_input_to_capacity = true;
  scenario.parallel.moe_expert_capacity_factor = 1.5;
  const bool gathers = GENERATE(false, true);
  if (gathers) scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
  const std::int64_t tokens = scenario.training.micro_batch_size * scenario.model.seq_length,
                     each = std::int64_t(std::ceil(double(tokens * 2) / 6 * 1.5));
  int products = 0, exchanges = 0;
  const Schedule schedule = build_schedule(scenario);
  for (const Operation& operation : schedule.operations) {
    CHECK_FALSE(std::holds_alternative<CountRows>(operation.work));
    // A rank sorts the gathered tokens of three experts, and for each the tokens of both ranks.
    if (const auto* sort = std::get_if<SortTokens>(&operation.work))
      CHECK(*sort ==
            (gathers ? SortTokens{2 * tokens, 2, 6, 2 * each, 3, 0, sort->first} : SortTokens{tokens, 2, 6, each}));
    if (const auto* product = std::get_if<GroupedGemm>(&operation.work)) {
      ++products;
      CHECK(product->rows == 6 * each);
      CHECK(product->equal);
    }
    const auto* exchange = std::get_if<Collective>(&operation.work);
    if (exchange == nullptr || !rule_of(exchange->kind).of_rows) continue;
    ++exchanges;
    CHECK(exchange->elements == 6 * each * exchange->cols);
    CHECK_FALSE(exchange->by_rows());
  }
  CHECK(products == 6);
  CHECK(exchanges == (gathers ? 0 : 6));
}

TEST_CASE("all tokens to one expert, and experts without any, are right", "[experts]") {
  Transformer model = mixture();
  model.experts.moe_router_topk = 1, model.experts.moe_router_pre_softmax = true;
  const bool pads = GENERATE(false, true);
  Scenario scenario = scenario_of(model, 2);
  if (pads) pad(scenario);
  std::vector<exec::FullTensor> weights;
  // The results of the norms are 0 but for one element. Only the router's row of expert 3 weighs this element, by its
  // sign; the sign is equal for all tokens of one position.
  const Trained trained = train(scenario, 1, false, 1, [&](exec::FullTensor& tensor) {
    change(tensor);
    if (tensor.name.ends_with("wte.weight"))
      for (std::size_t i = 0; i < tensor.values.size(); i += 8) tensor.values[i] = 9;
    if (tensor.name.ends_with("router.weight"))
      for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = i == 24 ? 3 : 0.01 * tensor.values[i];
    weights.push_back(tensor);
  });
  const auto [tokens, targets] = batch_of(scenario);
  const Result expected = Reference(scenario, weights).run(tokens, targets);
  CHECK(trained.losses.front() == Approx(expected.loss).epsilon(1e-12));
  int without = 0;
  for (const exec::FullTensor& gradient : trained.gradients) {
    if (!gradient.name.ends_with("experts.fc2.weight")) continue;
    const std::size_t each = gradient.values.size() / 6;
    for (std::size_t expert = 0; expert < 6; ++expert) {
      const auto begin = gradient.values.begin() + std::ptrdiff_t(expert * each);
      const bool is_zero = std::all_of(begin, begin + std::ptrdiff_t(each), [](double v) { return v == 0; });
      without += is_zero;
      CHECK(is_zero == (expert != 3));
    }
  }
  CHECK(without == 10);
}

TEST_CASE("the rank with most rows has as many of gathered tokens as of exchanged ones", "[experts]") {
  const ExpertLoads loads{.kind = ExpertLoads::Kind::natural};
  Scenario scenario = in_layout({2, 1}, "plain", 0);
  scenario.parallel.expert_model_parallel_size = 2;
  const double exchanged = sim::most_rows(build_schedule(scenario), loads);
  CHECK(exchanged > 1.01);
  scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
  CHECK(sim::most_rows(build_schedule(scenario), loads) == exchanged);
  // Padded rows do not depend on the router.
  scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::alltoall;
  pad(scenario);
  CHECK(sim::most_rows(build_schedule(scenario), loads) == 1);
}

TEST_CASE("FLOPs of a step with experts are those of its products, and of those computed again", "[experts]") {
  using Module = Recompute::Module;
  for (const int kind : {0, 1}) {
    const Scenario kept = in_layout({}, "plain", kind);
    check_flops(kept);
    const auto flops_of = [](const Scenario& scenario) {
      double flops = 0;
      for (const BoundProgram& program : bind_step(build_schedule(scenario)).programs)
        for (std::uint32_t op = 0; op < program.ops.size(); ++op) flops += model_flops(program.work_of(op));
      return flops;
    };
    for (const Module module : {Module::moe, Module::shared_experts})
      for (const bool whole : {false, true}) {
        INFO("kind " << kind << ", " << name_of(module) << (whole ? ", whole" : ""));
        Scenario scenario = kept;
        scenario.training.recompute = {
            Recompute::Granularity::selective, Recompute::Method::uniform, 1, whole, {module}};
        const double expected = recompute_flops_per_sequence(kept.model, scenario.training.recompute,
                                                             scenario.training.attention_backend, 1) *
                                double(kept.training.global_batch_size);
        CHECK(flops_of(scenario) - flops_of(kept) == Approx(expected).epsilon(1e-9));
      }
  }
}

TEST_CASE("keys of experts are checked, and what is not modelled is refused by its name", "[experts]") {
  const std::string model =
      "[model]\nnum_layers = 2\nhidden_size = 8\nnum_attention_heads = 2\nseq_length = 4\nvocab_size = 9\n"
      "add_bias_linear = false\n";
  const auto read = [&](const std::string& more, const std::vector<std::string>& sets = {}) {
    return parse_scenario(model + more, "s", sets);
  };
  const auto refusal = [&](const std::string& more, const std::vector<std::string>& sets = {}) {
    return message_of([&] { read(more, sets); });
  };
  using Catch::Matchers::Contains;
  CHECK(read("num_moe_experts = 4\n").model.layer(1).has_experts());
  CHECK(read("num_moe_experts = 4\nmoe_layer_freq = [0, 1]\n").model.layer(0).mlp == MlpKind::dense);
  CHECK(read("num_moe_experts = 4\nmoe_layer_freq = 2\n").model.layer(1).mlp == MlpKind::dense);
  for (const auto& [text, says] :
       {std::pair{"moe_router_topk = 2\n", "num_moe_experts as well"},
        {"num_moe_experts = 4\nmoe_router_topk = 5\n", "at most num_moe_experts 4"},
        {"num_moe_experts = 4\nmoe_router_topk = 1\n", "no gradient"},
        {"num_moe_experts = 4\nmoe_layer_freq = [0, 1, 1]\n", "num_layers 2"},
        {"num_moe_experts = 4\nmoe_layer_freq = [0, 2]\n", "0 or 1"},
        {"num_moe_experts = 4\nmoe_router_num_groups = 2\n", "moe_router_group_topk as well"},
        {"num_moe_experts = 4\nmoe_router_num_groups = 3\nmoe_router_group_topk = 1\n", "a divisor of num_moe_experts"},
        {"num_moe_experts = 4\nmoe_shared_expert_gate = true\n", "moe_shared_expert_intermediate_size as well"},
        {"num_moe_experts = 4\nmoe_router_enable_expert_bias = true\n", "\"sigmoid\" as well"},
        {"num_moe_experts = 4\n[parallel]\nmoe_expert_capacity_factor = 1.0\n", "which tokens are dropped"},
        {"num_moe_experts = 4\n[parallel]\nmoe_pad_expert_input_to_capacity = true\n", "moe_expert_capacity_factor as"},
        {"num_moe_experts = 4\n[parallel]\nmoe_expert_capacity_factor = 0.5\n", "1 or more, got 0.5"},
        {"num_moe_experts = 4\n[parallel]\nmoe_expert_capacity_factor = 2\nmoe_pad_expert_input_to_capacity = true\n"
         "moe_token_dispatcher_type = \"flex\"\n",
         "got \"flex\" with \"deepep\""},
        {"[parallel]\nmoe_expert_capacity_factor = 2\nmoe_pad_expert_input_to_capacity = true\n", "dense MLPs"},
        {"num_moe_experts = 4\n[parallel]\nexpert_model_parallel_size = 2\n", "divides the 1 ranks of a stage"},
        {"num_moe_experts = 4\n[parallel]\ntensor_model_parallel_size = 2\n", "sequence_parallel"}})
    CHECK_THAT(refusal(text), Contains(says));
  CHECK_THAT(refusal("num_moe_experts = 4\n", {"model.add_bias_linear=true"}), Contains("biases of experts"));
  const std::string selective = "training.recompute_granularity=selective";
  CHECK_THAT(refusal("num_moe_experts = 4\n", {selective, "training.recompute_modules=[\"moe\", \"moe_act\"]"}),
             Contains("no \"moe_act\" with \"moe\""));
  CHECK_THAT(refusal("", {selective, "training.recompute_modules=moe"}), Contains("num_moe_experts with"));
  CHECK_THAT(refusal("num_moe_experts = 4\n",
                     {selective, "training.recompute_modules=moe", "training.cuda_graph_modules=moe_router"}),
             Contains("no \"moe_router\" with"));
  CHECK_THAT(refusal("num_moe_experts = 4\n", {selective, "training.recompute_modules=mla_up_proj"}),
             Contains("multi_latent_attention = true"));
  CHECK_THAT(refusal("", {selective, "training.recompute_modules=moe_act"}), Contains("num_moe_experts with"));
  CHECK_THAT(refusal("num_moe_experts = 4\n", {"training.recompute_modules=moe_act"}),
             Contains("\"selective\" as well"));
  CHECK_THAT(refusal("num_moe_experts = 4\n", {"training.recompute_granularity=selective_op"}),
             Contains("not modelled for experts yet"));
}

}  // namespace stretto::testing::experts
