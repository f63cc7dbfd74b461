#include "interchange/megatron.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "interchange/megatron_flags.hpp"
#include "interchange/recipe.hpp"
#include "interchange/torchtitan.hpp"
#include "tests/cases.hpp"
#include "tests/message_of.hpp"
#include "tests/random_layout.hpp"

using namespace stretto;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

const std::string kModel =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size "
    "250 --tokenizer-type NullTokenizer --make-vocab-size-divisible-by 1 --hidden-dropout 0 --attention-dropout 0 ";

Scenario imported(const std::string& flags) { return parse_scenario(from_megatron(flags, "flags").text, "flags"); }
std::string refusal(const std::string& flags) {
  return testing::message_of([&] { from_megatron(flags, "run.sh"); });
}

// Returns the keys in which two scenarios differ, among those that a command line can express.
std::vector<std::string> differences(const Scenario& a, const Scenario& b) {
  std::vector<std::string> keys;
  for (const MegatronRow& row : megatron_rows()) {
    const bool can_say = row.given.is_null() || row.get(a) == row.given || row.get(a) == row.absent;
    if ((!row.flag.empty() || row.name() == "data_parallel_size") && can_say && row.get(a) != row.get(b))
      keys.push_back(row.key + ": " + row.get(a).dump() + " came back as " + row.get(b).dump());
  }
  return keys;
}

// Returns the lines of a file: the flags of Megatron-LM's command line at d98e8a64 (arguments.py, and fields of the
// configuration classes that it makes flags of), or the other fields of these classes, which are no flags.
std::set<std::string> names_in(const std::string& list) {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path() / list);
  std::set<std::string> names;
  for (std::string name; std::getline(file, name);) names.insert(name);
  REQUIRE_FALSE(names.empty());
  return names;
}

}  // namespace

TEST_CASE("scenario, flags, scenario is the identity for every row", "[megatron]") {
  std::map<std::string, std::set<std::string>> seen;
  const auto check = [&](const Scenario& scenario, const std::string& from) {
    const Translation out = to_megatron(scenario);
    INFO(from << "\n" << out.text);
    const Scenario back = imported(out.text);
    CHECK(differences(scenario, back) == std::vector<std::string>{});
    CHECK(to_megatron(back).text == out.text);
    for (const MegatronRow& row : megatron_rows()) seen[row.key].insert(row.get(scenario).dump());
  };
  for (int seed = 0; seed < testing::share_of(300); ++seed) {
    const testing::RandomLayout layout = testing::random_layout(static_cast<std::uint64_t>(seed));
    if (is_zero_bubble(layout.scenario.parallel.pipeline_schedule))
      CHECK_THROWS_WITH(to_megatron(layout.scenario), Contains("which Megatron-LM does not have"));
    else
      check(layout.scenario, layout.toml);
  }
  for (const std::string& name : preset_names())
    check(parse_scenario("[model]\npreset = \"" + name + "\"\n", "p"), name);
  for (const char* overlap :
       {"overlap_moe_expert_parallel_comm = true\ndelay_wgrad_compute = true\n"
        "ep_overlap_early_attn_memory_release = true\n",
        "overlap_dispatch_backward_with_experts_wgrad = true\nmoe_shared_expert_overlap = true\n"})
    check(parse_scenario("[model]\npreset = \"deepseek-v2-lite\"\n[parallel]\ndata_parallel_size = 8\n"
                         "expert_model_parallel_size = 8\n[training]\nglobal_batch_size = 16\n[overlap]\n" +
                             std::string(overlap),
                         "p"),
          overlap);
  for (const char* training :
       {"lr_decay_style = \"WSD\"\nlr_wsd_decay_iters = 4\nlr_wsd_decay_style = \"linear\"\n",
        "fp8_format = \"hybrid\"\nfp8_margin = 1\nfp8_amax_history_len = 16\nfp8_amax_compute_algo = \"max\"\n"
        "tp_only_amax_red = true\n",
        "fp8_format = \"e4m3\"\nfp8_recipe = \"tensorwise\"\nfirst_last_layers_bf16 = true\n"
        "num_layers_at_start_in_bf16 = 2\nnum_layers_at_end_in_bf16 = 3\n",
        "fp8_format = \"e4m3\"\nfp8_recipe = \"mxfp8\"\nreuse_grad_buf_for_mxfp8_param_ag = true\n"
        "[overlap]\nfp8_param_gather = true\n",
        "fp4_format = \"e2m1\"\n"})
    check(parse_scenario("[model]\npreset = \"llama3-8b\"\n[parallel]\ndata_parallel_size = 8\n[training]\n"
                         "train_iters = 16\nglobal_batch_size = 16\nprecision = \"bf16\"\n" +
                             std::string(training),
                         "p"),
          training);
  check(parse_scenario("[model]\npreset = \"deepseek-v2-lite\"\n[parallel]\ndata_parallel_size = 8\n"
                       "expert_model_parallel_size = 8\nmoe_token_dispatcher_type = \"flex\"\n"
                       "moe_flex_dispatcher_backend = \"ncclep\"\n[training]\nglobal_batch_size = 16\n"
                       "precision = \"bf16\"\nfp8_format = \"e4m3\"\nfp8_recipe = \"mxfp8\"\n"
                       "moe_dispatch_fwd_dtype = \"mxfp8\"\nmoe_combine_bwd_dtype = \"mxfp8\"\n",
                       "p"),
        "rows of experts sent as codes");
  for (const char* linear :
       {"linear_attention_freq = 4\nlinear_conv_kernel_dim = 3\nlinear_key_head_dim = 64\nlinear_value_head_dim = 96\n"
        "linear_num_key_heads = 4\nlinear_num_value_heads = 8\n",
        "num_layers = 4\nlinear_attention_freq = [1, 0, 1, 1]\n", "linear_attention_freq = 2\n",
        "num_layers = 4\nhybrid_layer_pattern = \"M-*M\"\nmamba_num_heads = 16\nmamba_head_dim = 32\n"
        "mamba_state_dim = 64\nmamba_num_groups = 4\n",
        "num_layers = 3\nhybrid_layer_pattern = \"MM*\"\n"})
    check(parse_scenario("[model]\npreset = \"llama3-8b\"\n" + std::string(linear), "p"), linear);
  for (const char* kinds :
       {"sliding_window = 16\nwindow_attn_skip_freq = 2\nsoftmax_type = \"learnable\"\n",
        "num_layers = 4\nsliding_window = 1\nwindow_attn_skip_freq = [1, 0, 1, 1]\nno_rope_freq = 2\n",
        "num_layers = 4\nno_rope_freq = [1, 0, 0, 1]\n", "add_qkv_bias = true\nsoftmax_type = \"off-by-one\"\n"})
    check(parse_scenario("[model]\npreset = \"llama3-8b\"\n" + std::string(kinds), "p"), kinds);
  for (const MegatronRow& row : megatron_rows()) {
    INFO(row.key << " has had one value");
    CHECK((row.flag.empty() || seen[row.key].size() > 1 || testing::is_fast_suite()));
  }
}

