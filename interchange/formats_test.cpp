#include "interchange/formats.hpp"

#include <catch2/catch.hpp>

#include "interchange/megatron.hpp"
#include "interchange/nemo_recipe.hpp"
#include "interchange/recipe.hpp"
#include "interchange/torchtitan.hpp"
#include "tests/message_of.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

std::string yaml_refusal(const std::string& text, const std::string& name = "llama3_8b.yaml") {
  return testing::message_of([&] { from_recipe(text, name); });
}
std::string toml_refusal(const std::string& text) {
  return testing::message_of([&] { from_torchtitan(text, "c.toml", {}); });
}
std::string command_refusal(const std::string& text) {
  return testing::message_of([&] { from_megatron(text, "run.sh"); });
}

const std::string kSizes =
    " --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--vocab-size 256 --micro-batch-size 1 --global-batch-size 8";

}  // namespace

TEST_CASE("documents of other programs are refused by their format's name, whatever the file's name says", "[import]") {
  const std::pair<const char*, const char*> documents[] = {
      {"vLLM", "workload:\n  model: {phase: inference}\nexecutor:\n  framework: {name: vllm}\n"},
      {"vLLM", "modelSpec:\n- name: a\n  vllmConfig: {maxModelLen: 4096, tensorParallelSize: 2}\n"},
      {"llm-foundry", "max_seq_len: 4096\nglobal_train_batch_size: 8\nmodel: {name: hf_causal_lm}\n"},
      {"AutoModel", "step_scheduler: {global_batch_size: 8, local_batch_size: 4}\nmodel: {x: 1}\n"},
      {"Primus",
       "modules:\n  pre_trainer:\n    framework: torchtitan\n    overrides: {training: {local_batch_size: 5}}\n"},
      {"nanotron", "model:\n  model_config: {hidden_size: 64}\nparallelism: {dp: 2, tp: 2}\n"},
      {"GPT-NeoX", "{\n  \"pipe_parallel_size\": 1,\n  \"num_layers\": 2, \"hidden_size\": 64,\n}\n"},
      {"axolotl", "base_model: a/b\nsequence_len: 8\nmicro_batch_size: 1\n"},
      {"LLaMA-Factory", "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\ncutoff_len: 8\n"},
      {"verl", "actor_rollout_ref:\n  actor: {megatron: {tensor_model_parallel_size: 2}}\ntrainer: {nnodes: 1}\n"},
      {"NeMo-RL", "policy:\n  megatron_cfg: {tensor_model_parallel_size: 2, num_layers_in_first_pipeline_stage: 2}\n"},
      {"MaxText", "base_config: base.yml\nper_device_batch_size: 4\nici_fsdp_parallelism: 16\n"},
      {"DeepSpeed", "{\"train_micro_batch_size_per_gpu\": 4, \"zero_optimization\": {\"stage\": 3}}\n"},
      {"Kubernetes", "apiVersion: v1\nkind: Service\nmetadata: {name: llama}\n"},
      {"Helm", "metadata:\n  name: {{ .Values.name }}\n"},
      {"config.json", "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 4}\n"},
      {"speech",
       "trainer: {devices: 8}\nmodel:\n  perception: {x: 1}\n  micro_batch_size: 1\n  global_batch_size: 8\n"},
      {"recurrent", "trainer: {devices: 8}\nmodel: {hyena: {order: 2}, num_layers: 2}\n"},
      {"known program", "model: {size: 8}\noptimizer: {lr: 0.1}\n"},
  };
  for (const auto& [format, text] : documents) CHECK_THAT(yaml_refusal(text), Contains(format));
  CHECK_THAT(toml_refusal("[build-system]\nrequires = []\n[project]\nname = \"llama3\"\n"), Contains("pyproject.toml"));
  CHECK_THAT(toml_refusal("[package]\nname = \"a\"\nedition = \"2021\"\n"), Contains("Cargo.toml"));
  CHECK_THAT(toml_refusal("[package]\nname = \"a\"\nedition = \"2021\"\n[dependencies]\nx = 1979-05-27\n"),
             Contains("Cargo.toml"));
  CHECK_THAT(toml_refusal("[model]\npreset = \"llama3-8b\"\n"), Contains("a scenario of Stretto"));
  CHECK_THAT(toml_refusal("[model]\nname = \"a/b\"\n[data]\nseq_len = 8\n"),
             Contains("expected a configuration of torchtitan"));
}

TEST_CASE("a model that only the file's name says is asked for", "[import]") {
  const std::string nemo =
      "trainer: {devices: 8, num_nodes: 1}\nmodel:\n  tensor_model_parallel_size: 2\n  micro_batch_size: 1\n"
      "  global_batch_size: 8\n  seq_length: 4096\n";
  const std::string message = yaml_refusal(nemo);
  CHECK_THAT(message, Contains("expected the sizes of a model"));
  CHECK_THAT(message, Contains("the file's name says are --set model.num_layers=32 --set model.hidden_size=4096"));
}

