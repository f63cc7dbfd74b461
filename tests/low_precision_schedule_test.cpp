// Tests of schedules in low precision: which works a layer has by each recipe, what is gathered as codes, what is kept;
// and that the schedules of all recipes, layouts and modes verify.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"
#include "model/verify/verify.hpp"
#include "tests/cases.hpp"
#include "tests/message_of.hpp"

using namespace stretto;
using testing::message_of;

namespace {

const std::string kModel = R"(
[model]
num_layers = 4
hidden_size = 256
num_attention_heads = 4
ffn_hidden_size = 512
seq_length = 256
vocab_size = 512
position_embedding_type = "rope"
)";

struct Recipe {
  const char* name;
  const char* keys;
};
const std::vector<Recipe> kRecipes = {
    {"delayed", "fp8_format = \"hybrid\"\n"},
    {"tensorwise", "fp8_format = \"hybrid\"\nfp8_recipe = \"tensorwise\"\n"},
    {"blockwise", "fp8_format = \"e4m3\"\nfp8_recipe = \"blockwise\"\n"},
    {"mxfp8", "fp8_format = \"e4m3\"\nfp8_recipe = \"mxfp8\"\n"},
    {"nvfp4", "fp4_format = \"e2m1\"\n"},
};

// `parallel` and `training` are further lines of these sections.
Scenario scenario_of(const std::string& parallel, const std::string& training, std::int64_t micro_batches = 2) {
  Scenario scenario = parse_scenario(
      kModel + "[parallel]\n" + parallel + "[training]\nprecision = \"bf16\"\nglobal_batch_size = 4\n" + training, "s");
  scenario.training.global_batch_size =
      micro_batches * scenario.parallel.data_parallel_size * scenario.training.micro_batch_size;
  return scenario;
}

// Counts kinds of work in a block, with the suffix ".max" for all-reduces of amaxes and ".codes" for what moves or
// multiplies codes.
std::map<std::string, int> works_of(const Schedule& schedule, const std::string& name) {
  std::map<std::string, int> counts;
  for (const Block& block : schedule.blocks) {
    if (block.name != name) continue;
    for (const OpId id : block.ops) {
      const Operation& operation = schedule.operations[id];
      std::string kind = kind_of(operation.work);
      if (const auto* collective = std::get_if<Collective>(&operation.work);
          collective != nullptr && collective->reduction == Reduction::max)
        kind += ".max";
      else if (!is_of_low_precision(operation.work) && is_code(schedule.dtype_of(operation.accesses[0].view)))
        kind += ".codes";
      ++counts[kind];
    }
  }
  for (const char* other : {"attention", "layernorm", "rope", "gelu", "add", "bias_add", "gelu_backward", "column_sum",
                            "reduce_scatter", "all_reduce"})
    counts.erase(other);
  return counts;
}
using Counts = std::map<std::string, int>;

std::vector<std::string> problems_of(const Scenario& scenario) {
  const Schedule schedule = build_schedule(scenario);
  const MemoryPlan plan = plan_memory(schedule);
  std::vector<std::string> problems;
  for (const Violation& violation : verify(schedule, &plan)) problems.push_back(violation.message);
  return problems;
}

const Storage* storage_named(const Schedule& schedule, const std::string& name) {
  for (const Storage& storage : schedule.storages)
    if (storage.name.starts_with(name)) return &storage;
  return nullptr;
}

}  // namespace

