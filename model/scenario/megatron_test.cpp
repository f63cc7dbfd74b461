#include "model/scenario/megatron.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/message_of.hpp"
#include "tests/random_layout.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

const std::string kModel =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size "
    "250 --make-vocab-size-divisible-by 1 --hidden-dropout 0 --attention-dropout 0 ";

Scenario imported(const std::string& flags) { return parse_scenario(from_megatron(flags, "flags").text, "flags"); }
std::string refusal(const std::string& flags) {
  return testing::message_of([&] { from_megatron(flags, "run.sh"); });
}

// Where two scenarios differ in what a command line can say.
std::vector<std::string> differences(const Scenario& a, const Scenario& b) {
  std::vector<std::string> keys;
  for (const MegatronRow& row : megatron_rows()) {
    const bool can_say = row.given.is_null() || row.get(a) == row.given || row.get(a) == row.absent;
    if ((!row.flag.empty() || row.name() == "data_parallel_size") && can_say && row.get(a) != row.get(b))
      keys.push_back(row.key + ": " + row.get(a).dump() + " came back as " + row.get(b).dump());
  }
  return keys;
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
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const testing::RandomLayout layout = testing::random_layout(seed);
    if (is_zero_bubble(layout.scenario.parallel.pipeline_schedule))
      CHECK_THROWS_WITH(to_megatron(layout.scenario), Contains("which Megatron-LM does not have"));
    else
      check(layout.scenario, layout.toml);
  }
  for (const std::string& name : preset_names())
    check(parse_scenario("[model]\npreset = \"" + name + "\"\n", "p"), name);
  for (const MegatronRow& row : megatron_rows()) {
    INFO(row.key << " has had one value");
    CHECK((row.flag.empty() || seen[row.key].size() > 1));
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
                                           "training.data",
                                           "training.load",
                                           "training.checkpoint_dir",
                                           "training.checkpoint_interval",
                                           "training.timeout_s",
                                           "model.encoder_seq_length",
                                           "training.enable_cuda_graph",
                                           "training.frozen_base",
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
  REQUIRE(other.notes.size() == 3);  // that, the ranks, the decay of the learning rate
  CHECK(other.notes[0] == "left out, because they do not change what is computed: --log-interval, --save");
  CHECK_FALSE(parse_scenario(other.text, "f").parallel.shards_optimizer());
  CHECK(imported(kModel + "--swiglu").model.ffn_hidden_size == 128);
}

TEST_CASE("flags that cannot be taken are named", "[megatron]") {
  CHECK_THAT(refusal(kModel + "--num-experts 8"), Contains("run.sh: --num-experts: expected a flag that Stretto has"));
  CHECK_THAT(refusal(kModel + "--tensor-model-paralel-size 8"),
             Contains("did you mean \"--tensor-model-parallel-size\"?"));
  CHECK_THAT(refusal(kModel + "--fp16"), Contains("--fp16"));
  CHECK_THAT(refusal(kModel + "--lr $LR"), Contains("--lr: expected a value, got $LR"));
  CHECK_THAT(refusal(kModel + "--lr"), Contains("--lr: expected a value, got none"));
  CHECK_THAT(refusal(kModel + "--lr 1 2"), Contains("--lr: expected one value"));
  CHECK_THAT(refusal(kModel + "--lr-decay-style linear"), Contains("expected cosine"));
  CHECK_THAT(refusal(kModel + "--norm-epsilon 1e-6"), Contains("expected 1e-5"));
  CHECK_THAT(refusal(kModel + "--attention-backend flush"), Contains("did you mean \"flash\"?"));
  CHECK_THAT(refusal(kModel + "--context-parallel-size 2 --cp-comm-type p2p ring"), Contains("got \"ring\""));
  CHECK_THAT(refusal(kModel + "--context-parallel-size 2 --cp-comm-type p2p a2a"),
             Contains("one for each of the num_layers 4 layers, got 2"));
  CHECK_THAT(refusal(kModel + "--nproc-per-node 0"), Contains("at least 1"));
  CHECK_THAT(refusal(kModel + "--nproc-per-node 3 --tensor-model-parallel-size 2"), Contains("a multiple of 2 ranks"));
  CHECK_THAT(refusal(kModel + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3"),
             Contains("a divisor of the 4 layers"));
  CHECK_THAT(refusal(kModel + "--clip-grad much"), Contains("clip_grad") && Contains("much"));
  for (const char* text : {"", "   ", "--", "#", "\"", "'a", "\\", "$", "${", "a=b", "--lr=$"})
    CHECK_THAT(refusal(text), Contains("run.sh: "));
}

TEST_CASE("what Megatron-LM has no flag for is said", "[megatron]") {
  const auto notes = [](const std::string& toml) {
    return to_megatron(parse_scenario("[model]\npreset = \"gpt2-124m\"\n" + toml, "s")).notes;
  };
  CHECK(notes("").empty());
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
    return text.substr(0, text.find(" pretrain"));
  };
  CHECK(start(4, 8) == "torchrun --nnodes 4 --nproc_per_node 8");
  CHECK(start(2, 3) == "torchrun --nnodes 1 --nproc_per_node 6");
  CHECK(start(4, 7) == "torchrun --nnodes 7 --nproc_per_node 4");  // not 28 on one node
  CHECK(start(1, 12) == "torchrun --nnodes 2 --nproc_per_node 6");
}

TEST_CASE("CommOverlapConfig goes both ways", "[megatron]") {
  const std::string model = "[model]\npreset = \"gpt2-124m\"\n[training]\nglobal_batch_size = 4\n";
  const std::string overlap =
      "[parallel]\npipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 2\ndata_parallel_size = "
      "2\n";
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Scenario drawn = testing::random_layout(seed).scenario;
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
                      "bucket_size=40_000_000, wgrad_deferral_limit=None)  # mine\n",
                      "c.py")
              .text,
      "s");
  CHECK(s.overlap.overlap_grad_reduce);
  CHECK(s.overlap.bucket_size == 40'000'000);
  CHECK_THAT(from_bridge("overlap_grad_reduce: true\nbucket_size: 7\n", "c.yaml").text,
             Contains("overlap_grad_reduce = true\n") && Contains("bucket_size = 7\n"));
  const auto refused = [](const std::string& text) { return testing::message_of([&] { from_bridge(text, "c.py"); }); };
  CHECK_THAT(refused("overlap_grad_reduse=True"), Contains("did you mean \"overlap_grad_reduce\"?"));
  CHECK_THAT(refused("bucket_size=many"), Contains("expected true, false or a number"));
  CHECK_THAT(refused("delay_wgrad_compute=True"), Contains("delay_wgrad_compute"));
  CHECK_THAT(refused(""), Contains("got none"));
}

TEST_CASE("docs/interchange.md has the program's table", "[megatron]") {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs/interchange.md");
  std::stringstream text;
  text << file.rdbuf();
  CHECK_THAT(text.str(), Contains(megatron_reference()));
}
