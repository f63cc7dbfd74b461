#include "interchange/recipe.hpp"

#include <catch2/catch.hpp>

#include "interchange/bridge_recipes.hpp"
#include "interchange/megatron.hpp"
#include "interchange/perf_recipes.hpp"
#include "interchange/precision_names.hpp"
#include "interchange/torchtitan.hpp"
#include "interchange/yaml.hpp"
#include "tests/message_of.hpp"

using namespace stretto;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

const std::string kNemo = R"(
run:
  name: llama3_tiny
trainer:
  num_nodes: 4
  devices: 8
  precision: bf16
  max_steps: 500
exp_manager:
  name: x
model:
  micro_batch_size: 1
  global_batch_size: 64  # a comment
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 2
  context_parallel_size: 2
  encoder_seq_length: 1024
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 8
  hidden_size: 512
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 8
  num_query_groups: null
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  qk_layernorm: true
  add_qkv_bias: true
  sequence_parallel: true
  overlap_p2p_comm: true
  batch_p2p_comm: false
  ub_tp_comm_overlap: true
  fp8: False
  fp8_hybrid: True
  tokenizer: {library: huggingface, type: meta-llama/Meta-Llama-3-8B}
  optim:
    name: mcore_distributed_optim
    overlap_grad_sync: true
    lr: 1e-4
    betas:
    - 0.9
    - 0.98
)";