TEST_CASE("an unknown key is left out, and not without effect", "[import]") {
  ImportOptions options;
  options.overrides = {"parallel.tensor_model_parallel_size=4"};
  const Translation made = from_recipe(
      "trainer: {devices: 8, num_nodes: 1, log_every_n_steps: 5}\nmodel:\n  tensor_model_parallel_size: 2\n"
      "  micro_batch_size: 1\n  global_batch_size: 8\n  seq_length: 32\n  num_layers: 2\n  hidden_size: 64\n"
      "  num_attention_heads: 4\n  vocab_size: 256\n  warp_drive: 9\n",
      "r.yaml", options);
  const auto has = [&](const std::string& part) {
    for (const std::string& note : made.notes)
      if (note.find(part) != std::string::npos) return true;
    return false;
  };
  CHECK(has("not known here, and left out: model.warp_drive"));
  CHECK(has("without effect on a step's time: trainer.log_every_n_steps"));
  CHECK(has(
      "tensor_model_parallel_size (line 3) is not taken: --set parallel.tensor_model_parallel_size says otherwise"));
}

TEST_CASE("tools, servers, trainers of rewards and models with other towers are refused by name", "[import]") {
  const std::pair<const char*, std::string> commands[] = {
      {"a tool that trains nothing", "torchrun tools/retro/preprocess_data.py" + kSizes},
      {"a tool that trains nothing",
       "python tools/checkpoint/convert.py --model-type GPT --loader a --saver b" + kSizes},
      {"a server of models", "python -m vllm.entrypoints.openai.api_server --model a --max-model-len 8"},
      {"verl", "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a trainer.nnodes=1"},
      {"verl", "python3 -m trainer.main_x actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"},
      {"slime", "python3 train.py --actor-num-nodes 1 --rollout-batch-size 8" + kSizes},
      {"OpenRLHF", "deepspeed --module openrlhf.cli.train_ppo_ray --pretrain a"},
      {"other towers", "torchrun pretrain_qwen3_omni.py --patch-size 16" + kSizes},
      {"other towers", "torchrun pretrain_x.py --mrope-section 24 20 20" + kSizes},
  };
  for (const auto& [kind, text] : commands) CHECK_THAT(command_refusal(text), Contains(kind));
  CHECK_NOTHROW(from_megatron("torchrun --nproc_per_node 8 /home/serverteam/clip/pretrain_gpt.py" + kSizes, "run.sh"));
}

TEST_CASE("Megatron-LM's printed arguments and a list of words are a command line", "[import]") {
  const std::string log =
      "using world size: 16\n0: ------------------------ arguments ------------------------\n"
      "0:   add_bias_linear ................................. False\n"
      "0:   attention_backend ............................... AttnBackend.flash\n"
      "0:   bf16 ............................................ True\n"
      "0:   fp8 ............................................. None\n"
      "0:   fp8_recipe ...................................... delayed\n"
      "0:   global_batch_size ............................... 64\n"
      "0:   hidden_size ..................................... 512\n"
      "0:   img_h ........................................... 224\n"
      "0:   kv_lora_rank .................................... 32\n"
      "0:   max_position_embeddings ......................... 128\n"
      "0:   micro_batch_size ................................ 2\n"
      "0:   moe_router_topk ................................. 2\n"
      "0:   num_attention_heads ............................. 8\n"
      "0:   num_experts ..................................... None\n"
      "0:   num_layers ...................................... 4\n"
      "0:   overlap_p2p_comm ................................ False\n"
      "0:   padded_vocab_size ............................... 1024\n"
      "0:   position_embedding_type ......................... rope\n"
      "0:   seq_length ...................................... 128\n"
      "0:   swiglu .......................................... True\n"
      "0:   tensor_model_parallel_size ...................... 2\n"
      "0:   world_size ...................................... 16\n"
      "0: -------------------- end of arguments ---------------------\n0: started\n";
  const Scenario printed = parse_scenario(from_megatron(log, "run.log").text, "s");
  CHECK(printed.model.num_layers == 4);
  CHECK_FALSE(printed.model.add_bias_linear);
  CHECK(printed.model.vocab_size == 1024);
  CHECK(printed.model.swiglu);
  CHECK(printed.parallel.data_parallel_size == 8);
  CHECK(printed.training.micro_batch_size == 2);
  CHECK(printed.framework.name == "megatron-core-te-flash2");
  const Scenario listed = parse_scenario(
      from_megatron("['pretrain_gpt.py', '--num-layers', '2', '--hidden-size', '64', '--num-attention-heads', '4', "
                    "'--seq-length', '32', '--max-position-embeddings', '32', '--vocab-size', '256', "
                    "'--micro-batch-size', '1', '--global-batch-size', '8']\n",
                    "argv.txt")
          .text,
      "s");
  CHECK(listed.model.num_layers == 2);
}