TEST_CASE("every key that says how a step is computed is in the table", "[megatron]") {
  std::set<std::string> in_table;
  for (const MegatronRow& row : megatron_rows()) {
    CHECK(in_table.insert(row.key).second);
    CHECK(row.get);
  }
  const std::set<std::string> elsewhere = {"model.preset",
                                           "model.hf_config",
                                           "training.fp8",
                                           "training.fp4",
                                           "training.fp8_transposes",
                                           "training.data",
                                           "training.load",
                                           "training.checkpoint_dir",
                                           "training.checkpoint_interval",
                                           "training.timeout_s",
                                           "model.encoder_seq_length",
                                           "training.enable_cuda_graph",
                                           "training.moe_expert_loads",
                                           "training.moe_expert_loads_exponent",
                                           "training.frozen_base",
                                           "training.eod_token",
                                           "training.mean_document_tokens",
                                           "training.document_lengths",
                                           "training.document_packing",
                                           "training.cudnn_attention_dropout"};
  const std::vector<std::string> keys = testing::scenario_keys(), others = testing::keys_not_drawn();
  for (const std::string& key : keys) {
    const std::string section = key.substr(0, key.find('.'));
    if ((section != "model" && section != "parallel" && section != "overlap" && section != "training") ||
        std::count(key.begin(), key.end(), '.') > 1 || std::count(others.begin(), others.end(), key) > 0)
      continue;
    INFO(key);
    CHECK((in_table.contains(key) || elsewhere.contains(key)));
  }
}

TEST_CASE("a shell script is read as the shell does", "[megatron]") {
  const Scenario s = imported(R"(#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=2  # machines
TP=4
MODEL_ARGS=(
    --num-layers 8 --hidden-size 64   # a comment
    --num-attention-heads 8
    --seq-length 32
    --max-position-embeddings=32
    --vocab-size 250
)
EXTRA="--swiglu --normalization RMSNorm --ffn-hidden-size 128"
PARALLEL_ARGS="
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel
"
torchrun --nproc_per_node 8 --nnodes ${NNODES} --master_addr $MASTER pretrain_gpt.py ${MODEL_ARGS[@]} $EXTRA \
    ${PARALLEL_ARGS} --data-path 1 a 2 b --log-interval 10 --micro-batch-size 1 --global-batch-size 16 \
    --bf16 --use-distributed-optimizer 2>&1 | tee log
)");
  CHECK(s.model.num_layers == 8);
  CHECK(s.model.ffn_hidden_size == 128);
  CHECK(s.model.hidden_dropout == 0.1);
  CHECK(s.model.padded_vocab_size == 512);
  CHECK(s.parallel.tensor_model_parallel_size == 4);
  CHECK(s.parallel.virtual_pipeline_model_parallel_size == 2);
  CHECK(s.parallel.data_parallel_size == 2);
  CHECK(s.overlap.overlap_p2p_comm);
  CHECK_FALSE(s.overlap.batch_p2p_comm);
  CHECK(s.training.precision == "bf16");
  const Translation other = from_megatron(kModel + "--save x --log-interval 5 --micro-batch-size 2", "f");
  REQUIRE(other.notes.size() == 3);  // the settings taken, that setting, the ranks
  CHECK(other.notes[1] == "without effect on a step's time: --tokenizer-type, --save, --log-interval");
  CHECK_FALSE(parse_scenario(other.text, "f").parallel.shards_optimizer());
  CHECK(imported(kModel + "--swiglu").model.ffn_hidden_size == 128);
}