Scenario taken(const std::string& text, ImportOptions options = {}) {
  return parse_scenario(from_recipe(text, "r.yaml", options).text, "r");
}
std::string recipe_refusal(const std::string& text) {
  return testing::message_of([&] { from_recipe(text, "r.yaml"); });
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("YAML of recipes is read as YAML", "[yaml]") {
  const Yaml yaml = parse_yaml(R"(%YAML 1.1
---
a: 1   # one
b: {c: [1, 2.5, x y], d: "q # r", e: ${multiply:2, ${a}}}
list:
- -3
- k: v
  l: ~
- [a,
   b]
text: |
  two
  lines
long: a word
  that goes on
'quoted key': 'single'
big: 1_000
tag: !!int 7
off: False
below:
  true
)",
                               "y");
  const Json expected = Json::parse(
      R"({"a":1,"b":{"c":[1,2.5,"x y"],"d":"q # r","e":"${multiply:2, ${a}}"},"list":[-3,{"k":"v","l":null},["a","b"]],
    "text":"two\nlines\n","long":"a word that goes on","quoted key":"single","big":1000,"tag":7,"off":false,"below":true})");
  CHECK(yaml.root == expected);
  CHECK(yaml.lines.at("list.1.k") == 7);
  Json references = Json::parse(
      R"({"a":2,"b":{"c":"${multiply:3, ${..a}}","d":"${.c}","e":"${x.b.c}","f":"${none}","g":"${f}/x","h":"${b.h}"}})");
  resolve_references(references);
  CHECK(references["b"] == Json::parse(R"({"c":6,"d":6,"e":6,"f":null,"g":"${f}/x","h":null})"));
  CHECK(parse_yaml("x: {a, b: [c, \"d]\"], \"e:f\": {g: 1}}", "y").root["x"] ==
        Json::parse(R"({"a":null,"b":["c","d]"],"e:f":{"g":1}})"));
  for (const char* text : {"a: [}]", "a: {]}", "a: [1, {b: ]}", "a: [1] 2"})
    CHECK(testing::message_of([&] {
            parse_yaml(text, "y");
          }).find("y:1: expected the end of what the bracket begins") == 0);
  // A long key is repeated in the place of all that stands below it, and a list that is named often becomes as many.
  std::string deep = std::string(100'000, 'k') + ":\n", often = "a: [";
  for (int i = 0; i < 10'000; ++i) deep += " k" + std::to_string(i) + ": 1\n", often += "1,";
  often += "]\nb: [";
  for (int i = 0; i < 10'000; ++i) often += "1,";
  often += "]\n";
  CHECK(testing::message_of([&] { parse_yaml(deep, "y"); }).find("reading it takes more than 64 MiB") !=
        std::string::npos);
  Json named = parse_yaml(often, "y").root;
  for (int i = 0; i < 1'000; ++i) named["c" + std::to_string(i)] = "${a}";
  CHECK(testing::message_of([&] { resolve_references(named, "y"); }).find("y: reading it takes more than") == 0);
  for (const char* text : {"a: [1, 2", "a: {b", "a\nb", "- a\nb: 1", "  a: 1\n b: 2", "\t"})
    CHECK_NOTHROW(testing::message_of([&] { parse_yaml(text, "y"); }));
}

TEST_CASE("a configuration of NeMo is taken", "[recipe]") {
  const Scenario s = taken(kNemo);
  // grad_sync_dtype is fp32 where nothing says otherwise.
  CHECK(s.framework.name == "nemo-fp32-grads");
  CHECK(s.overlap.grad_reduce_in_fp32);
  CHECK(s.parallel.ranks() == 32);
  CHECK(s.parallel.data_parallel_size == 4);
  CHECK(s.parallel.virtual_pipeline_model_parallel_size == 2);
  CHECK(s.model.ffn_hidden_size == 2048);
  CHECK(s.model.swiglu);
  CHECK(s.model.vocab_size == 128256);
  CHECK_FALSE(s.model.add_bias_linear);
  CHECK(s.parallel.sequence_parallel);
  CHECK(s.overlap.tp_comm_overlap);
  CHECK(s.overlap.overlap_p2p_comm);
  CHECK(s.overlap.overlap_grad_reduce);
  CHECK_FALSE(s.overlap.overlap_param_gather);
  CHECK(s.model.qk_layernorm);
  CHECK(s.cluster.cuda_device_max_connections == 1);
  CHECK(s.training.adam_beta2 == 0.98);
  CHECK(s.model.add_qkv_bias);
  // A setting that only says how a switch acts stands with the switch, and not among those without effect.
  std::string offloading = kNemo;
  offloading.insert(offloading.find("  add_qkv_bias"), "  cpu_offloading_num_layers: 4\n  cpu_offloading: true\n");
  for (const std::string& note : from_recipe(offloading, "r.yaml").notes)
    if (note.find("cpu_offloading") != std::string::npos)
      CHECK_THAT(note, Catch::StartsWith("not modelled: model.cpu_offloading: true") &&
                           Catch::EndsWith("; model.cpu_offloading_num_layers belongs to it"));
  ImportOptions options;
  options.gpus = 64;
  CHECK(taken(kNemo, options).parallel.data_parallel_size == 8);
  options.overrides = {"parallel.tensor_model_parallel_size=4"};
  CHECK(taken(kNemo, options).parallel.data_parallel_size == 4);
}

TEST_CASE("NeMo's and Megatron-Bridge's spellings of low precision are taken", "[recipe]") {
  const LowPrecision nemo = taken(replaced(kNemo, "fp8: False", "fp8: True")).training.low_precision;
  CHECK(nemo.fp8_format == LowPrecision::Fp8Format::hybrid);
  CHECK(nemo.fp8_recipe == LowPrecision::Fp8Recipe::delayed);
  CHECK_FALSE(taken(kNemo).training.low_precision.is_on());
  using Json = nlohmann::json;
  CHECK(low_precision_of("bf16_with_mxfp8_mixed").at("training.fp8_recipe") == Json("mxfp8"));
  CHECK(low_precision_of("bf16-with-fp8-delayed-scaling-mixed").at("training.fp8_amax_history_len") == Json(1024));
  CHECK(low_precision_of("bf16_with_fp8_current_scaling_mixed").at("training.first_last_layers_bf16") == Json(true));
  CHECK_FALSE(low_precision_of("fp8_cs").contains("training.first_last_layers_bf16"));
  CHECK(low_precision_of("FP8_SC").at("overlap.fp8_param_gather") == Json(false));
  CHECK(low_precision_of("nvfp4").at("training.fp4_format") == Json("e2m1"));
  CHECK(low_precision_of("bf16_mixed").empty());
}

TEST_CASE("experts and encoders in recipes are taken or refused by their names alone", "[recipe]") {
  CHECK(taken(replaced(kNemo, "fp8: False", "num_moe_experts: 8")).model.experts.num_moe_experts == 8);
  const std::string shared = replaced(kNemo, "fp8: False",
                                      "num_moe_experts: 8\n  expert_model_parallel_size: 2\n"
                                      "  expert_tensor_parallel_size: 1\n  moe_token_dispatcher_type: alltoall");
  CHECK(taken(shared).parallel.expert_model_parallel_size == 2);
  CHECK_THAT(recipe_refusal("model:\n  num_attention_heads: 2\n  fp8_multi_head_attention: True\n"),
             Contains("attention in fp8 is not modelled yet"));
  CHECK_THAT(
      recipe_refusal("model:\n  micro_batch_size: 1\n  encoder:\n    hidden_size: 2\n  decoder:\n    hidden_size: 2\n"),
      Contains("encoders are not modelled yet"));
}

TEST_CASE("Megatron-Bridge's YAML is taken, with its CommOverlapConfig's defaults", "[recipe]") {
  const std::string bridge = R"(
model:
  num_layers: 4
  hidden_size: 256
  num_attention_heads: 4
  seq_length: 128
  vocab_size: 1000
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 2
  sequence_parallel: true
  gated_linear_unit: true
  normalization: RMSNorm
train: {micro_batch_size: 1, global_batch_size: 8}
dataset: {seq_length: 128}
comm_overlap: {tp_comm_overlap: true, bucket_size: null}
)";
  const Scenario s = taken(bridge);
  CHECK(s.overlap.tp_comm_overlap);
  CHECK(s.overlap.overlap_grad_reduce);
  CHECK(s.overlap.overlap_p2p_comm);
  CHECK(s.overlap.bucket_size == std::int64_t{128} << 20);
  CHECK_THAT(recipe_refusal(replaced(bridge, "bucket_size: null", "bucket_size: -3")),
             Contains("bucket_size: expected a whole number of at least 1"));
  // The recipe is not available; only its name and overrides are read.
  const Translation by_name = from_recipe(
      "train: {global_batch_size: 8, micro_batch_size: 1}\nmodel: {seq_length: 4096}\n", "llama32_1b_pretrain.yaml");
  const Scenario pretrain = parse_scenario(by_name.text, "r");
  CHECK(pretrain.model.num_layers == 16);
  // The recipe's vocabulary is that of its NullTokenizer.
  CHECK(pretrain.model.vocab_size == 32000);
  CHECK(pretrain.overlap.overlap_param_gather);
  CHECK_THAT(recipe_refusal("model:\n  num_attention_heads: 8\n"), Contains("expected the sizes of a model"));
  // A configuration of Megatron-LM's functional tests.
  const Scenario test = taken(
      "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 64\n  "
      "--num-attention-heads: 4\n  --seq-length: 32\n"
      "  --max-position-embeddings: 32\n  --tokenizer-type: NullTokenizer\n  --vocab-size: 250\n  --bf16: true\n  "
      "--swiglu: false\n");
  CHECK(test.cluster.cuda_device_max_connections == 1);
  CHECK(test.training.precision == "bf16");
  CHECK_FALSE(test.model.swiglu);
  // Its variables are those of --env; without a value a flag is as if it were absent.
  ImportOptions options;
  options.environment = {{"TP", "2"}};
  const Translation variables = from_recipe(
      "MODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 64\n  --num-attention-heads: 4\n  --seq-length: 32\n"
      "  --tokenizer-type: NullTokenizer\n  --vocab-size: 250\n  --tensor-model-parallel-size: ${TP}\n"
      "  --pipeline-model-parallel-size: ${PP}\n  --micro-batch-size: ${MBS:-3}\n  --save: ${OUT}/x\n",
      "t.yaml", options);
  const Scenario of_env = parse_scenario(variables.text, "t");
  CHECK(of_env.parallel.tensor_model_parallel_size == 2);
  CHECK(of_env.parallel.pipeline_model_parallel_size == 1);
  CHECK(of_env.training.micro_batch_size == 3);
  CHECK(std::count_if(variables.notes.begin(), variables.notes.end(),
                      [](const std::string& note) { return note.find("nothing sets $PP") != std::string::npos; }) == 1);
}

TEST_CASE("a script that runs a recipe of Megatron-Bridge has its overrides", "[recipe]") {
  const auto script = [](const std::string& recipe) {
    return "python -m torch.distributed.run --nproc_per_node=8 scripts/training/run_recipe.py --recipe " + recipe +
           "_config train.global_batch_size=16 train.micro_batch_size=1 'model.seq_length=4096' "
           "model.tensor_model_parallel_size=2\n";
  };
  const auto scenario = [](const std::string& text) { return parse_scenario(from_megatron(text, "run.sh").text, "s"); };
  const Scenario s = scenario(script("llama3_8b_pretrain"));
  CHECK(s.model.num_layers == 32);
  CHECK(s.model.seq_length == 4096);
  CHECK(s.parallel.tensor_model_parallel_size == 2);
  CHECK(s.parallel.context_parallel_size == 2);  // the recipe's
  CHECK(s.parallel.data_parallel_size == 2);
  // Sizes that overrides leave out are the recipe's model's, however many they change.
  const Scenario small = scenario(
      "python run_recipe.py --recipe llama3_8b_pretrain_config model.num_layers=4 model.hidden_size=1024 "
      "model.num_attention_heads=8 model.num_query_groups=4 '++model.recompute_modules=[core_attn,mlp]' "
      "+model.recompute_granularity=selective ~model.tensor_model_parallel_size ddp.overlap_grad_reduce=false "
      "ddp.overlap_param_gather=false\n");
  CHECK(small.model.num_layers == 4);
  CHECK(small.model.vocab_size == 32000);  // of the recipe
  CHECK(small.model.swiglu);
  CHECK(small.training.recompute.modules.size() == 2);
  CHECK_FALSE(small.overlap.overlap_grad_reduce);
  // Batch, layout, sequence and types are the recipe's where no override says otherwise.
  const Scenario large = scenario("python run_recipe.py --recipe llama3_70b_pretrain_config\n");
  CHECK(large.training.global_batch_size == 512);
  CHECK(large.parallel.virtual_pipeline_model_parallel_size == 5);
  CHECK(large.parallel.data_parallel_size == 1);
  CHECK(large.overlap.tp_comm_overlap);
  CHECK(large.overlap.bucket_size == std::int64_t{128} << 20);
  CHECK(large.overlap.grad_reduce_in_fp32);
  const Scenario longer = scenario("torchrun --nproc_per_node=8 run_recipe.py --recipe qwen3_600m_sft_128k_config\n");
  CHECK(longer.model.seq_length == 131072);
  CHECK(longer.parallel.context_parallel_size == 8);
  const Scenario of_hardware = scenario("python run_recipe.py --recipe qwen3_8b_pretrain_4gpu_h100_bf16_config\n");
  CHECK(of_hardware.parallel.tensor_model_parallel_size == 4);
  CHECK(of_hardware.model.padded_vocab_size == 152064);
  const Scenario adapters = scenario("python run_recipe.py --recipe qwen25_7b_peft_config\n");
  CHECK(adapters.training.frozen_base);
  CHECK(adapters.training.global_batch_size == 128);
  const auto refused = [](const std::string& text) {
    return testing::message_of([&] { from_megatron(text, "run.sh"); });
  };
  CHECK_THAT(refused("R=x$1\npython run_recipe.py --recipe $UNSET --step_func qwen3_vl_step\n"),
             Contains("image encoders are not modelled yet: --step_func qwen3_vl_step"));
  CHECK_THAT(refused("python run_recipe.py --recipe $NAME\n"), Contains("--env NAME=NAME"));
  CHECK_THAT(refused("python run_recipe.py --recipe llama3_8b_low_precision_pretrain_config\n"),
             Contains("fp8 is not modelled yet"));
  CHECK_THAT(refused(script("step35_196b_a11b_pretrain")),
             Contains("run.sh: recipes with experts are not modelled yet"));
  CHECK_THAT(refused(script("qwen3_next_80b_pretrain")), Contains("run.sh: linear attention is not modelled yet"));
  // Import takes the last of several programs, and a note says so.
  const std::vector<std::string> several =
      from_megatron(
          "for T in 1 2; do python run_recipe.py --recipe llama32_1b_sft_config model.seq_length=$((T * 1024)); done\n",
          "run.sh")
          .notes;
  CHECK(std::count_if(several.begin(), several.end(), [](const std::string& note) {
          return note.find("2 times with other settings") != std::string::npos;
        }) == 1);
  CHECK_THAT(testing::message_of([] {
               from_recipe("model: {seq_length: 4096}\ntrain: {micro_batch_size: 1}\n", "qwen3_vl_override.yaml");
             }),
             Contains("image encoders are not modelled yet"));
  CHECK(testing::message_of([&] { from_megatron(script("gpt_oss_20b_pretrain"), "run.sh"); }) ==
        "run.sh: biases of experts are not modelled yet: --recipe "
        "gpt_oss_20b_pretrain_config (line 1)");
}

TEST_CASE("Megatron-Bridge's recipes of experts are taken as they are", "[recipe][moepredict]") {
  const auto import = [](const std::string& recipe, const std::vector<std::string>& overrides = {}) {
    ImportOptions options;
    options.overrides = overrides;
    return from_megatron("python run_recipe.py --recipe " + recipe + "_config\n", "run.sh", options);
  };
  const auto scenario = [&](const std::string& recipe) { return parse_scenario(import(recipe).text, "s"); };
  const Scenario qwen = scenario("qwen3_30b_a3b_pretrain_16gpu_h100_bf16");
  CHECK(qwen.parallel.ranks() == 16);
  CHECK(qwen.parallel.expert_model_parallel_size == 16);
  CHECK(qwen.parallel.moe_flex_dispatcher_backend == FlexBackend::hybridep);
  CHECK(qwen.overlap.overlap_moe_expert_parallel_comm);
  CHECK(qwen.training.cuda_graph_modules == std::vector{GraphModule::moe_router, GraphModule::moe_preprocess});
  CHECK(qwen.training.expert_loads.kind == ExpertLoads::Kind::forced);
  CHECK(qwen.framework.name == "megatron-bridge-moe");
  const Scenario first = scenario("qwen3_30b_a3b_pretrain_8gpu_h100_bf16");
  CHECK(first.parallel.tensor_model_parallel_size == 4);
  CHECK(first.training.recompute.granularity == Recompute::Granularity::full);
  const Scenario deepseek = scenario("deepseek_v3_pretrain_1024gpu_h100_bf16");
  CHECK(deepseek.parallel.ranks() == 1024);
  CHECK(deepseek.training.recompute.repeats(Recompute::Module::mla_up_proj));
  CHECK(deepseek.training.recompute.repeats(Recompute::Module::mlp));
  CHECK_FALSE(deepseek.training.recompute.repeats(Recompute::Module::core_attn));
  const std::vector<std::string> notes = import("deepseek_v3_pretrain_1024gpu_h100_bf16").notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("mtp_num_layers") != std::string::npos && note.starts_with("not modelled: ");
  }));
  CHECK(scenario("deepseek_v3_pretrain_1024gpu_h100_fp8cs").training.low_precision.is_on());
  CHECK_THAT(testing::message_of([&] { import("moonlight_16b_pretrain_8gpu_h100_fp8cs"); }),
             Contains("fp8 is not modelled yet"));
  CHECK_NOTHROW(import("moonlight_16b_pretrain_8gpu_h100_fp8cs", {"training.precision=bf16"}));
  for (const BridgeRecipe& recipe : recipes_with_experts()) {
    INFO(recipe.name << ", " << recipe.gpus << " GPUs");
    const std::string name = recipe.name + "_" + std::to_string(recipe.gpus) + "gpu";
    const auto ranks = [&](const char* key) { return recipe.settings.at("model").at(key).get<std::int64_t>(); };
    CHECK(scenario(name).parallel.ranks() ==
          std::max(recipe.gpus, ranks("expert_model_parallel_size") * ranks("pipeline_model_parallel_size")));
  }
}