TEST_CASE("a script that writes a script and starts it is read, and Slurm's variables are those of #SBATCH",
          "[import]") {
  const std::string written =
      "command=$(cat <<- EOM\n  if [ \"\\$RANK\" -eq \"0\" ]; then\n    sleep 3 ;\n  fi ;\n"
      "  numactl --membind=\\$((LOCAL_RANK/2)) python pretrain_gpt.py" +
      kSizes +
      " \\\n    --tensor-model-parallel-size $TP\nEOM\n)\n"
      "sed -i s/a/b/ other/train.py --x 1\necho \"$command\" > worker.sh\n"
      "torchrun --nproc-per-node=4 --nnodes=2 --no-python bash worker.sh\n";
  const Scenario s = parse_scenario(from_megatron("TP=2\n" + written, "run.sh").text, "s");
  CHECK(s.parallel.tensor_model_parallel_size == 2);
  CHECK(s.parallel.data_parallel_size == 4);
  const Scenario slurm =
      parse_scenario(from_megatron("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
                                   "srun python pretrain_gpt.py" +
                                       kSizes + " --tensor-model-parallel-size $SLURM_GPUS_PER_NODE\n",
                                   "run.sh")
                         .text,
                     "s");
  CHECK(slurm.parallel.tensor_model_parallel_size == 4);
  CHECK(slurm.parallel.data_parallel_size == 2);
}

TEST_CASE("spellings of DeepSpeed, BLOOM, Pai-Megatron-Patch and tests are taken", "[import]") {
  const auto read = [](const std::string& flags) {
    return parse_scenario(from_megatron("torchrun --nproc_per_node 4 pretrain_gpt.py" + kSizes + flags, "run.sh").text,
                          "s");
  };
  CHECK(read(" --normalization rmsnorm").model.normalization == Normalization::rms_norm);
  const Scenario bloom =
      read(" --num-layers 6 --pipeline-model-parallel-size 4 --pp-partition-method 'type:transformer|embedding'");
  CHECK(bloom.parallel.account_for_embedding_in_pipeline_split);
  CHECK(bloom.parallel.account_for_loss_in_pipeline_split);
  CHECK(read(" --num-experts 4 --disable-bias-linear --moe-layer-freq \"'([0]*1+[1]*1)'\"")
            .model.experts.moe_layer_freq == std::vector<std::int64_t>{0, 1});
  CHECK_NOTHROW(
      read(" --num-experts 4 --disable-bias-linear --moe-router-score-function sigmoid "
           "--moe-router-enable-expert-bias --moe-router-bias-update-rate 0"));
  CHECK_NOTHROW(read(" --lr 6e-4 --min-lr $(echo \"6e-4/10\" | bc -l)"));
  CHECK(read(" --checkpoint-activations --ds-sequence-parallel-size 2").parallel.context_parallel_size == 2);
  std::string patched = kSizes;
  patched.replace(patched.find("--vocab-size 256"), 16, "");
  CHECK(parse_scenario(from_megatron("torchrun pretrain_llama.py" + patched +
                                         " --patch-tokenizer-type LLama3Tokenizer --extra-vocab-size 256",
                                     "run.sh")
                           .text,
                       "s")
            .model.vocab_size == 128512);
  CHECK_THAT(command_refusal("torchrun pretrain_llama.py" + patched), Contains("--vocab-size"));
}

TEST_CASE("a recipe of NeMo 2 in Python is that of its name with the program's changes", "[import]") {
  const std::string program =
      "import nemo_run as run\nfrom nemo.collections import llm\n\ndef recipe():\n"
      "    r = llm.llama3_8b.pretrain_recipe(num_nodes=2, num_gpus_per_node=8)\n"
      "    r.trainer.strategy.tensor_model_parallel_size = 2\n    r.data.global_batch_size = 128\n    return r\n";
  const Scenario s = parse_scenario(from_python(program, "recipe.py", {}).text, "s");
  CHECK(s.model.num_layers == 32);
  CHECK(s.model.vocab_size == 128256);
  CHECK(s.parallel.tensor_model_parallel_size == 2);
  CHECK(s.training.global_batch_size == 128);
  CHECK_THROWS_WITH(from_python("import torch\ndef main():\n  pass\n", "a.py", {}), Contains("a program in Python"));
}

TEST_CASE("a configuration of Primus is its files of the module and the model, and its overrides", "[import]") {
  ImportOptions options;
  options.read = [](const std::string& path) -> std::optional<std::string> {
    if (path == "primus/configs/models/megatron/tiny.yaml")
      return "extends:\n  - base.yaml\nnum_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\n";
    if (path == "primus/configs/models/megatron/base.yaml")
      return "num_layers: 9\nadd_bias_linear: false\nswiglu: true\nmax_position_embeddings: 32\npadded_vocab_size: "
             "256\n";
    return std::nullopt;
  };
  const std::string text =
      "modules:\n  pre_trainer:\n    framework: megatron\n    model: ${SIZE:tiny}.yaml\n    overrides:\n"
      "      micro_batch_size: 1\n      global_batch_size: ${BATCH:16}\n      seq_length: 32\n      bf16: true\n";
  const Scenario s = parse_scenario(from_recipe(text, "p.yaml", options).text, "s");
  CHECK(s.model.num_layers == 4);
  CHECK_FALSE(s.model.add_bias_linear);
  CHECK(s.training.global_batch_size == 16);
  CHECK(s.parallel.data_parallel_size == 8);
  CHECK_THROWS_WITH(from_recipe(text + "      model_type: mamba\n", "p.yaml", options), Contains("got \"mamba\""));
}