TEST_CASE("experts come from their flags and go back", "[megatron]") {
  const std::string experts = kModel +
                              "--disable-bias-linear --swiglu --num-experts 8 --moe-router-topk 4 --moe-grouped-gemm "
                              "--expert-model-parallel-size 1 --moe-ffn-hidden-size 24 --moe-router-pre-softmax ";
  const Transformer model =
      imported(experts + "--moe-layer-freq '([0]*1+[1,0]*1+[1])' --moe-aux-loss-coeff 1e-2").model;
  CHECK(model.experts.num_moe_experts == 8);
  CHECK(model.experts.moe_router_topk == 4);
  CHECK(model.expert_size() == 24);
  CHECK(model.experts.moe_router_pre_softmax);
  CHECK(model.experts.moe_aux_loss_coeff == 0.01);
  CHECK(model.experts.moe_layer_freq == std::vector<std::int64_t>{0, 1, 0, 1});
  const Scenario s = imported(experts + "--moe-layer-freq 2");
  const Scenario back = parse_scenario(from_megatron(to_megatron(s).text, "f").text, "f");
  CHECK(back.model.experts == s.model.experts);
  const std::string shared = "torchrun --nproc_per_node 2 pretrain_gpt.py " + kModel +
                             "--disable-bias-linear --swiglu --num-experts 8 --moe-ffn-hidden-size 24 "
                             "--expert-model-parallel-size 2 ";
  CHECK(imported(shared).parallel.gathers_tokens_for_experts());
  CHECK(to_megatron(imported(shared)).text.find("capacity-factor") == std::string::npos);
  const Scenario padded = imported(shared + "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity");
  CHECK(padded.parallel.moe_expert_capacity_factor == 1.5);
  CHECK(padded.parallel.gathers_tokens_for_experts());
  CHECK(to_megatron(padded).text.find("--moe-expert-capacity-factor 1.5 ") != std::string::npos);
  const Scenario biased = imported(shared +
                                   "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
                                   "--moe-router-bias-update-rate 0.01 --moe-expert-capacity-factor -1");
  CHECK(biased.model.experts.moe_router_enable_expert_bias);
  CHECK(biased.model.experts.moe_router_bias_update_rate == 0.01);
  CHECK(biased.parallel.moe_expert_capacity_factor == 0);
  using Module = Recompute::Module;
  CHECK(imported(shared + "--moe-layer-recompute").training.recompute.modules ==
        std::vector{Module::core_attn, Module::moe});
  const Scenario again =
      imported(shared + "--recompute-granularity selective --recompute-modules moe shared_experts layernorm");
  CHECK(again.training.recompute.modules == std::vector{Module::moe, Module::layernorm});
  // Without experts their flags say nothing.
  CHECK(imported(kModel + "--moe-router-topk 4 --moe-grouped-gemm").model.experts == Experts{});
}

TEST_CASE("what a script leaves open of experts is assumed, with a note", "[megatron]") {
  const std::string experts =
      kModel + "--num-experts 8 --moe-ffn-hidden-size 24 --swiglu --expert-model-parallel-size 4 ";
  const auto note_of = [](const std::string& flags, const char* part) {
    for (const std::string& note : from_megatron(flags, "f").notes)
      if (note.find(part) != std::string::npos) return note;
    return std::string();
  };
  // Replicas of the dense layers share the experts: as many as they need.
  const std::string dense = experts + "--disable-bias-linear ";
  CHECK(imported(dense + "--pipeline-model-parallel-size 2 --global-batch-size 8").parallel.ranks() == 8);
  CHECK_THAT(note_of(dense, "4, those of the model's replicas that share its experts"), Contains("--gpus N"));
  CHECK_THAT(note_of("torchrun --nproc_per_node 2 pretrain_gpt.py " + dense, "share its experts need 4"),
             Contains("data_parallel_size 4 is assumed"));
  // Without a flag experts are cut as the dense layers are.
  const Scenario cut = imported(dense + "--tensor-model-parallel-size 2 --global-batch-size 12");
  CHECK(cut.parallel.ranks() == 8);
  CHECK(cut.parallel.sequence_parallel);
  CHECK_THAT(note_of(dense + "--tensor-model-parallel-size 2", "sequence_parallel"), Contains("not modelled: "));
  CHECK(imported(dense + "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1").parallel.ranks() == 4);
  ImportOptions options;
  options.gpus = 6;
  CHECK_THROWS_WITH(from_megatron(dense, "f", options), Contains("--gpus: expected a multiple of 4 GPUs"));
  // Fewer replicas for a batch remain enough for the experts.
  CHECK(imported("torchrun --nproc_per_node 8 pretrain_gpt.py " + dense + "--global-batch-size 12")
            .parallel.data_parallel_size == 4);
  CHECK(imported(dense + "--moe-router-force-load-balancing").training.expert_loads.kind == ExpertLoads::Kind::forced);
  CHECK(imported(kModel + "--moe-router-force-load-balancing").training.expert_loads.kind == ExpertLoads::Kind::equal);
  CHECK_THAT(note_of(dense, "moe_grouped_gemm"), Contains("not modelled: "));
  CHECK(note_of(dense + "--moe-grouped-gemm", "not modelled").empty());
  CHECK_THAT(refusal(dense + "--moe-latent-size 16"), Contains("experts of another width than the model's are not"));
  // Layers that predict further tokens are left out of a layout.
  CHECK(imported(kModel + "--pipeline-model-parallel-size 2 --mtp-num-layers 1 --global-batch-size 2 "
                          "--pipeline-model-parallel-layout 'Ett|ttmL'")
            .parallel.pipeline_model_parallel_layout == "Ett|ttL");
  CHECK_FALSE(imported(experts).model.add_bias_linear);
  CHECK_THAT(note_of(experts, "add_bias_linear"), Contains("not modelled: "));
}