TEST_CASE("Megatron-Bridge's performance recipes are scenarios", "[recipe][perfrecipes]") {
  CHECK(perf_recipes().size() == 261);
  CHECK(perf_recipe_by_name("llama3_8b_pretrain_8gpu_h100_bf16_config") != nullptr);
  // Each eighth of them, which takes all models, GPUs and precisions in turn.
  for (std::size_t i = 0; i < perf_recipes().size(); i += 8) {
    const PerfRecipe& recipe = perf_recipes()[i];
    INFO(recipe.name);
    const Scenario s =
        parse_scenario(from_megatron("python run_recipe.py --recipe " + recipe.name + "_config\n", "run.sh").text, "s");
    CHECK(s.parallel.ranks() >= recipe.gpus);
    CHECK(s.training.low_precision.is_on() == (recipe.key.precision != "bf16"));
    CHECK(s.training.frozen_base == (recipe.key.task == "peft"));
  }
}

TEST_CASE("Megatron-Bridge's benchmark commands are its recipes with the options' changes", "[recipe][perfrecipes]") {
  struct Command {
    std::string words;
    std::vector<std::string> lines;  // of the scenario
  };
  const std::string deepseek = "-m deepseek -mr deepseek_v3 ", llama = "-m llama -mr llama3_70b ";
  const Command commands[] = {
      {deepseek + "--num_gpus 256 -g gb300 -c fp8_mx --moe_a2a_overlap true --account a --partition p",
       {"platform = \"gb300-nvl72\"", "profile = \"megatron-bridge-moe\"", "data_parallel_size = 128",
        "cuda_graph_modules = [\"full_iteration\"]", "moe_expert_rank_capacity_factor = 1.5",
        "delay_wgrad_compute = true", "fp8_recipe = \"mxfp8\"", "global_batch_size = 4096",
        "use_precision_aware_optimizer = true", "exp_avg_dtype = \"bf16\"", "exp_avg_sq_dtype = \"bf16\""}},
      {llama + "--num_gpus 64 --gpus_per_node 8 -g h100 -c bf16",
       {"platform = \"h100-sxm\"", "profile = \"megatron-bridge\"", "tensor_model_parallel_size = 4",
        "context_parallel_size = 2", "virtual_pipeline_model_parallel_size = 5", "global_batch_size = 256",
        "cuda_device_max_connections = 1", "method = \"pipeline\"", "use_precision_aware_optimizer = true"}},
      // Without a recipe of 128 GPUs that of most is taken, with a batch for twice the replicas.
      {llama + "-ng 128 -g h100 -c fp8_cs", {"global_batch_size = 512", "data_parallel_size = 4"}},
      {llama + "-ng=128 -g h100 -c fp8_cs -gb 1024", {"global_batch_size = 1024"}},
      // Hydra's words come first, and options win.
      {llama + "-ng 64 -g h100 -tp 8 -cp 1 train.micro_batch_size=2 model.tensor_model_parallel_size=2",
       {"micro_batch_size = 2", "tensor_model_parallel_size = 8", "sequence_parallel = true"}},
      {llama + "-ng 64 -g gb300 -c fp8_cs", {"profile = \"megatron-bridge-fsdp\"", "fsdp_comm_overlap = true"}},
      {llama + "-ng 64 -g gb200 --use_megatron_fsdp true -pp 1 -tp 1 -cp 1 -vp None -rl 80",
       {"fsdp_comm_overlap = true", "recompute_method = \"block\"", "recompute_num_layers = 80"}},
      {"--model_family_name llama --model_recipe llama3_70b --num_gpus 8 --gpu h100 -c fp8_cs --task peft",
       {"profile = \"nemo-dgxc-lora\"", "frozen_base = true", "order = \"tp-cp-ep-pp-dp\""}},
      {"-m llama3 -s 8b -ng 8 -g b200 -c fp8_mx -ce CUDA_DEVICE_MAX_CONNECTIONS=4,A=b",
       {"cuda_graph_modules = [\"full_iteration\"]", "cuda_device_max_connections = 4", "seq_length = 8192"}},
      {"-m qwen -mr qwen3_30b_a3b -ng 16 -g h100 -cv v1 --cuda_graph_impl none --moe_flex_dispatcher_backend None "
       "--recompute_modules moe_act,layernorm",
       {"moe_token_dispatcher_type = \"alltoall\"", "recompute_modules = [\"moe_act\",\"layernorm\"]"}},
      {deepseek + "-ng 1024 -g h100 -c fp8_sc -pp 16 -vp 1", {"fp8_recipe = \"blockwise\"", "(t*4|)*14"}},
      {llama + "-ng 64 -g gb200 -c nvfp4", {"cuda_graph_modules = [\"attn\",\"mlp\"]", "tp_comm_overlap_ag = false"}},
      {"-m kimi -mr kimi_k2 -ng 256 -g gb300", {"preset = \"deepseek-v3\"", "num_moe_experts = 384"}},
  };
  const auto import = [](const std::string& words) {
    ImportOptions options;
    options.environment = {{"GPUS", "64"}};
    return from_megatron("uv run python scripts/performance/setup_experiment.py " + words + "\n", "run.sh", options);
  };
  for (const Command& command : commands) {
    INFO(command.words);
    const std::string text = import(command.words).text;
    for (const std::string& line : command.lines) CHECK_THAT(text, Contains(line));
  }
  CHECK_THAT(import(llama + "-ng $GPUS -g h100").text, Contains("data_parallel_size = 2"));

  const std::pair<std::string, std::string> refused[] = {
      {"-m nemotronh -mr nemotronh_56b -ng 64 -g h100", "run.sh: Mamba layers are not modelled yet: -mr nemotronh_56b"},
      {"-m gpt_oss -mr gpt_oss_120b -ng 64 -g h100", "biases of experts"},
      {"-m qwen -mr qwen3_next_80b_a3b -ng 64 -g h100", "linear attention is not modelled yet"},
      {"-m glm_moe_dsa -mr glm5 -ng 256 -g gb200", "sparse attention is not modelled yet: -mr glm5"},
      {llama + "-ng 64 -g vr200", "run.sh: GPU vr200 is not modelled yet: -g vr200"},
      {llama + "-ng 64 -g h100 -c nvfp4", "the nearest is llama3_70b_pretrain_64gpu_h100_"},
      {"-m llama -mr llama3_80b -ng 64 -g h100", "did you mean \"llama3_70b\"?"},
      {llama + "-ng 48 -g h100",
       "_64gpu_h100_bf16: expected a multiple of 32 GPUs, those of tp 4 x pp 4 x cp 2, got 48"},
      {llama + "-ng $N -g h100", "expected -ng, got none; give --env N=VALUE"},
      {llama + "-ng 64 -g h100 --moe_a2a_overlap true", "expected a recipe whose experts are on several ranks"},
      {llama + "-ng 64 -g h100 --nccl_up true", "did you mean \"--nccl_ub\"?"},
      {llama + "-ng 64 -g h100 -gb 101", "expected a global batch size that is a multiple of 2"},
      {llama + "-ng 64 -g h100 model=5", "run.sh: model: expected model.KEY=VALUE"},
      {llama + "-ng 64 -g h100 train.micro_batch_size=x model.tensor_model_parallel_size=0", "expected"},
      {deepseek + "-ng 256 -g gb300 --use_tokendrop true", "expected a recipe with the all-to-all dispatcher"},
  };
  for (const auto& [words, message] : refused)
    CHECK_THAT(testing::message_of([&] { import(words); }), Contains(message));

  // The launcher of recipes by their names has two nodes here, and twice the batch.
  const Scenario train =
      parse_scenario(from_megatron("bash scripts/training/train.sh --nodes 2 --gpus-per-node 8 --recipe "
                                   "llama3_8b_pretrain_8gpu_h100_fp8cs_config train.micro_batch_size=2\n",
                                   "run.sh")
                         .text,
                     "s");
  CHECK(train.parallel.data_parallel_size == 16);
  CHECK(train.training.global_batch_size == 256);
  CHECK(train.training.micro_batch_size == 2);
}

