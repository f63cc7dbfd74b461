#include "validate/published.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "base/data_folder.hpp"
#include "predict/quick_step.hpp"
#include "sim/platform.hpp"
#include "tests/message_of.hpp"
#include "tests/temp_dir.hpp"
#include "validate/published_words.hpp"
#include "validate/validate.hpp"

namespace stretto::validate {
namespace {

using testing::TempDir;
const char* const kHeaderWithNotes =
    "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,gbs,mbs,tp,pp,vp_chunks,cp,ep,dp,"
    "precision,"
    "recompute,framework,step_time_s,caveat,task,cluster,overlap_notes\n";

std::string written(const TempDir& dir, const std::string& rows) {
  return dir.write("steps.csv", kHeaderWithNotes + rows);
}

}  // namespace

TEST_CASE("published rows become scenarios, or say why not", "[compare]") {
  const TempDir dir;
  const std::vector<PublishedStep> steps = read_published(written(
      dir,
      "full,\"a, b\",A100-80GB,8,GPT-22B,48,6144,64,64,24576,51200,2048,4,4,8,1,1,1,1,1,fp16,full,Megatron-LM "
      "2022,1.42,,"
      "pretrain,c1,\n"
      "cp,x,H100,8,Llama,32,4096,32,8,14336,128256,8192,8,1,1,1,1,2,1,4,bf16,,NeMo,1,,pretrain,c2,\n"
      "lora,x,H100,8,Llama,32,4096,32,8,14336,128256,8192,8,1,1,1,1,1,1,8,bf16,,NeMo,1,,lora,c3,\n"
      "det,x,H100,8,Llama,32,4096,32,8,14336,128256,8192,8,1,1,1,1,1,1,8,bf16,,NeMo,1,deterministic mode,pretrain,c3,\n"
      "odd,x,TPU,8,Llama,32,4096,32,8,14336,128256,8192,8,1,1,1,1,1,1,8,bf16,,NeMo,1,,pretrain,c3,\n"
      "sft,x,H100,8,Llama,32,4096,32,8,14336,128256,4096,16,1,1,1,1,1,1,8,bf16,,NeMo,1,,sft,c3,\n"
      "fsdp,x,h100_80gb,8,MPT-7b,,,,,,50368,2048,48,6,1,1,,1,1,8,amp_bf16,none,llm-foundry "
      "FSDP,1.2,,pretrain,c4,SHARD_GRAD_OP PURE\n"
      "eager,x,H100-96GB-HBM2e-500W,8,Llama,32,4096,32,8,14336,128256,8192,16,2,1,1,,1,1,8,bf16,selective,torchtitan,3,"
      ","
      "pretrain,c5,FSDP2; eager\n"
      "half,x,A100,8,Llama,32,4096,32,8,14336,128256,8192,16,2,1,1,,1,1,8,bf16,selective layer,torchtitan,3,,"
      "pretrain,c5,torch.compile\n"
      "n,NVIDIA/dgxc-benchmarking:nemotron/README_340b.md,H100,128,Nemotron4 "
      "340b,96,18432,96,8,73728,256000,4096,32,1,8,"
      "8,,1,1,2,bf16,,NeMo,4.6,,pretrain,c6,\n"
      "g,NVIDIA/dgxc-benchmarking@v25.01.1:nemo_megatron/README_175b.md,H100,128,GPT3 175b,96,12288,96,,49152,51200,"
      "2048,256,1,4,8,12,1,1,4,bf16,,NeMo,8.91,\"mbs assumed; inter-node 800 Gb/s, intra 150 GB/s\",pretrain,c7,\n"));
  REQUIRE(steps.size() == 11);
  CHECK(steps[0].skipped.empty());
  CHECK(steps[0].source == "a, b");
  CHECK(steps[0].platform == "a100-80gb");
  CHECK(steps[0].profile == "megatron-2022");
  const Scenario scenario = parse_scenario(steps[0].scenario_text, "full");
  CHECK(scenario.parallel.tensor_model_parallel_size == 8);
  CHECK(scenario.training.recompute.granularity == Recompute::Granularity::full);
  CHECK(scenario.training.recompute.whole_layers);
  CHECK(scenario.cluster.ranks_per_device == 1);
  CHECK(steps[1].skipped.empty());
  CHECK(parse_scenario(steps[1].scenario_text, "cp").parallel.context_parallel_size == 2);
  CHECK(steps[2].skipped.empty());
  CHECK(parse_scenario(steps[2].scenario_text, "lora").training.frozen_base);
  CHECK(steps[3].skipped == "deterministic mode (\"deterministic mode\")");
  CHECK(steps[4].skipped == "no platform of TPU");
  // The number of tokens is equal, in documents of their own.
  const Scenario packed = parse_scenario(steps[5].scenario_text, "sft");
  CHECK(packed.model.seq_length == 256);
  CHECK(packed.training.micro_batch_size == 16);
  CHECK(packed.training.global_batch_size == 256);
  CHECK(steps[5].assumptions.size() == 2);
  // The model's name determines its sizes.
  CHECK(steps[6].skipped.empty());
  const Scenario sharded = parse_scenario(steps[6].scenario_text, "fsdp");
  CHECK(parameter_count(sharded.model) == 6'658'859'008);
  CHECK(sharded.parallel.shards_parameters());
  CHECK(sharded.overlap.fsdp_comm_overlap);
  CHECK_FALSE(sharded.parallel.reshard_after_forward);
  CHECK_FALSE(sharded.overlap.grad_reduce_in_fp32);
  // torchtitan selects operations, or every second layer, and its blocks may be compiled.
  CHECK(steps[7].profile == "torchtitan");
  CHECK(steps[7].platform == "h100-hbm2e-500w");
  CHECK(parse_scenario(steps[7].scenario_text, "eager").training.recompute.granularity ==
        Recompute::Granularity::selective_op);
  CHECK(steps[8].profile == "torchtitan-compile");
  CHECK(parse_scenario(steps[8].scenario_text, "half").training.recompute.num_layers == 16);
  // The recipe's settings that the row does not give.
  const Scenario nemotron = parse_scenario(steps[9].scenario_text, "n");
  CHECK(nemotron.parallel.virtual_pipeline_model_parallel_size == 12);
  CHECK(nemotron.model.position_embedding_type == PositionEmbedding::rope);
  CHECK(nemotron.training.recompute.granularity == Recompute::Granularity::selective);
  CHECK(nemotron.overlap.overlap_p2p_comm);
  CHECK(nemotron.overlap.wgrad_deferral_limit == 22);
  CHECK(steps[9].profile == "nemo-dgxc-flash2");
  CHECK(steps[9].assumptions.size() == 5);
  // The release of a recipe determines its attention kernel; a caveat may state the network.
  CHECK(steps[10].profile == "nemo-dgxc-flash2");
  CHECK(parse_scenario(steps[10].scenario_text, "g").model.hidden_dropout == 0.1);
  CHECK(steps[10].node_Gbps == 800);
  CHECK(steps[9].node_Gbps == 0);
}

TEST_CASE("words of published rows are understood in any case, and a row with others is skipped by itself",
          "[compare]") {
  const TempDir dir;
  const std::string names = kHeaderWithNotes;
  // Returns a row in which these columns hold other cells.
  const auto row_with = [&](const std::map<std::string, std::string>& other) {
    std::map<std::string, std::string> cells = {
        {"gpu", "H100"},       {"gpus", "8"},          {"model", "Llama"},  {"layers", "32"}, {"hidden", "4096"},
        {"heads", "32"},       {"seq_len", "8192"},    {"gbs", "8"},        {"dp", "8"},      {"precision", "bf16"},
        {"framework", "NeMo"}, {"step_time_s", "1.5"}, {"task", "pretrain"}};
    for (const auto& [column, cell] : other) cells[column] = cell;
    std::string row;
    for (std::size_t at = 0; at < names.size();) {
      const std::size_t end = names.find_first_of(",\n", at);
      row += cells[names.substr(at, end - at)] + names[end];
      at = end + 1;
    }
    return row;
  };
  struct Case {
    std::map<std::string, std::string> cells;
    const char* says;   // an expected part of the scenario
    const char* skips;  // an expected part of the reason; "" when it is modelled
  };
  const std::vector<Case> cases = {
      {{{"recompute", "FULL"}}, "recompute_granularity = \"full\"", ""},
      {{{"recompute", "Selective"}}, "recompute_granularity = \"selective\"", ""},
      {{{"recompute", "selective (op)"}, {"framework", "TorchTitan"}}, "\"selective_op\"", ""},
      {{{"recompute", "core_attn"}}, "recompute_granularity = \"selective\"", ""},
      {{{"recompute", "No recompute"}}, "[training]", ""},
      {{{"recompute", "3 s"}}, "", "recompute: expected one of "},
      {{{"recompute", "full+selective"}}, "", "recompute: expected one kind of recomputation"},
      {{{"recompute", "mlp+core_attn"}}, "recompute_modules = [\"core_attn\", \"mlp\"]", ""},
      {{{"recompute", "full+mlp"}}, "", "recompute: expected one kind of recomputation"},
      {{{"recompute", "moe"}, {"model", "mixtral-8x7b"}, {"ep", "1"}}, "recompute_modules = [\"moe\"]", ""},
      {{{"precision", "BF16-mixed"}}, "[training]", ""},
      {{{"precision", "N/A"}, {"mbs", "n/a"}, {"cp", "-"}, {"kv_heads", "NA"}}, "micro_batch_size = 1", ""},
      {{{"precision", "fp32"}}, "", "fp32 compute"},
      {{{"precision", "NVFP4"}, {"gpu", "GB300"}}, "fp4_format = \"e2m1\"", ""},
      {{{"precision", "FP4"}, {"gpu", "B200"}}, "fp4_recipe = \"nvfp4\"", ""},
      {{{"precision", "MXFP4"}}, "", "MXFP4 compute"},
      {{{"precision", "int4"}}, "", "integer compute"},
      {{{"precision", "FP8_CS"}}, "fp8_recipe = \"tensorwise\"", ""},
      {{{"precision", "FP8-MX"}, {"gpu", "GB200"}}, "fp8_recipe = \"mxfp8\"", ""},
      {{{"precision", "bf16 + FP8 (blockwise)"}}, "fp8_recipe = \"blockwise\"", ""},
      // "FP8" alone is the recipe of the framework at that time.
      {{{"precision", "FP8"}, {"source", "NVIDIA/dgxc-benchmarking@v25.02"}}, "fp8_recipe = \"delayed\"", ""},
      {{{"precision", "FP8"}, {"source", "NVIDIA/dgxc-benchmarking@v25.09"}}, "fp8_recipe = \"tensorwise\"", ""},
      {{{"precision", "FP8"}, {"framework", "Megatron-Bridge"}}, "fp8_recipe = \"tensorwise\"", ""},
      {{{"precision", "amp_fp8"}, {"framework", "llm-foundry FSDP"}, {"recompute", "none"}},
       "fp8_recipe = \"delayed\"",
       ""},
      {{{"precision", "wide"}}, "", "precision: expected one of "},
      {{{"caveat", "inter-node 0"}}, "", "caveat: expected"},
      {{{"caveat", "inter-node nan Gb/s"}}, "", "caveat: expected"},
      {{{"caveat", "inter-node network not stated"}}, "[training]", ""},
      {{{"step_time_s", "1e-320"}}, "", "step_time_s: expected a number from 1e-06 to 1e+07"},
      {{{"step_time_s", "-"}}, "", "no step_time_s given"},
      {{{"gpus", "8.5"}}, "", "gpus: expected a whole number"},
      {{{"task", "DPO"}}, "", "reinforcement learning and preferences"},
      {{{"gpu", "H100 NVL"}}, "", "no platform of H100 NVL"},
      {{{"framework", "nobody's"}}, "", "no profile of nobody's"},
      {{{"model", "gpt-oss-20b"}}, "", "attention windows"},
      {{{"model", "Llama 3B"}}, "swiglu", ""},
      {{{"model", "Qwen3-32B"}}, "kv_channels = 128", ""},
      {{{"model", "Llama 3B"}, {"gpus", "16"}, {"dp", ""}}, "", "no tp given"},
      {{{"model", "Llama 3B"}, {"gpus", "16"}, {"tp", "1"}, {"dp", ""}}, "", "no pp given"},
      {{{"gpus", "16"}, {"pp", "1"}, {"cp", "1"}}, "tensor_model_parallel_size = 2", ""},
      {{{"gpus", "32"}}, "", "no tp given, and gpus / dp leave it open"},
      {{{"framework", "torchtitan"}, {"dp", ""}}, "tensor_model_parallel_size = 1", ""},
      {{{"framework", "torchtitan"}, {"pp", "4"}, {"tp", "1"}, {"dp", "2"}, {"mbs", "4"}},
       "",
       "mbs 4 is all that a rank"},
      {{{"overlap_notes", "overlap_grad_reduce = false; tp_comm_overlap="}}, "overlap_grad_reduce = false", ""},
      {{{"overlap_notes", "--overlap-param-gather; no overlap_p2p_comm"}}, "overlap_p2p_comm = false", ""},
      {{{"overlap_notes", "ZB-H1"}, {"tp", "1"}, {"pp", "2"}, {"dp", "4"}}, "pipeline_schedule = \"zb-h1\"", ""},
      {{{"overlap_notes", "zero bubble"}}, "", "zero bubble is several schedules"},
      {{{"framework", "NeMo zb-2p"}}, "", "another schedule of a pipeline"},
      {{{"caveat", "with zb-2p"}}, "", "zb-2p"},
      {{{"framework", "NeMo AutoModel"}}, "profile = \"automodel\"", ""},
      {{{"framework", "MCore FSDP"}}, "profile = \"megatron-core-fsdp\"", ""},
      {{{"model", "mixtral-8x7b"}}, "", "no ep given"},
      {{{"overlap_notes", "torch.compile"}}, "", "\"torch.compile\" does nothing"},
      {{{"model", "Llama 3B SFT"}}, "", "model says sft, and task pretrain"},
      {{{"model", "Llama 3B FP8"}}, "", "model says fp8, and precision bf16"},
      {{{"framework", "torchtitan"}, {"tp", "2"}, {"dp", "4"}, {"overlap_notes", "torch.compile; async TP"}},
       "tp_comm_overlap = true",
       ""},
      {{{"framework", "torchtitan"}, {"overlap_notes", "Compile"}}, "profile = \"torchtitan-compile\"", ""},
      {{{"framework", "torchtitan"}, {"overlap_notes", "vanilla TP; no compile"}}, "profile = \"torchtitan\"", ""},
      {{{"framework", "torchtitan"}, {"overlap_notes", "torch.compile+Float8"}}, "fp8_recipe = \"tensorwise\"", ""},
  };
  // Spreadsheets begin a file with a byte order mark, and leave lines without text.
  std::string rows;
  for (const Case& one : cases) rows += row_with(one.cells);
  rows += "a,b\n,,,\n" + row_with({}).substr(0, row_with({}).size() - 1) + ",more\n";
  const std::vector<PublishedStep> steps = read_published(dir.write("steps.csv", "\xEF\xBB\xBF" + names + rows));
  REQUIRE(steps.size() == cases.size() + 2);
  // No word is passed over: an invented one skips its row by name, or is listed as not read.
  for (const char* column :
       {"gpu",       "gpus",      "model",     "layers",      "hidden", "heads",     "kv_heads",     "ffn", "vocab",
        "seq_len",   "gbs",       "mbs",       "tp",          "pp",     "vp_chunks", "cp",           "ep",  "dp",
        "precision", "recompute", "framework", "step_time_s", "caveat", "task",      "overlap_notes"})
    for (const char* known : {"", "H100 ", "NeMo ", "Llama ", "full ", "bf16 ", "pretrain ", "compile "}) {
      const std::string cell = known + std::string("Flurble");
      const PublishedStep step = read_published(dir.write("one.csv", names + row_with({{column, cell}}))).at(0);
      INFO(column << ": " << cell << ": " << step.skipped << step.scenario_text);
      if (std::string(column) == "caveat")
        CHECK(step.assumed().back().find(cell) != std::string::npos);
      else
        CHECK(step.skipped.find("Flurble") != std::string::npos);
    }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO(row_with(cases[i].cells) << steps[i].skipped << "\n" << steps[i].scenario_text);
    CHECK(steps[i].line == int(i) + 2);
    CHECK(steps[i].skipped.empty() == (*cases[i].skips == '\0'));
    CHECK(steps[i].skipped.find(cases[i].skips) != std::string::npos);
    CHECK(steps[i].scenario_text.find(cases[i].says) != std::string::npos);
    if (steps[i].skipped.empty()) CHECK_NOTHROW(parse_scenario(steps[i].scenario_text, "row"));
    if (steps[i].skipped.find("expected") != std::string::npos)
      CHECK(steps[i].skipped.find("steps.csv:" + std::to_string(i + 2) + ": ") != std::string::npos);
  }
  CHECK(steps[cases.size()].skipped.ends_with("expected 28 cells, got 2"));
  CHECK(steps[cases.size() + 1].skipped.ends_with("expected 28 cells, got 29"));
  // An error of the file itself is not skipped.
  const auto refused = [&](const std::string& text) {
    return testing::message_of([&] { read_published(dir.write("steps.csv", text)); });
  };
  CHECK(refused(names + "caf\xE9\n").find("steps.csv:2: expected UTF-8 text") != std::string::npos);
  CHECK(refused("id;source;gpu\n").find("not by semicolons") != std::string::npos);
  CHECK(refused("id,source,gpus\n").find("steps.csv:1: expected a column \"gpu\"") != std::string::npos);
}

TEST_CASE("columns of experts turn modes on, and skip a row whose mode is not modelled", "[compare][moepredict]") {
  const TempDir dir;
  const std::string names =
      "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,gbs,mbs,tp,pp,vp_chunks,cp,ep,dp,"
      "precision,recompute,framework,step_time_s,caveat,task,cluster,overlap_notes,dispatcher,ov_ep_a2a,routing,"
      "ov_delay_wgrad,ov_shared_expert,cuda_graph,hbm_gb\n";
  const std::string row =
      "q,x,H100,16,Qwen3-30B-A3B,48,2048,32,4,6144,151936,4096,32,1,1,1,,1,16,16,bf16,,Megatron-Bridge,1,,pretrain,c,,";
  const std::vector<PublishedStep> steps = read_published(
      dir.write("steps.csv", names + row + "hybridep,true,forced,false,no,\"moe_router, moe_preprocess\",62\n" + row +
                                 "alltoall,false,natural,,,none,\n" + row + "alltoall,,,,,some,\n" + row +
                                 "hybridep,,forced,,,full_iteration,\n" + row + "alltoall,true,,true,,,\n" + row +
                                 "alltoall,,,,true,,\n"));
  REQUIRE(steps.size() == 6);
  const Scenario scoped = parse_scenario(steps[0].scenario_text, "s");
  CHECK(scoped.overlap.overlap_moe_expert_parallel_comm);
  CHECK(scoped.training.cuda_graph_modules == std::vector{GraphModule::moe_router, GraphModule::moe_preprocess});
  CHECK(scoped.training.expert_loads.kind == ExpertLoads::Kind::forced);
  CHECK(steps[0].hbm_GiB == 62);
  const Scenario natural = parse_scenario(steps[1].scenario_text, "s");
  CHECK(natural.training.cuda_graph_modules.empty());
  CHECK(natural.training.expert_loads.kind == ExpertLoads::Kind::natural);
  CHECK(steps[2].skipped.find("cuda_graph: expected none, full_iteration") != std::string::npos);
  CHECK(parse_scenario(steps[3].scenario_text, "s").training.captures(GraphModule::full_iteration));
  // A release whose profile differs.
  std::string of_release = row;
  of_release.replace(of_release.find("Megatron-Bridge"), std::string("Megatron-Bridge").size(), "MCore v0.12");
  const std::vector<PublishedStep> old = read_published(dir.write(
      "old.csv", names.substr(0, names.size() - 1) + ",ov_dp\n" + of_release + "alltoall,,forced,,,,,false\n"));
  CHECK(old.at(0).scenario_text.find("overlap_grad_reduce = false") != std::string::npos);
  CHECK(old.at(0).scenario_text.find("profile = \"megatron-core-moe-2025-05\"") != std::string::npos);
  // Words of these columns, columns with a key's name, and columns that nobody knows.
  const auto first = [&](const std::string& header, const std::string& cells) {
    return read_published(dir.write("one.csv", header + row + cells + "\n")).at(0);
  };
  const std::string cells[] = {"alltoall", "", "forced", "", "", "", ""};
  for (std::size_t changed = 0; changed < 6; ++changed) {
    std::string line;
    for (std::size_t i = 0; i < std::size(cells); ++i)
      line += (i > 0 ? "," : "") + (i == changed ? "Flurble" : cells[i]);
    CHECK(first(names, line).skipped.find("Flurble") != std::string::npos);
  }
  const std::string start = names.substr(0, names.size() - 1);
  CHECK(first(start + ",head_dim\n", "alltoall,,forced,,,,,64").scenario_text.find("kv_channels = 64") !=
        std::string::npos);
  CHECK(first(start + ",moe_router_topk\n", "alltoall,,forced,,,,,4").scenario_text.find("moe_router_topk = 4") !=
        std::string::npos);
  CHECK(first(start + ",optimizer\n", "alltoall,,forced,,,,,Muon").skipped.find("Muon") != std::string::npos);
  CHECK(first(start + ",ov_weather\n", "alltoall,,forced,,,,,true").skipped.find("ov_weather") != std::string::npos);
  CHECK(first(start + ",weather\n", "alltoall,,forced,,,,,rain").assumed().back() == "weather not read: rain");
  // Each of the two is modelled, or its rows are skipped by its name.
  for (const auto& [step, key] :
       {std::pair{&steps[4], "delay_wgrad_compute"}, {&steps[5], "moe_shared_expert_overlap"}})
    CHECK((step->skipped + step->scenario_text).find(key) != std::string::npos);
}

TEST_CASE("the interval of a row that leaves routing or dispatcher open covers every reading",
          "[compare][moepredict]") {
  const TempDir dir;
  const std::string names =
      "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,gbs,mbs,tp,pp,vp_chunks,cp,ep,dp,"
      "precision,recompute,framework,step_time_s,caveat,task,cluster,dispatcher,routing\n";
  const std::string row =
      ",x,H100,16,Qwen3-30B-A3B,4,2048,32,4,6144,151936,4096,16,1,1,1,,1,16,16,bf16,,Megatron-Bridge,1,,pretrain,c,";
  const Validation validation = validate(read_published(
      dir.write("steps.csv", names + "said" + row + "alltoall,forced\n" + "routing" + row + "alltoall,\n" + "both" +
                                 row + ",\n" + "library" + row + ",natural\n")));
  REQUIRE(validation.steps.size() == 4);
  for (const ValidatedStep& step : validation.steps) {
    INFO(step.published.id << ": " << step.published.skipped);
    REQUIRE(step.published.skipped.empty());
    std::vector<std::string> readings;
    for (const PublishedStep::Reading& reading : step.published.readings) readings.push_back(reading.what);
    const std::map<std::string, std::vector<std::string>> expected = {
        {"said", {}},
        {"routing", {"forced routing", "natural routing"}},
        {"both", {"without the recipe's settings", "forced routing", "natural routing"}},
        {"library", {"without the recipe's settings"}}};
    CHECK(readings == expected.at(step.published.id));
    REQUIRE(step.readings_s.size() == readings.size());
    for (std::size_t i = 0; i < readings.size(); ++i) {
      const double reading_s = step.readings_s[i];
      CHECK((step.low_s() <= reading_s && reading_s <= step.high_s()));
      // Readings that share a schedule take as long as each by itself.
      const Scenario other = parse_scenario(step.published.readings[i].scenario_text, "reading");
      const sim::Platform platform = sim::read_platform(other.platform);
      CHECK(predict::QuickStep(other).step_s(platform, other.framework) == reading_s);
    }
    CHECK((step.high_s() > 1.02 * step.low_s()) == !readings.empty());
  }
  // Natural routing takes longer, and NCCL's messages more time across nodes than the recipe's HybridEP.
  const std::vector<double>& both = validation.steps[2].readings_s;
  CHECK((both[2] > both[1] && both[0] > both[1]));
  CHECK(validation.steps[2].published.scenario_text.find("hybridep") != std::string::npos);
}

TEST_CASE("a model's name says the sizes that a row leaves out, and a release its profile", "[compare][habits]") {
  const TempDir dir;
  const std::string text =
      "id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,gbs,mbs,tp,pp,vp_chunks,cp,ep,dp,"
      "precision,recompute,framework,step_time_s,caveat,task,cluster\n"
      "a,x,H100,64,Llama-3.1-70B BF16,,,,,,,8192,128,1,4,4,5,2,,2,bf16,,NeMo 24.07,5.0,,pretrain,a\n"
      "b,x,H100,8,Llama2-70B,,,,,,,8192,8,1,4,1,,2,,1,bf16,,NeMo 25.02,3.0,GovReport,lora,b\n";
  const std::vector<PublishedStep> steps = read_published(dir.write("steps.csv", text));
  REQUIRE(steps.size() == 2);
  const Scenario named = parse_scenario(steps[0].scenario_text, "s");
  CHECK(named.model.num_layers == 80);
  CHECK(named.model.ffn_hidden_size == 28672);
  CHECK(named.model.kv_heads() == 8);
  CHECK(steps[0].profile == "nemo-dgxc-flash2");
  const Scenario tuned = parse_scenario(steps[1].scenario_text, "s");
  CHECK(tuned.model.seq_length == 8192);  // one document of GovReport
  CHECK(steps[1].scenario_text.find("cp_comm_type = \"a2a\"") != std::string::npos);
}

TEST_CASE("every word that ships has a meaning, and every profile and platform that it means is there", "[compare]") {
  const PublishedWords words = read_published_words(data_path("published.toml"));
  const auto is_there = [](const char* kind, const std::string& name) {
    const std::vector<std::string> names = data_names(kind);
    return name.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto& entry : words.frameworks)
    CHECK((is_there("profiles", entry.profile) && is_there("platforms", entry.platform)));
  for (const auto& entry : words.gpus) CHECK(is_there("platforms", entry.platform));
  std::set<std::string> techniques;
  for (const auto& entry : words.techniques) techniques.insert(entry.means);
  for (const auto& framework : words.frameworks)
    for (const std::string& word : framework.also) CHECK_FALSE(word.empty());
  for (const auto& habit : words.habits) {
    CHECK(is_there("profiles", habit.profile));
    CHECK((habit.technique.empty() || techniques.contains(habit.technique)));
    for (const std::string& of : habit.of) CHECK(is_there("profiles", of));
  }
}

// torchtitan overlaps products with their communication under per-operation recomputation too, and we do not.
TEST_CASE("a row whose own mode is off here is skipped by the mode's name, and not counted", "[compare]") {
  const TempDir dir;
  const std::string row = ",x,H100,16,Llama,2,1024,8,8,2816,32000,2048,16,2,2,1,1,1,1,8,bf16,";
  const std::string titan = ",torchtitan,1,,pretrain,c,";
  const Validation validation = validate(read_published(written(
      dir, "off" + row + "selective op" + titan + "async TP\n" + "on" + row + "full" + titan + "async TP\n" + "plain" +
               row + "selective op" + titan + "vanilla TP\n" + "alone,x,H100,1,Llama,2,1024,8,8,2816," +
               "32000,2048,2,2,1,1,1,1,1,1,bf16,,NeMo,1,,pretrain,c,overlap_grad_reduce=true\n")));
  REQUIRE(validation.steps.size() == 4);
  CHECK(
      validation.steps[0].published.skipped.starts_with("its own tp_comm_overlap is off here: recompute_granularity"));
  CHECK(validation.steps[1].published.skipped == "");
  CHECK(validation.steps[2].published.skipped == "");
  // One replica has nothing to reduce, in the framework neither.
  CHECK(validation.steps[3].published.skipped == "");
  CHECK(validation.steps[3].published.assumptions.back().starts_with(
      "overlap_grad_reduce without effect: data_parallel"));
}

// Korthikanti et al. (arXiv 2205.05198, tables 3 and 5), 22B on eight A100. The only constant of the platform or the
// profile that was fitted to this paper is bmm_share, to its table 4.
TEST_CASE("steps of a 22B model on A100 are predicted within 3 %", "[compare]") {
  const TempDir dir;
  const std::string row = ",x,A100-80GB,8,GPT-22B,48,6144,64,64,24576,51200,2048,4,4,8,1,1,1,1,1,fp16,";
  const Validation validation =
      validate(read_published(written(dir, "full" + row + "full,Megatron-LM 2022,1.42,,pretrain,c1,\nselective" + row +
                                               "selective+sequence parallel,Megatron-LM 2022,1.10,,pretrain,c2,\n")));
  REQUIRE(validation.groups.size() == 1);
  CHECK(validation.groups[0].steps.size() == 2);
  for (const ValidatedStep& step : validation.steps) {
    INFO(step.published.id);
    CHECK(std::abs(step.error(Fitted::shipped)) < 0.03);
    CHECK(step.error(Fitted::nothing) < step.error(Fitted::shipped));
    CHECK(step.mfu > 0.3);
    CHECK(step.constant_mfu_s > 0);
  }
  CHECK(validation.groups[0].errors[2].mean_abs < 0.03);
}

}  // namespace stretto::validate