TEST_CASE("a layer has the works that its recipe says", "[low_precision]") {
  const std::string tp = "tensor_model_parallel_size = 2\nsequence_parallel = true\n";
  const auto forward = [&](const char* recipe, const char* more, const std::string& layout) {
    for (const Recipe& one : kRecipes)
      if (one.name == std::string(recipe))
        return works_of(build_schedule(scenario_of(layout, one.keys + std::string(more))), "layer.forward");
    return Counts{};
  };
  const auto backward = [&](const char* recipe, const char* more) {
    for (const Recipe& one : kRecipes)
      if (one.name == std::string(recipe))
        return works_of(build_schedule(scenario_of(tp, one.keys + std::string(more))), "layer.backward");
    return Counts{};
  };
  CHECK(forward("mxfp8", "", "") == Counts{{"quantise", 4}, {"gemm.codes", 4}});
  CHECK(forward("delayed", "", "") == Counts{{"quantise", 4}, {"gemm.codes", 4}});
  CHECK(forward("tensorwise", "", "") == Counts{{"amax", 4}, {"update_scale", 4}, {"quantise", 4}, {"gemm.codes", 4}});
  // A gathered matrix has one scale on all ranks: X of qkv and fc1.
  CHECK(forward("tensorwise", "", tp) == Counts{{"amax", 4},
                                                {"all_reduce.max", 2},
                                                {"update_scale", 4},
                                                {"quantise", 4},
                                                {"all_gather.codes", 2},
                                                {"gemm.codes", 4}});
  CHECK(forward("nvfp4", "", tp) ==
        Counts{{"amax", 4}, {"all_reduce.max", 2}, {"quantise", 4}, {"all_gather.codes", 2}, {"gemm.codes", 4}});
  CHECK(forward("blockwise", "", tp) == Counts{{"quantise", 4}, {"all_gather.codes", 2}, {"gemm.codes", 4}});

  // The backward pass gathers dY of proj and fc2 once where one copy serves dgrad and wgrad, else twice, and X of qkv
  // and fc1 a second time.
  CHECK(backward("delayed", "") == Counts{{"quantise", 4}, {"all_gather.codes", 4}, {"gemm.codes", 8}});
  CHECK(backward("delayed", "fp8_transposes = true\n") ==
        Counts{{"quantise", 4}, {"all_gather.codes", 4}, {"transpose_codes", 4}, {"gemm.codes", 8}});
  CHECK(backward("mxfp8", "") == Counts{{"quantise", 4}, {"all_gather.codes", 6}, {"gemm.codes", 8}});
  CHECK(backward("blockwise", "fp8_transposes = true\n") ==
        Counts{{"quantise", 4}, {"all_gather.codes", 6}, {"transpose_codes", 4}, {"gemm.codes", 8}});
  CHECK(backward("nvfp4", "") == Counts{{"amax", 4},
                                        {"all_reduce.max", 2},
                                        {"quantise", 4},
                                        {"all_gather.codes", 6},
                                        {"transpose_codes", 4},
                                        {"gemm.codes", 8}});

  const Schedule delayed = build_schedule(scenario_of(tp, kRecipes[0].keys));
  CHECK(works_of(delayed, "fp8.forward.update") == Counts{{"all_reduce.max", 1}, {"update_scale", 1}});
  CHECK(works_of(delayed, "layer.quantise_weights") == Counts{{"quantise", 4}});
  const BoundProgram program = bind(delayed, 0);
  const auto count = [&](const std::string& name) {
    return std::count_if(program.ops.begin(), program.ops.end(),
                         [&](const BoundOp& op) { return delayed.operations[op.op].name == name; });
  };
  CHECK(count("qkv.quantise_w") == 4);  // once a step and layer
  CHECK(count("qkv.quantise_x") == 8);  // once a micro-batch
  CHECK(count("fp8.forward.update_scales") == 2);
}

TEST_CASE("codes are kept in place of inputs", "[low_precision]") {
  const Schedule numbers = build_schedule(scenario_of("", ""));
  const Schedule codes = build_schedule(scenario_of("", kRecipes[3].keys));
  CHECK(storage_named(numbers, "ln_1.out")->kind == BufferKind::activation);
  CHECK(storage_named(codes, "ln_1.out")->kind == BufferKind::workspace);
  const Storage* kept = storage_named(codes, "qkv.x.column_codes");
  REQUIRE(kept != nullptr);
  CHECK(kept->kind == BufferKind::activation);
  CHECK(kept->bytes() == 256 * 256 * 33 / 32);
  // With transposes the one copy that is kept is the transposed one.
  const Schedule transposed =
      build_schedule(scenario_of("", std::string(kRecipes[1].keys) + "fp8_transposes = true\n"));
  CHECK(storage_named(transposed, "qkv.x.codes")->kind == BufferKind::workspace);
  CHECK(storage_named(transposed, "qkv.x.column_codes")->kind == BufferKind::activation);
  CHECK(storage_named(transposed, "qkv.weight.column_codes")->bytes() == 3 * 256 * 256);
}

