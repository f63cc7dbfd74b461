#include "interchange/keyed_document.hpp"

#include <catch2/catch.hpp>

#include "interchange/megatron.hpp"
#include "interchange/recipe.hpp"
#include "tests/message_of.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

Translation translated_document(const std::string& text, const ImportOptions& options = {}) {
  return from_recipe(text, "c.yaml", options);
}
Scenario scenario_of_document(const std::string& text, const ImportOptions& options = {}) {
  return parse_scenario(translated_document(text, options).text, "s");
}
std::string refusal_of_document(const std::string& text) {
  return testing::message_of([&] { translated_document(text); });
}

const std::string kNanotron =
    "general: {project: a, seed: 42}\nmodel:\n  dtype: bfloat16\n  ddp_bucket_cap_mb: 25\n  model_config:\n"
    "    hidden_size: 64\n    intermediate_size: 128\n    num_attention_heads: 8\n    num_hidden_layers: 4\n"
    "    num_key_value_heads: 4\n    is_llama_config: true\n    tie_word_embeddings: true\n    vocab_size: 256\n"
    "    warp: 1\noptimizer: {zero_stage: 1, accumulate_grad_in_fp32: true, clip_grad: 1.0}\n"
    "parallelism: {dp: 4, pp: 1, tp: 2, tp_mode: REDUCE_SCATTER, expert_parallel_size: 1, recompute_layer: true}\n"
    "tokens: {sequence_length: 32, micro_batch_size: 2, batch_accumulation_per_replica: 3, train_steps: 9}\n";

}  // namespace

TEST_CASE("a configuration of nanotron is its own settings", "[import]") {
  const Scenario s = scenario_of_document(kNanotron);
  CHECK(s.model.num_layers == 4);
  CHECK(s.model.ffn_hidden_size == 128);
  CHECK(s.model.kv_heads() == 4);
  CHECK(s.model.swiglu);
  CHECK_FALSE(s.model.untie_embeddings_and_output_weights);
  CHECK(s.parallel.tensor_model_parallel_size == 2);
  CHECK(s.parallel.data_parallel_size == 4);
  CHECK(s.parallel.sequence_parallel);
  CHECK(s.training.micro_batch_size == 2);
  CHECK(s.training.global_batch_size == 24);
  CHECK(s.training.recompute.granularity == Recompute::Granularity::full);
  std::string notes;
  for (const std::string& note : translated_document(kNanotron).notes) notes += note + "\n";
  CHECK_THAT(notes, Contains("not known here, and left out: model.model_config.warp\n"));
  CHECK_THAT(notes, Contains("parallelism.expert_parallel_size"));
  CHECK_THAT(notes, Contains("this is a configuration of nanotron"));
  ImportOptions options;
  options.gpus = 4;
  CHECK(scenario_of_document(kNanotron, options).training.global_batch_size == 12);
  std::string experts = kNanotron;
  experts.replace(experts.find("expert_parallel_size: 1"), 23, "expert_parallel_size: 2");
  CHECK_THAT(refusal_of_document(experts),
             Contains("nanotron's experts are not modelled yet: parallelism.expert_parallel_size"));
  std::string other = kNanotron;
  other.replace(other.find("REDUCE_SCATTER"), 14, "SIDEWAYS");
  CHECK_THAT(refusal_of_document(other), Contains("c.yaml: parallelism.tp_mode: expected one of REDUCE_SCATTER"));
}