TEST_CASE("latent attention without scaled positions, and unfused", "[megatron]") {
  const std::string latent = kModel +
                             "--disable-bias-linear --normalization RMSNorm --position-embedding-type rope "
                             "--qk-layernorm --multi-latent-attention --kv-lora-rank 16 --qk-head-dim 16 "
                             "--qk-pos-emb-head-dim 8 --v-head-dim 16 --mscale 1.0 --mscale-all-dim 1.0 ";
  for (const char* factor : {"", "--rotary-scaling-factor 1.0 "}) {
    const Scenario s = imported(latent + factor + "--attention-backend unfused");
    CHECK(s.model.latent.yarn.factor == 1);
    CHECK(s.training.attention_backend == AttentionBackend::fused);
  }
  CHECK(imported(latent + "--rotary-scaling-factor 40").model.latent.yarn.mscale_all_dim == 1);
}

TEST_CASE("a script for several models says by which argument it chooses", "[megatron]") {
  CHECK_THAT(
      refusal("SIZE=$2\nL=$3\nif [ $1 = here ]; then N=1; elif [ $1 = there ]; then N=2; fi\n"
              "if [ $SIZE = 7B ]; then H=64; elif [ $SIZE = 13B ]; then H=128; elif [ $SIZE = 70B ]; then H=256; "
              "fi\npython pretrain_gpt.py --hidden-size $H --num-layers 2 --num-attention-heads 2 --vocab-size 9 "
              "--tokenizer-type NullTokenizer --seq-length $L\n"),
      Contains("which the script chooses by $2, one of 7B, 13B, 70B; give --env 2=7B, --env 3=N"));
  CHECK_THAT(refusal("case $1 in\n 350M) L=1;;\n 1B) L=2;;\n *) exit 1;;\nesac\npython pretrain_gpt.py --num-layers $L "
                     "--hidden-size $H --lr 1\n"),
             Contains("chooses by $1, one of 350M, 1B; give --env 1=350M"));
  CHECK_THAT(refusal("source settings_of_the_model.sh\n"), Contains("got none; line 1: \"settings_of_the_model.sh\""));
}

TEST_CASE("Megatron-DeepSpeed's flags, and numbers as Python writes them", "[megatron]") {
  const Translation other =
      from_megatron(kModel +
                        "--train-tokens 300000000000 --num-key-value-heads 2 --ds-sequence-parallel-size 2 "
                        "--train-samples 220_000_000 --moe-expert-parallel-size 1 --num-experts 1 --bf16",
                    "f");
  const Scenario s = parse_scenario(other.text, "f");
  CHECK(s.model.kv_heads() == 2);
  CHECK(s.parallel.context_parallel_size == 2);
  CHECK(s.parallel.cp_comm_types().front() == CpCommType::a2a);
  CHECK_FALSE(s.model.experts.any());
  CHECK(s.training.train_iters == 220'000'000);
  for (const char* no_number : {"_1", "1_", "1__0"})
    CHECK_THAT(refusal(kModel + "--train-samples " + no_number), Contains("expected a whole number"));
  const Translation biased = from_megatron(kModel + "--position-embedding-type alibi", "f");
  CHECK(std::any_of(biased.notes.begin(), biased.notes.end(),
                    [](const std::string& note) { return note.find("no bias by distance") != std::string::npos; }));
  // A flag that is more than two letters away is no slip.
  CHECK_NOTHROW(imported(kModel + "--train-parts 3"));
}