TEST_CASE("first and last layers may stay in bf16", "[low_precision]") {
  const Scenario ends = scenario_of("tensor_model_parallel_size = 2\nsequence_parallel = true\n",
                                    std::string(kRecipes[1].keys) + "first_last_layers_bf16 = true\n");
  const Schedule schedule = build_schedule(ends);
  CHECK(works_of(schedule, "layer.forward.numbers") == Counts{{"gemm", 4}, {"all_gather", 2}});
  CHECK(works_of(schedule, "layer.forward")["gemm.codes"] == 4);
  for (const std::string& mode : modes_of(ends)) {
    INFO(mode);
    CHECK(problems_of(with_mode(ends, mode, 2)).empty());
  }
}

TEST_CASE("schedules of all recipes verify in all layouts and modes", "[low_precision]") {
  testing::Cases cases;
  for (const Recipe& recipe : kRecipes)
    for (const char* layout :
         {"data_parallel_size = 2\n", "data_parallel_size = 2\ntensor_model_parallel_size = 2\n",
          "data_parallel_size = 2\ntensor_model_parallel_size = 2\nsequence_parallel = true\n",
          "tensor_model_parallel_size = 2\nsequence_parallel = true\npipeline_model_parallel_size = 2\n"
          "virtual_pipeline_model_parallel_size = 2\n[overlap]\noverlap_p2p_comm = true\n",
          "pipeline_model_parallel_size = 2\npipeline_schedule = \"zb-h1\"\ntensor_model_parallel_size = 2\n"
          "sequence_parallel = true\n",
          "context_parallel_size = 2\ndata_parallel_size = 2\n",
          "data_parallel_size = 2\ndata_parallel_sharding_strategy = \"optim_grads_params\"\n"})
      for (const char* transposes : {"", "fp8_transposes = true\n"})
        for (const char* recompute : {"", "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n",
                                      "recompute_granularity = \"selective\"\nrecompute_modules = [\"mlp\"]\n"}) {
          const bool repeats = *recompute != 0;
          const bool is_refused = repeats && (std::string(recipe.name) == "delayed" ||
                                              std::string(layout).find("zb-h1") != std::string::npos);
          if (is_refused || !cases.takes_next()) continue;
          const Scenario scenario = scenario_of(layout, recipe.keys + std::string(transposes) + recompute);
          for (const std::string& mode : modes_of(scenario)) {
            if (testing::is_fast_suite() && mode != modes_of(scenario).back() && mode != "tp_flash_overlap") continue;
            INFO(recipe.name << "\n" << layout << transposes << recompute << mode);
            for (const std::string& problem : problems_of(with_mode(scenario, mode, scenario.parallel.ranks())))
              FAIL_CHECK(problem);
          }
        }
}

namespace {

const std::string kLatent =
    "multi_latent_attention = true\nqk_layernorm = true\nq_lora_rank = 256\nkv_lora_rank = 128\nqk_head_dim = 64\n"
    "qk_pos_emb_head_dim = 128\nv_head_dim = 64\n";
const std::string kExperts =
    "num_moe_experts = 4\nmoe_router_topk = 2\nmoe_ffn_hidden_size = 256\nmoe_shared_expert_intermediate_size = 256\n"
    "moe_layer_freq = [0, 1, 1, 1]\n";

constexpr const char* kSends = "moe_dispatch_fwd_dtype = \"mxfp8\"\nmoe_combine_bwd_dtype = \"mxfp8\"\n";

Scenario mixture_of(const std::string& model, const std::string& parallel, const std::string& training) {
  Scenario scenario = parse_scenario(kModel + "add_bias_linear = false\n" + model + "[parallel]\n" + parallel +
                                         "[training]\nprecision = \"bf16\"\nglobal_batch_size = 4\n" + training,
                                     "s");
  scenario.training.global_batch_size = 2 * scenario.parallel.data_parallel_size * scenario.training.micro_batch_size;
  return scenario;
}

}  // namespace

