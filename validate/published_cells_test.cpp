#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "tests/temp_dir.hpp"
#include "validate/published.hpp"
#include "validate/published_words.hpp"
#include "validate/validate.hpp"
#include "validate/validation_tables.hpp"

namespace stretto::validate {
namespace {

using Catch::Contains;
using Cells = std::map<std::string, std::string>;

// Returns the only row of a file with these cells: a Llama 3 70B on 64 H100, in other columns and cells as given.
PublishedStep row_with(const Cells& other) {
  Cells cells = {{"id", "row"},
                 {"source", "x"},
                 {"gpu", "H100"},
                 {"gpus", "64"},
                 {"model", "Llama3-70B"},
                 {"layers", "80"},
                 {"hidden", "8192"},
                 {"heads", "64"},
                 {"kv_heads", "8"},
                 {"vocab", "128256"},
                 {"seq_len", "8192"},
                 {"gbs", "256"},
                 {"mbs", "1"},
                 {"tp", "4"},
                 {"pp", "4"},
                 {"vp_chunks", "5"},
                 {"cp", "1"},
                 {"ep", ""},
                 {"dp", "4"},
                 {"precision", "bf16"},
                 {"recompute", "none"},
                 {"framework", "Megatron-Bridge"},
                 {"step_time_s", "10"},
                 {"caveat", ""},
                 {"task", "pretrain"},
                 {"cluster", ""}};
  for (const auto& [column, cell] : other) cells[column] = cell;
  std::string header, row;
  for (const auto& [column, cell] : cells) {
    header += (header.empty() ? "" : ",") + column;
    row += (row.empty() ? "\"" : ",\"") + cell + "\"";
  }
  const testing::TempDir dir;
  return read_published(dir.write("steps.csv", header + "\n" + row + "\n")).at(0);
}

const Cells kExperts = {{"model", "Qwen3-30B-A3B"},
                        {"layers", "48"},
                        {"hidden", "2048"},
                        {"heads", "32"},
                        {"kv_heads", "4"},
                        {"vocab", "151936"},
                        {"tp", "1"},
                        {"pp", "1"},
                        {"vp_chunks", ""},
                        {"ep", "16"},
                        {"dp", "64"},
                        {"num_experts", "128"},
                        {"topk", "8"},
                        {"moe_ffn", "768"},
                        {"seq_len", "4096"}};
Cells experts(const Cells& other) {
  Cells cells = kExperts;
  for (const auto& [column, cell] : other) cells[column] = cell;
  return cells;
}

}  // namespace

TEST_CASE("cells of published rows mean what their authors write", "[compare]") {
  // Cells that say nothing, in any column.
  for (const char* column : {"precision", "recompute", "ov_dp", "shared_ffn", "document_tokens", "attention"})
    for (const char* nothing : {"not stated", "not read", "n/s", "default", "(not printed)"}) {
      CAPTURE(column, nothing);
      CHECK(row_with({{column, nothing}}).skipped.empty());
    }
  struct Row {
    Cells cells;
    std::string keys;  // of the scenario
  };
  for (const Row& row : std::vector<Row>{
           {{{"precision", "bf16 (not printed)"}}, ""},
           {{{"ov_dp", "on"}}, "overlap_grad_reduce = true\n"},
           {{{"ov_dp", "Off"}}, "overlap_grad_reduce = false\n"},
           {{{"recompute", "full uniform 1"}}, "recompute_method = \"uniform\"\nrecompute_num_layers = 1\n"},
           {{{"recompute", "full (block 3 layers)"}}, "recompute_method = \"block\"\nrecompute_num_layers = 3\n"},
           {{{"recompute", "selective (core_attn)"}}, "recompute_modules = [\"core_attn\"]\n"},
           {{{"gpu", "A100-SXM4-40GB"}}, "platform = \"a100-40gb\"\n"},
           {{{"tp", "16"}, {"dp", "1"}}, "num_query_groups = 16\n"},
           {{{"task", "sft packed"}, {"document_tokens", "512"}}, "seq_length = 512\n"},
           {{{"task", "sft 128k"}, {"document_tokens", "3000"}}, "mean_document_tokens = 3000\n"},
           {{{"document_tokens", "1024"}}, "mean_document_tokens = 1024\n"},
           {{{"attention", "FlashAttention-2"}, {"framework", "NeMo"}}, "profile = \"nemo-dgxc-flash2\"\n"},
           {{{"attention", "cuDNN"}, {"framework", "NeMo"}}, "profile = \"nemo-dgxc\"\n"},
           {{{"attention", "unfused"}}, "attention_backend = \"unfused\"\n"},
           {{{"framework", "NeMo"}, {"release", "24.07"}}, "profile = \"nemo-dgxc-flash2\"\n"},
           {{{"framework", "Megatron-LM core_r0.13"}}, "profile = \"megatron-core-te\"\n"},
           {{{"kv_heads", ""}}, "num_query_groups = 8\n"},
           {{{"model", "Some-13B"}, {"ffn", "28672"}}, "swiglu = true\n"},
           {experts({{"shared_ffn", "0"}}), ""},
           {experts({{"shared_ffn", "none"}}), ""},
           {experts({{"routing", "synthetic"}}), "moe_expert_loads = \"forced\"\n"},
           {experts({{"task", "pretrain natural"}}), "moe_expert_loads = \"natural\"\n"},
           {experts({{"dispatcher", "allgather"}}), "moe_token_dispatcher_type = \"allgather\"\n"},
           {experts({{"dispatcher", "flex"}}), "moe_flex_dispatcher_backend = \"hybridep\"\n"},
           {experts({{"model", "Some-MoE-30B"}}), "num_moe_experts = 128\n"}}) {
    const PublishedStep step = row_with(row.cells);
    CAPTURE(row.keys, step.scenario_text);
    CHECK(step.skipped == "");
    CHECK_THAT(step.scenario_text, Contains(row.keys));
    if (step.skipped.empty()) CHECK_NOTHROW(parse_scenario(step.scenario_text, "row"));
  }
}

TEST_CASE("a row's measured communication is compared with the predicted one", "[compare]") {
  const PublishedStep step = row_with({{"active_s", "3.5"}, {"hidden_comm_s", "1.25"}});
  CHECK(step.active_s == 3.5);
  CHECK(step.hidden_s == 1.25);
  const Validation validation = validate({step}, {});
  const ValidatedStep& predicted = validation.steps.at(0);
  CHECK(predicted.active_s > 0);
  CHECK(predicted.hidden_s >= 0);
  CHECK(predicted.hidden_s < predicted.active_s);
  CHECK(table_of_communication(validation).rows() == 1);
  CHECK(table_of_communication(validate({row_with({})}, {})).rows() == 0);
}

TEST_CASE("cells that are not modelled are refused by their name", "[compare]") {
  for (const auto& [cells, why] : std::vector<std::pair<Cells, std::string>>{
           {{{"task", "vlm sft"}}, "models with towers other than of text (\"vlm sft\")"},
           {{{"task", "grpo"}}, "reinforcement learning"},
           {{{"task", "QLoRA"}}, "adapters other than LoRA's"},
           {{{"task", "sft deterministic"}}, "deterministic mode"},
           {{{"task", "sftx"}}, "task: expected one of"},
           {{{"attention", "FA4"}}, "attention by a kernel without rates (\"FA4\")"},
           {{{"attention", "flash2"}}, "attention by flash2 with profile megatron-bridge (\"flash2\")"},
           {{{"recompute", "full uniform x"}}, "recompute: expected uniform or block, and a number of layers"},
           {{{"model", "Some-13B"}}, "model: \"Some-13B\" is not known"},
           {{{"model", "Qwen3-Next-80B-A3B"}}, "layers of linear attention"},
           {{{"model", "gpt-oss-120b"}}, "attention windows"},
           {experts({{"model", "GLM-5.2"}}), "sparse attention"},
           {experts({{"model", "Kimi-K2"}}), "latent attention of other sizes"},
           {experts({{"dispatcher", "UCCL-EP"}}), "dispatcher: \"UCCL\""},
           {experts({{"shared_ffn", "-3"}}), "shared_ffn: expected a number above 0"}}) {
    const PublishedStep step = row_with(cells);
    CAPTURE(why);
    CHECK_THAT(step.skipped, Contains(why));
  }
}

TEST_CASE("a word of several is found where words of a cell begin", "[compare]") {
  const auto has = [](const char* cell, const char* word) { return Words(cell).take({folded(word)}); };
  CHECK_FALSE(has("Megatron-LM core_r0.13", "MCore"));
  CHECK(has("MCore v0.12", "MCore"));
  CHECK(has("Megatron-Core", "megatron core"));
  CHECK(has("nanoGPT", "gpt"));
  CHECK_FALSE(has("Megatron", "at"));
  CHECK(has("codellama", "llama"));
  CHECK(has("A100-SXM4-40GB", "SXM4"));
  CHECK_FALSE(has("adopted", "opt"));
}

}  // namespace stretto::validate