TEST_CASE("flags that cannot be taken are named", "[megatron]") {
  CHECK(refusal("--fp8-multi-head-attention\n--moe-expert-capacity-factor 1.0") ==
        "run.sh: a capacity of experts without padding and attention in fp8 are not modelled yet: "
        "--moe-expert-capacity-factor 1.0 (line 2), --fp8-multi-head-attention (line 1)");
  CHECK(refusal("--moe-expert-parallel-size 8 --num-experts 8") ==
        "run.sh: DeepSpeed's experts are not modelled yet: --moe-expert-parallel-size 8 (line 1)");
  CHECK_THAT(refusal(kModel + "--num-experts 8 --disable-bias-linear --moe-layer-freq '[0]*'"), Contains("a list"));
  CHECK(refusal("torchrun pretrain_t5.py --encoder-num-layers 12") ==
        "run.sh: encoders are not modelled yet: pretrain_t5.py");
  CHECK_THAT(
      refusal(kModel + "--tensor-model-paralel-size 8"),
      Contains("run.sh:1: --tensor-model-paralel-size") && Contains("did you mean \"--tensor-model-parallel-size\"?"));
  CHECK_THAT(refusal(kModel + "--lr"), Contains("--lr: expected a value, got none"));
  CHECK_THAT(refusal(kModel + "--attention-backend flush"), Contains("did you mean \"flash\"?"));
  CHECK_THAT(refusal(kModel + "--context-parallel-size 2 --cp-comm-type p2p ring"), Contains("got \"ring\""));
  CHECK_THAT(refusal(kModel + "--context-parallel-size 2 --cp-comm-type p2p a2a"),
             Contains("one for each of the num_layers 4 layers, got 2"));
  CHECK_THAT(refusal(kModel + "--nproc-per-node 3 --tensor-model-parallel-size 2"), Contains("a multiple of 2 GPUs"));
  CHECK_THAT(refusal(kModel + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3"),
             Contains("a divisor of the 4 layers"));
  CHECK_THAT(refusal(kModel + "--clip-grad much"), Contains("clip_grad") && Contains("much"));
  CHECK_THAT(refusal("--num-layers 2 --hidden-size 8 --seq-length $S --num-attention-heads 2 --tokenizer-type "
                     "NullTokenizer --vocab-size 9"),
             Contains("--env S=N, or --set model.seq_length=N"));
  CHECK_THAT(refusal("--num-layers 2 --hidden-size 8 --seq-length 8 --num-attention-heads 2 --tokenizer-type "
                     "HuggingFaceTokenizer --tokenizer-model x"),
             Contains("expected --vocab-size, or a tokenizer whose vocabulary is known"));
  for (const char* text : {"", "   ", "--", "#", "\"", "'a", "\\", "$", "${", "a=b", "--lr=$"})
    CHECK_THAT(refusal(text), Contains("run.sh"));
}

TEST_CASE("flags of low precision are taken, and written again", "[megatron]") {
  const std::string bf16 = "--bf16 --use-distributed-optimizer ";
  const auto precision_of = [&](const std::string& flags) {
    const Scenario once = imported(kModel + bf16 + flags);
    const Scenario again = imported(to_megatron(once).text);
    CHECK(again.training.low_precision == once.training.low_precision);
    return once.training.low_precision;
  };
  const LowPrecision delayed =
      precision_of("--fp8-format hybrid --fp8-margin 1 --fp8-amax-history-len 1024 --fp8-amax-compute-algo max");
  CHECK(delayed.fp8_format == LowPrecision::Fp8Format::hybrid);
  CHECK(delayed.fp8_recipe == LowPrecision::Fp8Recipe::delayed);
  CHECK(delayed.fp8_margin == 1);
  CHECK(delayed.fp8_amax_history_len == 1024);
  CHECK(delayed.fp8_amax_compute_algo == LowPrecision::AmaxAlgo::max);
  const LowPrecision current = precision_of(
      "--fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16 --num-layers-at-end-in-bf16 2");
  CHECK(current.first_last_layers_bf16);
  CHECK(current.num_layers_at_end_in_bf16 == 2);
  CHECK(precision_of("--fp4-format e2m1").fp4_format == LowPrecision::Fp4Format::e2m1);
  CHECK_FALSE(precision_of("--fp8-amax-history-len 4 --fp8-format None").is_on());
  const std::string experts =
      "--nproc-per-node 2 --disable-bias-linear --num-experts 8 --moe-router-topk 4 --moe-grouped-gemm "
      "--expert-model-parallel-size 2 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep "
      "--moe-dispatch-fwd-dtype mxfp8 ";
  const LowPrecision sent = precision_of(experts + "--fp8-format e4m3 --fp8-recipe mxfp8");
  CHECK(sent.moe_dispatch_fwd_dtype == LowPrecision::WireDtype::mxfp8);
  CHECK(sent.moe_combine_bwd_dtype == LowPrecision::WireDtype::bf16);
  CHECK_THAT(testing::message_of([&] { precision_of(experts); }), Contains("expected fp8_recipe = mxfp8"));
}

TEST_CASE("a word after the last flag is no second value", "[megatron]") {
  const std::string plain = from_megatron(kModel + "--lr 0.5", "f").text;
  for (const char* tail :
       {")", "\ntorchrun", "2>&1 | tee log", "> log", "&", "&& echo done", ";", "\"$@\"", "$EXTRA", "${MORE[@]}"}) {
    INFO(tail);
    CHECK(from_megatron(kModel + "--lr 0.5 " + tail, "f").text == plain);
  }
}

TEST_CASE("what is not modelled is reported, and taken for granted", "[megatron]") {
  const auto notes = [](const std::string& flags) {
    std::vector<std::string> found;
    for (const std::string& note : from_megatron(kModel + flags, "f").notes)
      if (note.starts_with("not modelled: ")) found.push_back(note);
    return found;
  };
  CHECK(notes("--fp8-amax-history-len 4 --moe-router-topk 2 --rotary-percent 1.0 --optimizer adam").empty());
  CHECK(notes("--fp16 --qk-l2-norm").size() == 2);
  CHECK(notes("--kv-channels 32").empty());
  CHECK_THAT(notes("--my-own-switch 3")[0], Contains("no flag of Megatron-LM that is known here"));
  CHECK(imported(kModel + "--fp16").training.precision == "bf16");
  CHECK(imported(kModel + "--kv-channels 32").model.head_dim() == 32);
  CHECK(imported(kModel + "--qk-layernorm").model.qk_layernorm);
  CHECK(imported(kModel + "--window-size '(7,0)'").model.sliding_window == 8);
  CHECK(imported(kModel + "--window-size -1,0").model.sliding_window == 0);
  CHECK_THAT(testing::message_of([&] { from_megatron(kModel + "--window-size 7", "f"); }), Contains("two numbers"));
}

TEST_CASE("defaults are those of Megatron-LM at d98e8a64", "[megatron]") {
  const Scenario plain = imported(kModel);
  CHECK(plain.framework.name == "megatron-core-te");
  CHECK(plain.framework.attention_kernel == "cudnn");
  CHECK_FALSE(plain.parallel.shards_optimizer());
  const Scenario fsdp = imported(kModel + "--use-megatron-fsdp --untie-embeddings-and-output-weights");
  CHECK(fsdp.parallel.shards_parameters());
  CHECK(fsdp.overlap.fsdp_comm_overlap);
  CHECK(imported(kModel + "--attention-backend flash").framework.attention_kernel == "flash2");
  CHECK(imported(kModel + "--attention-backend auto").framework.attention_kernel == "cudnn");
  CHECK(imported("export NVTE_FUSED_ATTN=0\n" + kModel).framework.attention_kernel == "flash2");
  CHECK(imported("export CUDA_DEVICE_MAX_CONNECTIONS=${C:-1} NCCL_IB_SL=1\n" + kModel)
            .cluster.cuda_device_max_connections == 1);
  CHECK(imported("export CUDA_DEVICE_MAX_CONNECTIONS=1\nunset CUDA_DEVICE_MAX_CONNECTIONS\n" + kModel)
            .cluster.cuda_device_max_connections == 0);
  // The vocabulary of pretrain_gpt.py's tokenizer, padded.
  CHECK(imported("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8")
            .model.padded_vocab_size == 50304);
  CHECK(imported(kModel + "--num-query-groups 2").model.kv_heads() == 4);
  CHECK(imported(kModel + "--group-query-attention --num-query-groups 2").model.kv_heads() == 2);
  CHECK(imported(kModel + "--DDP-impl local --activations-checkpoint-method uniform").framework.name ==
        "megatron-2021");
  // Gradients are kept and reduced in f32 with bf16 alone, and by FSDP in the type of parameters.
  CHECK(imported(kModel + "--bf16").overlap.grad_reduce_in_fp32);
  CHECK(imported(kModel + "--bf16").framework.name == "megatron-core-te");
  for (const char* in_16 :
       {"--fp16", "--bf16 --grad-reduce-in-bf16",
        "--bf16 --use-distributed-optimizer --use-precision-aware-optimizer --main-grads-dtype bf16"}) {
    INFO(in_16);
    CHECK_FALSE(imported(kModel + in_16).overlap.grad_reduce_in_fp32);
    CHECK(imported(kModel + in_16).framework.name == "megatron-core-te-bf16-grads");
  }
  CHECK(imported(kModel + "--fp16 --accumulate-allreduce-grads-in-fp32").overlap.grad_reduce_in_fp32);
  CHECK(imported(kModel + "--bf16 --DDP-impl local").overlap.grad_reduce_in_fp32);
  CHECK_FALSE(imported(kModel + "--fp16 --DDP-impl local").overlap.grad_reduce_in_fp32);
  const std::string of_fsdp = kModel + "--bf16 --use-megatron-fsdp --untie-embeddings-and-output-weights ";
  CHECK_FALSE(imported(of_fsdp).overlap.grad_reduce_in_fp32);
  CHECK(imported(of_fsdp + "--megatron-fsdp-main-grads-dtype fp32").overlap.grad_reduce_in_fp32);
  CHECK(imported(of_fsdp + "--megatron-fsdp-grad-comm-dtype fp32").overlap.grad_reduce_in_fp32);
  // Variables that change a step and are not modelled are said to.
  const std::vector<std::string> notes =
      from_megatron("export NCCL_ALGO=Ring NCCL_DEBUG=WARN\n" + kModel, "run.sh").notes;
  CHECK(std::count_if(notes.begin(), notes.end(), [](const std::string& note) {
          return note.starts_with("not modelled: NCCL_ALGO=Ring (line 1): ");
        }) == 1);
  CHECK(imported("export NVTE_FUSED_ATTN=0 NVTE_FLASH_ATTN=0\n" + kModel).training.attention_backend ==
        AttentionBackend::unfused);
  ImportOptions options;
  options.overrides = {"training.lr=0.25", "model.position_embedding_type=rope"};
  options.gpus = 8;
  const Scenario set = parse_scenario(from_megatron(kModel + "--lr 0.5", "f", options).text, "f");
  CHECK(set.training.lr == 0.25);
  CHECK(set.parallel.data_parallel_size == 8);
  CHECK(set.model.position_embedding_type == PositionEmbedding::rope);
  options.gpus = 3;
  CHECK_THROWS_WITH(from_megatron(kModel + "--tensor-model-parallel-size 2", "f", options),
                    Contains("--gpus: expected a multiple of 2"));
}

TEST_CASE("errors of an imported scenario name the file's line and setting", "[megatron][recipe]") {
  const std::string script = "pretrain_gpt.py \\\n" + kModel + "\\\n--decoder-last-pipeline-num-layers 1\n";
  CHECK_THROWS_WITH(from_megatron(script, "run.sh", {}),
                    StartsWith("run.sh:3: --decoder-last-pipeline-num-layers: [parallel] "
                               "num_layers_in_last_pipeline_stage: expected all "));
  ImportOptions options;
  options.overrides = {"training.lr=-1"};
  CHECK_THROWS_WITH(from_megatron(kModel, "run.sh", options), StartsWith("--set training.lr: [training] lr: expected"));
  CHECK_THROWS_WITH(
      from_torchtitan("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[optimizer]\nlr = -1.0\n", "c.toml", {}),
      StartsWith("c.toml:5: [optimizer] lr: [training] lr: expected"));
  CHECK_THROWS_WITH(from_recipe("model:\n  num_layers: 4\n  hidden_size: 512\n  num_attention_heads: 7\n"
                                "  seq_length: 512\n  vocab_size: 512\n",
                                "r.yaml", {}),
                    StartsWith("r.yaml:4: model.num_attention_heads: [model] "));
}

TEST_CASE("every flag of Megatron-LM is judged", "[megatron]") {
  const std::set<std::string> flags = names_in("megatron_flag_names.txt");
  std::set<std::string> all = names_in("megatron_config_names.txt");
  all.insert(flags.begin(), flags.end());
  for (const std::string& name : all) {
    INFO(name);
    bool is_known = rule_of(name) != nullptr;
    for (const MegatronRow& row : megatron_rows())
      is_known = is_known || row.flag == name || row.with == name ||
                 std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end();
    if (is_known) continue;
    // The reader handles some flags in lines of their own.
    const bool is_staged = name.find("virtual") != std::string::npos;
    const std::string stages = is_staged ? "--pipeline-model-parallel-size 2 --global-batch-size 8 " : "";
    for (const std::string& note : from_megatron(kModel + stages + name + " 1", "f").notes)
      CHECK_THAT(note, !Contains("known here"));
  }
  CHECK(flags.size() > 800);
  // The writer's flags are on Megatron-LM's command line, and the reader refuses none of them.
  std::set<std::string> written;
  for (const MegatronRow& row : megatron_rows()) {
    written.insert(row.flag);
    written.insert(row.with);
  }
  for (int seed = 0; seed < testing::share_of(100); ++seed) {
    const Scenario scenario = testing::random_layout(static_cast<std::uint64_t>(seed)).scenario;
    if (is_zero_bubble(scenario.parallel.pipeline_schedule)) continue;
    std::stringstream words(to_megatron(scenario).text);
    std::string word;
    while (words >> word && word != "pretrain_gpt.py") continue;
    while (words >> word)
      if (word.starts_with("--")) written.insert(word);
  }
  for (const std::string& name : written) {
    INFO(name);
    CHECK((name.empty() || flags.contains(name)));
    const FlagRule* rule = name.empty() ? nullptr : rule_of(name);
    CHECK((rule == nullptr || rule->verdict != FlagVerdict::refused || !rule->neutral.empty()));
  }
  // The fields of CommOverlapConfig (Megatron-Bridge 067f987d, training/comm_overlap.py).
  const std::set<std::string> fields = {"tp_comm_overlap",
                                        "tp_comm_overlap_cfg",
                                        "tp_comm_bootstrap_backend",
                                        "overlap_p2p_comm",
                                        "batch_p2p_comm",
                                        "overlap_grad_reduce",
                                        "overlap_param_gather",
                                        "overlap_param_gather_with_optimizer_step",
                                        "align_param_gather",
                                        "bucket_size",
                                        "defer_embedding_wgrad_compute",
                                        "wgrad_deferral_limit",
                                        "data_parallel_size",
                                        "overlap_moe_expert_parallel_comm",
                                        "delay_wgrad_compute"};
  for (const MegatronRow& row : megatron_rows()) {
    INFO(row.key);
    CHECK((!row.in_bridge || fields.contains(row.name())));
  }
  for (const FlagRule& rule : flag_rules()) CHECK((rule.verdict == FlagVerdict::without_effect) == rule.says.empty());
}

TEST_CASE("what Megatron-LM has no flag for is said", "[megatron]") {
  const auto notes = [](const std::string& toml) {
    return to_megatron(parse_scenario("[model]\npreset = \"gpt2-124m\"\n" + toml, "s")).notes;
  };
  CHECK(notes("").empty());
  // CUDA_DEVICE_MAX_CONNECTIONS, and the all-reduce during the weight gradient, which Megatron-LM always has.
  CHECK(notes("[parallel]\ntensor_model_parallel_size = 2\n").size() == 2);
  CHECK(notes("[training]\ngelu_fusion = true\n") == std::vector<std::string>{"Megatron-LM has no gelu_fusion"});
  CHECK(notes("[training]\nrecompute_granularity = \"selective_op\"\n") ==
        std::vector<std::string>{"Megatron-LM has no recompute_granularity = \"selective_op\""});
  CHECK(notes("[training]\nprecision = \"fp64\"\n") ==
        std::vector<std::string>{"Megatron-LM has no precision = \"fp64\""});
  CHECK(notes("[parallel]\npipeline_model_parallel_size = 2\n[overlap]\noverlap_p2p_comm = true\nbatch_p2p_comm = "
              "false\n") == std::vector<std::string>{"Megatron-LM has overlap_p2p_comm only with virtual stages"});
}

TEST_CASE("processes are as many on each node, and no more than it has GPUs", "[megatron]") {
  const auto start = [](int tp, int dp) {
    const std::string text = to_megatron(parse_scenario("[model]\npreset = \"llama3-8b\"\n", "s",
                                                        {"parallel.tensor_model_parallel_size=" + std::to_string(tp),
                                                         "parallel.data_parallel_size=" + std::to_string(dp)}))
                                 .text;
    const std::size_t begin = text.find("torchrun");
    return text.substr(begin, text.find(" pretrain") - begin);
  };
  CHECK(start(4, 8) == "torchrun --nnodes 4 --nproc_per_node 8");
  CHECK(start(2, 3) == "torchrun --nnodes 1 --nproc_per_node 6");
  CHECK(start(4, 7) == "torchrun --nnodes 7 --nproc_per_node 4");  // 7 nodes of 4, because one node does not hold 28
  CHECK(start(1, 12) == "torchrun --nnodes 2 --nproc_per_node 6");
}

TEST_CASE("CommOverlapConfig goes both ways", "[megatron]") {
  const std::string model = "[model]\npreset = \"gpt2-124m\"\n[training]\nglobal_batch_size = 4\n";
  const std::string overlap =
      "[parallel]\npipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 2\ndata_parallel_size = "
      "2\n";
  for (int seed = 0; seed < testing::share_of(100); ++seed) {
    const Scenario drawn = testing::random_layout(static_cast<std::uint64_t>(seed)).scenario;
    const Translation out = to_bridge(drawn);
    const Translation back = from_bridge(out.text, "c.py");
    // Every field that was written stands in the section with its value.
    for (const MegatronRow& row : megatron_rows()) {
      if (!row.in_bridge || row.get(drawn).is_null()) continue;
      INFO(out.text << back.text);
      CHECK_THAT(back.text, Contains("\n" + row.name() + " = " + row.get(drawn).dump() + "\n"));
    }
  }
  const Scenario s = parse_scenario(
      model + overlap +
          from_bridge("cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False, overlap_grad_reduce=True,\n  "
                      "bucket_size=40_000_000, overlap_p2p_comm=True, wgrad_deferral_limit=None)  # mine\n",
                      "c.py")
              .text,
      "s");
  CHECK(s.overlap.overlap_grad_reduce);
  CHECK(s.overlap.bucket_size == 40'000'000);
  CHECK_THAT(from_bridge("overlap_grad_reduce: true\nbucket_size: 7\n", "c.yaml").text,
             Contains("overlap_grad_reduce = true\n") && Contains("bucket_size = 7\n"));
  const auto refused = [](const std::string& text) { return testing::message_of([&] { from_bridge(text, "c.py"); }); };
  CHECK_THAT(refused("overlap_grad_reduse=True"), Contains("did you mean \"overlap_grad_reduce\"?"));
  for (const char* odd : {"many", "-1", "-3", "0", "1.5", "True"})
    CHECK_THAT(refused(std::string("bucket_size=") + odd),
               Contains("bucket_size: expected a whole number of at least 1"));
  CHECK_THAT(refused("tp_comm_overlap=1"), Contains("expected true or false"));
  CHECK(from_bridge("bucket_size=null", "c.yaml").notes.size() == 2);
  CHECK_THAT(refused("fp8_wgrad=True"), Contains("fp8_wgrad"));
  CHECK_THAT(refused(""), Contains("got none"));
}

TEST_CASE("docs/interchange.md has the program's table", "[megatron]") {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path() / "docs/interchange.md");
  std::stringstream text;
  text << file.rdbuf();
  CHECK_THAT(text.str(), Contains(megatron_reference()));
}