TEST_CASE("experts and latent attention have the works that the recipe says", "[low_precision][experts]") {
  const auto works = [](const char* keys, const char* block) {
    return works_of(build_schedule(mixture_of(kLatent + kExperts, "", keys)), block);
  };
  const auto only = [](Counts counts) {
    Counts kept;
    for (const auto& [kind, count] : counts)
      if (kind.starts_with("gemm") || kind.starts_with("grouped") || kind == "quantise" || kind == "amax" ||
          kind == "update_scale")
        kept[kind] = count;
    return kept;
  };
  // Linear layers: two down, two up, proj, two of the shared expert. The router multiplies numbers.
  CHECK(only(works(kRecipes[3].keys, "layer.forward.experts")) ==
        Counts{{"quantise", 9}, {"gemm.codes", 7}, {"gemm", 1}, {"grouped_gemm.codes", 2}});
  CHECK(only(works(kRecipes[1].keys, "layer.forward.experts")) == Counts{{"amax", 9},
                                                                         {"update_scale", 9},
                                                                         {"quantise", 9},
                                                                         {"gemm.codes", 7},
                                                                         {"gemm", 1},
                                                                         {"grouped_gemm.codes", 2}});
  CHECK(only(works(kRecipes[0].keys, "layer.forward.experts")) ==
        Counts{{"quantise", 9}, {"gemm.codes", 7}, {"gemm", 1}, {"grouped_gemm.codes", 2}});
  CHECK(only(works(kRecipes[4].keys, "layer.forward.experts")) ==
        Counts{{"amax", 9}, {"quantise", 9}, {"gemm.codes", 7}, {"gemm", 1}, {"grouped_gemm.codes", 2}});
  CHECK(only(works(kRecipes[3].keys, "layer.backward.experts")) ==
        Counts{{"quantise", 9}, {"gemm.codes", 14}, {"gemm", 2}, {"grouped_gemm.codes", 4}});
  CHECK(only(works(kRecipes[3].keys, "layer.quantise_weights.experts")) == Counts{{"quantise", 9}});
  CHECK(only(works(kRecipes[3].keys, "layer.quantise_weights")) == Counts{{"quantise", 7}});  // the dense layer
}

TEST_CASE("rows of experts go to their ranks as codes with their scales", "[low_precision][experts]") {
  const std::string layout =
      "data_parallel_size = 2\nexpert_model_parallel_size = 2\nmoe_token_dispatcher_type = \"flex\"\n"
      "moe_flex_dispatcher_backend = \"ncclep\"\n";
  const auto bytes = [&](const std::string& keys, const char* exchange) {
    const Schedule schedule = build_schedule(mixture_of(kExperts, layout, kRecipes[3].keys + keys));
    const Operation& operation = schedule.operations[*schedule.find_operation(exchange)];
    return std::get<Collective>(operation.work).elements * bytes_of(schedule.dtype_of(operation.accesses[0].view));
  };
  constexpr std::int64_t kRow = 256;  // numbers
  for (const char* sent : {"experts.dispatch.fprop", "experts.dispatch.dgrad"}) {
    const std::int64_t rows = bytes("", sent) / (2 * kRow);
    CHECK(bytes(kSends, sent) == rows * (kRow + kRow / 32));
  }
  for (const char* other : {"experts.combine.fprop", "experts.combine.dgrad", "experts.weights.dispatch.fprop"})
    CHECK(bytes(kSends, other) == bytes("", other));
  // A token becomes codes once, before the copies of its rows; the receiver makes the second copy of what came.
  const Schedule schedule = build_schedule(mixture_of(kExperts, layout, std::string(kRecipes[3].keys) + kSends));
  const auto quantise = [&](const char* name) {
    return std::get<Quantise>(schedule.operations[*schedule.find_operation(name)].work);
  };
  for (const auto& [sent, came] : {std::pair{"experts.fc1.quantise_sent_x", "experts.fc1.quantise_x"},
                                   std::pair{"experts.fc2.quantise_sent_dy", "experts.fc2.quantise_dy"}}) {
    CHECK(quantise(sent).rows == kRow);  // tokens of the rank
    CHECK(quantise(sent).columnwise == ColumnCopy::none);
    CHECK_FALSE(quantise(sent).of_codes);
    CHECK(quantise(came).of_codes);
    CHECK(quantise(came).columnwise == ColumnCopy::plain);
  }
  CHECK_FALSE(schedule.find_tensor("experts.in").has_value());  // rows of numbers do not come
}