TEST_CASE("a program in Python that calls a recipe is that recipe with its changes", "[recipe]") {
  ImportOptions options;
  options.read = [](const std::string& path) -> std::optional<std::string> {
    if (!path.ends_with("quick.py")) return std::nullopt;
    return "from x import llama32_1b_pretrain_config\n\ndef main():\n    config = llama32_1b_pretrain_config()\n"
           "    config.train.global_batch_size = 64  # fewer\n    # config.train.micro_batch_size = 2\n    "
           "run(config)\n";
  };
  const Scenario s = parse_scenario(
      from_megatron("C=\"torchrun --nproc_per_node=4 tutorial/quick.py\"\nsrun bash -c \"$C\"\n", "run.sh", options)
          .text,
      "s");
  CHECK(s.model.num_layers == 16);
  CHECK(s.training.global_batch_size == 64);
  CHECK(s.training.micro_batch_size == 1);
  CHECK(s.parallel.data_parallel_size == 4);
}

TEST_CASE("NeMo's types of gradients, buckets and FSDP, adapters and checkpoints by name", "[recipe]") {
  const Scenario apex =
      taken(replaced(kNemo, "name: mcore_distributed_optim",
                     "name: distributed_fused_adam\n    bucket_cap_mb: 100\n    grad_sync_dtype: bf16"));
  CHECK_FALSE(apex.overlap.grad_reduce_in_fp32);
  CHECK(apex.framework.name == "nemo-dgxc");
  CHECK(apex.overlap.bucket_size == 50 * (1 << 20));
  std::string fsdp =
      replaced(kNemo, "fp8: False", "fsdp: True\n  fsdp_sharding_strategy: grad\n  fsdp_grad_reduce_dtype: bf16");
  for (const char* of_stages : {"pipeline_model_parallel_size: 2", "virtual_pipeline_model_parallel_size: 2"})
    fsdp = replaced(fsdp, of_stages, std::string("x") + of_stages);
  const Scenario sharded = taken(fsdp);
  CHECK(sharded.parallel.shards_gradients());
  CHECK_FALSE(sharded.parallel.shards_parameters());
  CHECK_FALSE(sharded.overlap.grad_reduce_in_fp32);
  const Scenario lora = taken(
      "run: {name: a100_13b_1node, model_train_name: llama2}\ntrainer: {num_nodes: 1, devices: 8, precision: bf16}\n"
      "model:\n  encoder_seq_length: 2048\n  micro_batch_size: 1\n  global_batch_size: 32\n  peft: {peft_scheme: "
      "lora}\n");
  CHECK(lora.model.num_layers == 40);
  CHECK(lora.training.frozen_base);
  CHECK(lora.framework.name == "nemo-dgxc-lora");
  CHECK_THAT(recipe_refusal("trainer: {devices: 8}\nmodel:\n  hidden_size: 64\n  micro_batch_size: 1\n  "
                            "global_batch_size: 8\n  num_attention_heads: 8\n  retro: {retro_num_neighbors: 2}\n"),
             Contains("retrieval is not modelled yet"));
}