TEST_CASE("configurations of llm-foundry, AutoModel, OLMo and OLMo-core are their own settings", "[import]") {
  ImportOptions gpus;
  gpus.gpus = 8;
  const Scenario foundry = scenario_of_document(
      "variables: {n: 32}\nmax_seq_len: ${variables.n}\nmodel:\n  name: mpt_causal_lm\n  d_model: 64\n  n_heads: 4\n"
      "  n_layers: 2\n  expansion_ratio: 3\n  no_bias: true\n  vocab_size: 256\n  attn_config: {attn_impl: flash}\n"
      "global_train_batch_size: 16\ndevice_train_microbatch_size: auto\nprecision: amp_bf16\n"
      "fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE, activation_checkpointing: true}\n",
      gpus);
  CHECK(foundry.framework.name == "llm-foundry");
  CHECK(foundry.model.ffn_hidden_size == 192);
  CHECK(foundry.model.seq_length == 32);
  CHECK_FALSE(foundry.model.add_bias_linear);
  CHECK(foundry.training.micro_batch_size == 1);
  CHECK(foundry.parallel.data_parallel_size == 8);
  CHECK_FALSE(foundry.overlap.grad_reduce_in_fp32);
  const Scenario automodel = scenario_of_document(
      "step_scheduler: {global_batch_size: 32, local_batch_size: 4}\nmodel:\n"
      "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
      "  pretrained_model_name_or_path: meta-llama/Llama-3.1-70B\ndataset: {seq_len: 2048}\n"
      "distributed: {strategy: fsdp2, dp_size: 2, tp_size: 4, pp_size: 4, cp_size: 1, activation_checkpointing: true,\n"
      "  pipeline: {pp_microbatch_size: 2}}\n");
  CHECK(automodel.framework.name == "automodel");
  CHECK(automodel.model.num_layers == 80);
  CHECK(automodel.model.seq_length == 2048);
  CHECK(automodel.parallel.data_parallel_size == 2);
  CHECK(automodel.parallel.pipeline_model_parallel_size == 4);
  CHECK(automodel.training.micro_batch_size == 2);
  CHECK(automodel.training.recompute.granularity == Recompute::Granularity::full);
  const Scenario olmo = scenario_of_document(
      "run_name: a\nmodel:\n  d_model: 64\n  n_heads: 4\n  n_layers: 2\n  mlp_hidden_size: 344\n  rope: true\n"
      "  include_bias: false\n  block_type: sequential\n  layer_norm_type: rms\n  weight_tying: false\n"
      "  activation_type: swiglu\n  max_sequence_length: 32\n  vocab_size: 250\n  embedding_size: 256\n"
      "tokenizer: {identifier: a.json}\ncompile: {fullgraph: false}\nglobal_train_batch_size: 16\n"
      "device_train_microbatch_size: 2\nprecision: amp_bf16\nfsdp: {wrapping_strategy: by_block, precision: mixed}\n",
      gpus);
  CHECK(olmo.model.ffn_hidden_size == 172);
  CHECK(olmo.model.vocab_size == 256);
  CHECK(olmo.framework.name == "torchtitan-compile");
  const Scenario core = scenario_of_document(
      "{\"model\": {\"d_model\": 64, \"n_layers\": 2, \"vocab_size\": 256, \"block\": {\"attention\": {\"n_heads\": "
      "4,\n"
      "\"qk_norm\": {\"name\": \"rms\"}}, \"feed_forward\": {\"hidden_size\": 128, \"bias\": false}}},\n"
      "\"train_module\": {\"rank_microbatch_size\": 64, \"max_sequence_length\": 32, \"compile_model\": true,\n"
      "\"dp_config\": {\"name\": \"hsdp\", \"num_replicas\": 2, \"reduce_dtype\": \"float32\"}},\n"
      "\"data_loader\": {\"global_batch_size\": 1024}, \"launch\": {\"num_nodes\": 2, \"num_gpus\": 8}}\n");
  CHECK(core.training.micro_batch_size == 2);
  CHECK(core.training.global_batch_size == 32);
  CHECK(core.parallel.data_parallel_size == 16);
  CHECK(core.parallel.num_distributed_optimizer_instances == 2);
  CHECK(core.model.qk_layernorm);
}

TEST_CASE("a model that only a repository names is known, or its config.json is asked for", "[import]") {
  const std::string begin = "step_scheduler: {global_batch_size: 8}\nmodel: {pretrained_model_name_or_path: ";
  CHECK_THAT(refusal_of_document(begin + "a/unheard-of-7b}\n"),
             Contains("\"a/unheard-of-7b\"") && Contains("--set model.hf_config=FILE") && Contains("AutoModel"));
  CHECK_THAT(refusal_of_document(begin + "Qwen/Qwen3-8B}\n"), Contains("give --set model.seq_length=N"));
  CHECK_THAT(refusal_of_document("step_scheduler: {global_batch_size: 8}\nflow_matching: {a: 1}\nmodel: {mode: x}\n"),
             Contains("diffusion is not modelled yet"));
}

TEST_CASE("flags of older releases and of forks are known by their names", "[import]") {
  const std::string sizes =
      "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 32 --max-position-embeddings 32 --vocab-size 256 --micro-batch-size 1 --global-batch-size 8 --bf16";
  const auto read = [&](const std::string& flags) {
    return parse_scenario(from_megatron(sizes + flags, "run.sh").text, "s");
  };
  CHECK(read(" --glu-activation swiglu --disable-bias-linear").model.swiglu);
  CHECK(read(" --swiglu --intermediate-size 96").model.ffn_hidden_size == 96);
  CHECK(read(" --n-head-kv 2").model.kv_heads() == 2);
  CHECK(read(" --attention-head-type multiquery").model.kv_heads() == 1);
  CHECK(read(" --use-custom-fsdp").parallel.data_parallel_sharding_strategy == Sharding::optim_grads_params);
  const Scenario old = read(" --checkpoint-activations --checkpoint-num-layers 2 --DDP-impl local");
  CHECK(old.training.recompute.granularity == Recompute::Granularity::full);
  std::string notes;
  for (const std::string& note :
       from_megatron(sizes + " --use-rotary-position-embeddings --qk-layernorm --multi-latent-attention "
                             "--disable-bias-linear --kv-lora-rank 16 "
                             "--v-head-dim 16 --qk-nope-head-dim 16 --qk-rope-head-dim 8 "
                             "--embed-layernorm --epochs 3 --train-iters 0",
                     "run.sh")
           .notes)
    notes += note + "\n";
  CHECK_THAT(notes, Contains("--qk-nope-head-dim is read as --qk-head-dim"));
  CHECK_THAT(notes, Contains("--embed-layernorm (line 1): the norm after the embedding is left out"));
  CHECK_THAT(notes, Contains("--epochs"));
  CHECK_THAT(testing::message_of([&] { read(" --inference"); }), Contains("inference is not modelled yet"));
}