TEST_CASE("the only dense layer of a mixture may stay in bf16", "[low_precision][experts]") {
  const Scenario scenario = mixture_of(kExperts, "",
                                       kRecipes[3].keys + std::string("first_last_layers_bf16 = true\n"
                                                                      "num_layers_at_end_in_bf16 = 0\n"));
  const Schedule schedule = build_schedule(scenario);
  CHECK(problems_of(scenario).empty());
  CHECK(schedule.find_operation("fc1.fprop"));
  CHECK_FALSE(schedule.find_operation("fc1.quantise_x"));
  CHECK(schedule.find_operation("experts.fc1.quantise_x"));
}

TEST_CASE("experts and latent attention in low precision verify in all layouts and modes", "[low_precision][experts]") {
  testing::Cases cases;
  for (const std::string& model : {kExperts, kLatent, kLatent + kExperts})
    for (const Recipe& recipe : kRecipes) {
      const bool has_experts = model != kLatent;
      const std::string name = recipe.name;
      for (const char* layout :
           {"data_parallel_size = 2\nexpert_model_parallel_size = 2\n",
            "data_parallel_size = 2\nexpert_model_parallel_size = 2\nmoe_token_dispatcher_type = \"allgather\"\n",
            "data_parallel_size = 2\nexpert_model_parallel_size = 2\nmoe_pad_expert_input_to_capacity = true\n"
            "moe_expert_capacity_factor = 2.0\n",
            "data_parallel_size = 2\nexpert_model_parallel_size = 2\nmoe_token_dispatcher_type = \"flex\"\n"
            "moe_flex_dispatcher_backend = \"ncclep\"\n",
            "tensor_model_parallel_size = 2\nsequence_parallel = true\n",
            "tensor_model_parallel_size = 2\nsequence_parallel = true\nexpert_tensor_parallel_size = 1\n"
            "expert_model_parallel_size = 2\nmoe_expert_rank_capacity_factor = 1.5\n",
            "pipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 2\ndata_parallel_size = 2\n"
            "expert_model_parallel_size = 2\n[overlap]\noverlap_p2p_comm = true\n",
            "data_parallel_size = 2\ndata_parallel_sharding_strategy = \"optim_grads_params\"\n"})
        for (const char* transposes : {"", "fp8_transposes = true\n"})
          for (const char* recompute :
               {"", "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n",
                "recompute_granularity = \"selective\"\nrecompute_modules = [\"moe_act\", \"layernorm\"]\n",
                "recompute_granularity = \"selective\"\nrecompute_modules = [\"shared_experts\"]\n",
                "recompute_granularity = \"selective\"\nrecompute_modules = [\"moe\"]\n",
                "recompute_granularity = \"selective\"\nrecompute_modules = [\"mla_up_proj\", \"layernorm\"]\n"}) {
            const std::string modules = recompute, where = layout;
            if (!has_experts && (modules.find("\"moe") != modules.npos || modules.find("shared") != modules.npos ||
                                 where.find("expert") != where.npos))
              continue;
            if (model == kExperts && modules.find("mla") != modules.npos) continue;
            if (!modules.empty() && name == "delayed") continue;
            if (!cases.takes_next()) continue;
            const bool sends = name == "mxfp8" && where.find("ncclep") != where.npos;
            const Scenario scenario =
                mixture_of(model, layout, recipe.keys + std::string(transposes) + recompute + (sends ? kSends : ""));
            for (const std::string& mode : modes_of(scenario)) {
              if (testing::is_fast_suite() && mode != modes_of(scenario).back() &&
                  mode != "overlap_moe_expert_parallel_comm")
                continue;
              INFO(model << recipe.name << "\n" << layout << transposes << recompute << mode);
              for (const std::string& problem : problems_of(with_mode(scenario, mode, scenario.parallel.ranks())))
                FAIL_CHECK(problem);
            }
          }
    }
}