TEST_CASE("torchtitan's TOML is taken, old and new", "[torchtitan]") {
  const std::string head =
      "# NOTE: this toml config is a preset for 64 A100 GPUs.\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
  const auto read = [&](const std::string& text, ImportOptions options = {}) {
    return parse_scenario(from_torchtitan(head + text, "t.toml", options).text, "t");
  };
  const Scenario s = read(
      "[training]\nlocal_batch_size = 1\nseq_len = 8192\nsteps = 1000\n[parallelism]\ndata_parallel_shard_degree = -1\n"
      "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n[compile]\nenable = "
      "true\ncomponents = [\"model\", \"loss\"]\n");
  CHECK(s.framework.name == "torchtitan-compile");
  CHECK(s.parallel.data_parallel_size == 64);
  CHECK(s.parallel.shards_parameters());
  CHECK(s.overlap.fsdp_comm_overlap);
  CHECK(s.model.ffn_hidden_size == 14336);
  CHECK(s.training.recompute.granularity == Recompute::Granularity::selective_op);
  const Scenario old = read(
      "[training]\nbatch_size = 2\nseq_len = 2048\ntensor_parallel_degree = 8\ncompile = "
      "false\n[experimental]\nenable_async_tensor_parallel = true\n"
      "[activation_checkpoint]\nmode = 'full'\n");
  CHECK(old.framework.name == "torchtitan");
  CHECK(old.parallel.tensor_model_parallel_size == 8);
  CHECK(old.parallel.data_parallel_size == 8);
  CHECK(old.overlap.tp_comm_overlap);
  CHECK(old.training.recompute.granularity == Recompute::Granularity::full);
  const Scenario hybrid = read(
      "[parallelism]\ndata_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 8\nfsdp_reshard_after_forward = "
      "\"never\"\n");
  CHECK(hybrid.parallel.num_distributed_optimizer_instances == 4);
  CHECK_FALSE(hybrid.parallel.reshard_after_forward);
  const auto refused = [&](const std::string& text) {
    return testing::message_of([&] { from_torchtitan(text, "t.toml"); });
  };
  const Scenario codes = read(
      "converters = [\"float8\"]\n[activation_checkpoint]\nselective_ac_option = 'op'\n"
      "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\nfilter_fqns = "
      "[\"output\"]\n");
  CHECK(codes.training.low_precision.fp8_format == LowPrecision::Fp8Format::hybrid);
  CHECK(codes.training.low_precision.fp8_recipe == LowPrecision::Fp8Recipe::tensorwise);
  CHECK(codes.overlap.fp8_param_gather);
  CHECK(codes.training.recompute.granularity == Recompute::Granularity::full);
  CHECK_FALSE(read("converters = [\"float8\"]\n").overlap.fp8_param_gather);
  CHECK_THAT(refused(head + "converters = [\"float8\"]\n[float8]\nrecipe_name = \"rowwise\"\n"),
             Contains("t.toml: fp8 with a scale for each row is not modelled yet: [model] converters (line 5)"));
  CHECK_THAT(refused(head + "converters = [\"mx\"]\n"), Contains("scales of 32 elements are not modelled yet"));
  CHECK_THAT(refused("[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n"),
             Contains("t.toml: experts of torchtitan's models are not modelled yet"));
  CHECK_THAT(refused("[model]\nname = \"llama3\"\nflavor = \"9B\"\n"), Contains("[model] flavor"));
  const auto whole = [](const std::string& text) { return parse_scenario(from_torchtitan(text, "t.toml").text, "t"); };
  // Until 0.1 the vocabulary was the tokenizer's.
  CHECK(whole("[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n").model.vocab_size == 2048);
  CHECK(whole("[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\ntokenizer_path = \"tests/test_tiktoken.model\"\n")
            .model.vocab_size == 2256);
  const Scenario transformers = whole(
      "[model]\nname = \"transformers_modeling_backend\"\nflavor = \"full\"\n[hf_transformers]\n"
      "model = \"Qwen/Qwen3-4B-Instruct-2507\"\n[training]\nseq_len = 1024\n");
  CHECK(transformers.model.num_layers == 32);  // of TitanDenseModelArgs, which win
  CHECK(transformers.model.vocab_size == 151936);
  CHECK(transformers.model.seq_length == 1024);
}

