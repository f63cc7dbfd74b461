#include "habits/habits.hpp"

#include <catch2/catch.hpp>

#include "habits/model_names.hpp"
#include "habits/question.hpp"
#include "habits/recipes.hpp"
#include "model/framework_profile.hpp"
#include "model/scenario.hpp"
#include "tests/message_of.hpp"

namespace stretto::habits::tests {

using stretto::testing::message_of;

TEST_CASE("people's spellings name models", "[habits]") {
  const auto name = [](const char* text) { return model_named(text) == nullptr ? "" : model_named(text)->name; };
  for (const char* text :
       {"Llama-3.1-8B", "llama3-8b", "llama3.1-8b", "meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama 3 8B"})
    CHECK(name(text) == "llama3-8b");
  for (const char* text : {"DeepSeek V3", "deepseek-ai/DeepSeek-V3", "DeepSeek-R1", "deepseek_v3"})
    CHECK(name(text) == "deepseek-v3");
  CHECK(name("Qwen/Qwen3-235B-A22B") == "qwen3-235b-a22b");
  CHECK(name("Qwen3-14B-Base") == "qwen3-14b");
  CHECK(name("llama4-8b").empty());
  CHECK(nearest_model("deepseek-v4") == "deepseek-v3");
  for (const ModelName& model : model_names())
    CHECK_NOTHROW(parse_scenario("[model]\n" + keys_of_model(model), model.name));
}

TEST_CASE("releases are found and compared by as many numbers as a bound has", "[habits]") {
  CHECK(release_of("NVIDIA/dgxc-benchmarking@741c886025a7:llama3.1/README.md (v25.04..v25.04.02)") == "25.04");
  CHECK(release_of("NeMo 24.07") == "24.07");
  CHECK(release_of("container 26.02.01") == "26.02.01");
  CHECK(release_of("arXiv 2104.04473 table 2, TE 2.11").empty());
  CHECK(is_between("25.04.02", "", "25.04"));
  CHECK_FALSE(is_between("25.05", "", "25.04"));
  CHECK(is_between("26.04.01", "26.04.01", ""));
  CHECK_FALSE(is_between("26.04", "26.04.01", ""));
  // The newest.
  CHECK(is_between("", "26.02", ""));
  CHECK_FALSE(is_between("", "", "26.02"));
}

TEST_CASE("the table fills in what a run does not say", "[habits]") {
  Run run;
  run.profile = "nemo-dgxc";
  run.platform = "h100-sxm";
  run.model = "Llama 3.1 8b";
  run.precision = "bf16";
  run.release = "24.07";
  CHECK(habits_of(run).profile == "nemo-dgxc-flash2");
  run.release = "25.04.02";
  CHECK(habits_of(run).profile == "nemo-dgxc");
  run.precision = "fp8";
  CHECK(habits_of(run).precision == "fp8_ds");

  Run experts;
  experts.profile = "megatron-bridge-moe";
  experts.platform = "gb300-nvl72";
  experts.model = "Qwen3-30B-A3B";
  experts.precision = "fp8_mx";
  experts.gpus = 8;
  const auto value = [](const Filled& filled, const std::string& key) {
    for (const Assumed& one : filled.values)
      if (one.key == key) return one.value;
    return std::string();
  };
  Filled filled = habits_of(experts);
  CHECK(filled.recipe == "qwen3_30b_a3b_pretrain_8gpu_gb300_fp8mx");
  CHECK(value(filled, "training.cuda_graph_modules") == "[\"full_iteration\"]");
  experts.release = "26.02";
  filled = habits_of(experts);
  CHECK(value(filled, "training.cuda_graph_modules") == "[\"moe_router\", \"moe_preprocess\"]");
  CHECK(value(filled, "overlap.overlap_moe_expert_parallel_comm").empty());
  experts.stated.insert("training.cuda_graph_modules");
  CHECK(value(habits_of(experts), "training.cuda_graph_modules").empty());
  experts.says_ways = true;
  CHECK(habits_of(experts).recipe.empty());

  run.task = "lora";
  CHECK(habits_of(run).document_tokens == 256);
  run.source = "mlperf training v5.0";
  CHECK(habits_of(run).document_tokens == 8192);
}

TEST_CASE("a question in names starts from the recipe", "[habits]") {
  Question question;
  question.model = "DeepSeek V3";
  question.gpus = 512;
  const Answer made = answer(question);
  CHECK(made.profile == "megatron-bridge-moe");
  CHECK(made.keys.at("parallel.tensor_model_parallel_size") == "2");
  CHECK(made.keys.at("training.global_batch_size") == "8192");
  CHECK(made.list().find("platform = \"h100-sxm\", because no --platform is given") != std::string::npos);
  const Scenario scenario = parse_scenario(made.text(), "test");
  CHECK(scenario.parallel.ranks() == 512);
  CHECK(scenario.name == "deepseek-v3 on 512 GPUs");
  question.set = {"training.micro_batch_size=2"};
  CHECK(answer(question).keys.at("training.micro_batch_size") == "2");
  question.gpus = 500;
  CHECK(message_of([&] { answer(question); }).find("the nearest") != std::string::npos);
  question.model = "deepseek-v4";
  CHECK(message_of([&] { answer(question); }).find("did you mean \"deepseek-v3\"?") != std::string::npos);
  // No recipe: the smallest layout whose state fits.
  Question other;
  other.model = "mixtral";
  other.gpus = 64;
  const Answer mixtral = answer(other);
  CHECK(parse_scenario(mixtral.text(), "test").parallel.expert_model_parallel_size == 8);
  CHECK(mixtral.readings.size() == kMostReadings);
}

TEST_CASE("profiles have releases", "[habits]") {
  CHECK(released_profile("nemo-dgxc@24.07") == "nemo-dgxc-flash2");
  CHECK(released_profile("nemo-dgxc@25.02") == "nemo-dgxc");
  CHECK(message_of([] { released_profile("nemo-dgxc@23.01"); }).find("one of the releases 23.11, 24.01") !=
        std::string::npos);
  CHECK(parse_scenario("profile = \"nemo-dgxc@24.07\"\nmodel.preset = \"llama3-8b\"\n", "test")
            .framework.attention_kernel == "flash2");
}

}  // namespace stretto::habits::tests