TEST_CASE("combinations that frameworks refuse, and what is not modelled, are refused by name", "[low_precision]") {
  const auto refusal = [](const std::string& parallel, const std::string& training) {
    return message_of([&] { scenario_of(parallel, training); });
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(refusal("", "fp8_format = \"hybrid\"\nfp4_format = \"e2m1\"\n"),
             Contains("fp4_format") && Contains("fp8_format = none"));
  CHECK_THAT(refusal("", "fp8_format = \"hybrid\"\nfirst_last_layers_bf16 = true\n"),
             Contains("first_last_layers_bf16") && Contains("other than delayed"));
  CHECK_THAT(refusal("", "fp8_format = \"hybrid\"\nrecompute_granularity = \"full\"\n"), Contains("fp8_recipe"));
  CHECK_THAT(refusal("", "fp8_format = \"hybrid\"\nfp8_wgrad = false\n"), Contains("fp8_wgrad"));
  CHECK_THAT(
      message_of([] { parse_scenario(kModel + "[training]\nprecision = \"fp64\"\nfp8_format = \"hybrid\"\n", "s"); }),
      Contains("precision = bf16 or fp32"));
  CHECK_THAT(refusal("tensor_model_parallel_size = 4\n", "fp8_format = \"e4m3\"\nfp8_recipe = \"blockwise\"\n"),
             Contains("no multiple of 128"));
  const auto of_model = [](const std::string& model, const std::string& keys) {
    return message_of([&] { mixture_of(model, "", keys); });
  };
  std::string narrow = kExperts;
  narrow.replace(narrow.find("256"), 3, "96");
  CHECK_THAT(of_model(narrow, kRecipes[4].keys),
             Contains("96 columns of experts.fc1 on a rank, which is no multiple of 128"));
  std::string odd = kLatent;
  odd.replace(odd.find("256"), 3, "252");
  CHECK_THAT(of_model(odd, kRecipes[3].keys), Contains("252 columns of q_down on a rank, which is no multiple of 32"));
  CHECK_THAT(message_of([] {
               parse_scenario("platform = \"h100-sxm\"\n" + kModel +
                                  "[training]\nprecision = \"bf16\"\nfp8_format = \"e4m3\"\nfp8_recipe = \"mxfp8\"\n",
                              "s");
             }),
             Contains("compute capability 10.0"));
  const Scenario on_hopper = parse_scenario(
      "platform = \"h100-sxm\"\n" + kModel + "[training]\nprecision = \"bf16\"\nfp8_format = \"e4m3\"\n", "s");
  CHECK(on_hopper.training.low_precision.fp8_transposes);
  const Scenario fused = scenario_of("", "fp8_format = \"e4m3\"\nfp8_recipe = \"tensorwise\"\ngelu_fusion = true\n");
  CHECK_FALSE(gates_of(fused).acts("gelu_fusion"));
}