TEST_CASE("A command whose settings are in a further file", "[interchange]") {
  const std::map<std::string, std::string> files = {
      {"launcher_scripts/conf/training/llama/tiny.yaml",
       "defaults:\n  - _self_\n  - optional tp_overlap@model.ub_tp_comm_overlap_cfg: ub\n" + kNemo.substr(1) +
           "    bucket_cap_mb: 125\n  override_vocab_size: 4096\n  data:\n    seq_length: 512\n"},
      {"launcher_scripts/conf/training/tp_overlap/ub.yaml",
       "qkv_dgrad:\n  method: bulk\n  num_sm: 4\nfc2_fprop:\n  method: pipeline\n  num_splits: 8\n"
       "fc1_fprop:\n  method: ring_exchange\n  aggregate: 1\n"},
      {"./llama3_8b.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 8192\n"}};
  ImportOptions options;
  options.read = [&](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
  const std::string launch = "python3 ${D:-/opt/x}/launcher_scripts/main.py training=llama/tiny stages=[training] ";
  const auto scenario = [&](const std::string& words) {
    return parse_scenario(from_megatron(words, "run.sh", options).text, "s");
  };
  const Scenario nemo = scenario(launch +
                                 "data_dir=${DATA} training.trainer.num_nodes=2 training.run.time_limit=0:30:00 "
                                 "training.model.global_batch_size=128 +training.model.optim.grad_sync_dtype=bf16");
  CHECK(nemo.parallel.data_parallel_size == 2);
  CHECK(nemo.training.global_batch_size == 128);
  CHECK_FALSE(nemo.overlap.grad_reduce_in_fp32);
  CHECK(nemo.model.vocab_size == 4096);
  CHECK(nemo.model.padded_vocab_size == 4096);
  CHECK(nemo.model.seq_length == 512);
  CHECK(nemo.overlap.tp_comm_overlap_cfg.size() == 3);
  // "~" removes a key.
  CHECK(nemo.overlap.overlap_grad_reduce);
  CHECK_FALSE(scenario(launch + "~training.model.optim.overlap_grad_sync").overlap.overlap_grad_reduce);

  const Scenario titan = scenario(
      "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file ./llama3_8b.toml --training.seq_len 4096");
  CHECK(titan.model.seq_length == 4096);
  CHECK(titan.parallel.data_parallel_size == 8);
  // job_config.py: without a setting, recomputation is selective, of every second layer.
  CHECK(titan.training.recompute.num_layers == 16);

  const auto refused = [&](const std::string& words) {
    return testing::message_of([&] { from_megatron(words, "run.sh", options); });
  };
  CHECK(scenario(launch + "training.model.fp8=True").training.low_precision.is_on());
  CHECK_THAT(refused("python3 launcher_scripts/main.py training=gpt3/5b"), Contains("gpt3/5b.yaml"));
  CHECK_THAT(refused("python -m torchtitan.train --module llama3 --config llama3_8b"), Contains("config_registry.py"));
}
