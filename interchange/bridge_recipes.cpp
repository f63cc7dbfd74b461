#include "interchange/bridge_recipes.hpp"

#include <algorithm>
#include <set>

#include "interchange/perf_recipes.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

enum Trait : unsigned {
  kNull = 1,       // vocabulary of the NullTokenizer, which wins over the model's (use_tokenizer_vocab_size)
  kTokenizer = 2,  // vocabulary of the model's tokenizer
  kOverlaps = 4,   // ddp: overlap_grad_reduce and overlap_param_gather
  kSequence = 8,   // sequence_parallel
  kBf16 = 16,      // mixed_precision: grad_reduce_in_fp32 False
  kComm = 32,      // a CommOverlapConfig
  kTp = 64,        // one with tp_comm_overlap; products as TransformerEngine has them by default
  kDefer = 128,    // and defer_embedding_wgrad_compute
  kSplit = 256,    // embedding and loss count as layers of the pipeline
  kFull = 512,     // every layer is recomputed
};

struct Row {
  const char* name;  // without "_config"
  int gpus, seq_length, tp, pp, vp, cp, global_batch_size, micro_batch_size;
  unsigned traits;
};
constexpr Row kRows[] = {
    {"llama2_7b_pretrain", 2, 4096, 2, 1, 1, 1, 512, 1, kNull | kOverlaps | kComm},
    {"llama3_70b_peft", 8, 4096, 8, 1, 1, 1, 8, 1, 0},
    {"llama3_70b_64k_pretrain", 256, 65536, 8, 4, 1, 8, 512, 1, kNull | kOverlaps | kSequence | kTp},
    {"llama3_70b_16k_pretrain", 32, 16384, 8, 2, 1, 2, 512, 1, kNull | kOverlaps | kSequence | kTp},
    {"llama3_70b_pretrain", 32, 8192, 4, 4, 5, 2, 512, 1, kNull | kOverlaps | kSequence | kTp},
    {"llama3_70b_sft", 32, 4096, 8, 4, 1, 1, 8, 1, 0},
    {"llama3_8b_peft", 1, 4096, 1, 1, 1, 1, 8, 1, 0},
    {"llama3_8b_16k_pretrain", 16, 16384, 4, 2, 1, 2, 512, 1, kNull | kOverlaps | kSequence},
    {"llama3_8b_pretrain", 2, 8192, 1, 1, 1, 2, 512, 1, kNull | kOverlaps},
    {"llama3_8b_64k_pretrain", 32, 65536, 4, 2, 1, 4, 512, 1, kNull | kOverlaps | kSequence},
    {"llama3_8b_128k_pretrain", 64, 131072, 4, 2, 1, 8, 512, 1, kNull | kOverlaps | kSequence},
    {"llama3_8b_sft", 2, 4096, 2, 1, 1, 1, 8, 1, 0},
    {"llama31_405b_peft", 32, 2048, 4, 8, 8, 1, 32, 1, kSequence | kBf16 | kComm | kSplit},
    {"llama31_405b_pretrain", 256, 131072, 8, 8, 2, 4, 512, 1, kNull | kOverlaps | kSequence | kTp | kSplit},
    {"llama31_405b_sft", 128, 2048, 8, 16, 1, 1, 16, 1, kOverlaps | kSequence | kBf16 | kTp | kDefer | kSplit},
    {"llama31_70b_peft", 8, 4096, 8, 1, 1, 1, 8, 1, 0},
    {"llama31_70b_pretrain", 32, 131072, 4, 4, 5, 2, 512, 1, kNull | kOverlaps | kSequence | kTp},
    {"llama31_70b_sft", 32, 4096, 8, 4, 1, 1, 8, 1, 0},
    {"llama31_8b_peft", 1, 4096, 1, 1, 1, 1, 8, 1, 0},
    {"llama31_8b_pretrain", 2, 8192, 1, 1, 1, 2, 512, 1, kNull | kOverlaps},
    {"llama31_8b_sft", 2, 4096, 2, 1, 1, 1, 8, 1, 0},
    {"llama32_1b_peft", 1, 4096, 1, 1, 1, 1, 8, 1, 0},
    {"llama32_1b_pretrain", 1, 8192, 1, 1, 1, 1, 512, 1, kNull | kOverlaps},
    {"llama32_1b_sft", 1, 4096, 1, 1, 1, 1, 8, 1, 0},
    {"llama32_3b_peft", 1, 4096, 1, 1, 1, 1, 8, 1, 0},
    {"llama32_3b_pretrain", 1, 8192, 1, 1, 1, 1, 512, 1, kNull | kOverlaps},
    {"llama32_3b_sft", 1, 4096, 1, 1, 1, 1, 8, 1, 0},
    {"qwen2_1p5b_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen2_1p5b_pretrain", 1, 4096, 1, 1, 1, 1, 32, 2, kNull},
    {"qwen2_1p5b_sft", 1, 2048, 1, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen2_500m_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen2_500m_pretrain", 1, 4096, 1, 1, 1, 1, 32, 2, kNull},
    {"qwen2_500m_sft", 1, 2048, 1, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen2_72b_peft", 8, 2048, 8, 1, 1, 1, 128, 1, 0},
    {"qwen2_72b_pretrain", 32, 4096, 8, 4, 1, 1, 32, 2, kNull},
    {"qwen2_72b_sft", 32, 2048, 8, 4, 1, 1, 128, 1, kOverlaps},
    {"qwen2_7b_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen2_7b_pretrain", 2, 4096, 2, 1, 1, 1, 32, 2, kNull},
    {"qwen2_7b_sft", 2, 2048, 2, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen25_14b_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen25_14b_pretrain", 4, 4096, 4, 1, 1, 1, 32, 2, kNull},
    {"qwen25_14b_sft", 4, 2048, 4, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen25_1p5b_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen25_1p5b_pretrain", 1, 4096, 1, 1, 1, 1, 32, 2, kNull},
    {"qwen25_1p5b_sft", 1, 2048, 1, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen25_32b_peft", 8, 2048, 8, 1, 1, 1, 128, 1, 0},
    {"qwen25_32b_pretrain", 16, 4096, 8, 2, 1, 1, 32, 2, kNull},
    {"qwen25_32b_sft", 16, 2048, 8, 2, 1, 1, 128, 1, kOverlaps},
    {"qwen25_500m_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen25_500m_pretrain", 1, 4096, 1, 1, 1, 1, 32, 2, kNull},
    {"qwen25_500m_sft", 1, 2048, 1, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen25_72b_peft", 8, 2048, 8, 1, 1, 1, 128, 1, 0},
    {"qwen25_72b_pretrain", 32, 4096, 8, 4, 1, 1, 32, 2, kNull},
    {"qwen25_72b_sft", 32, 2048, 8, 4, 1, 1, 128, 1, kOverlaps},
    {"qwen25_7b_peft", 1, 2048, 1, 1, 1, 1, 128, 1, 0},
    {"qwen25_7b_pretrain", 2, 4096, 2, 1, 1, 1, 32, 2, kNull},
    {"qwen25_7b_sft", 2, 2048, 2, 1, 1, 1, 128, 1, kOverlaps},
    {"qwen3_14b_peft", 1, 2048, 1, 1, 1, 1, 8, 1, 0},
    {"qwen3_14b_pretrain", 8, 4096, 8, 1, 1, 1, 32, 2, kTokenizer | kOverlaps},
    {"qwen3_14b_sft", 8, 2048, 8, 1, 1, 1, 8, 1, 0},
    {"qwen3_1p7b_peft", 1, 2048, 1, 1, 1, 1, 8, 1, 0},
    {"qwen3_1p7b_pretrain", 1, 4096, 1, 1, 1, 1, 32, 2, kTokenizer | kOverlaps},
    {"qwen3_1p7b_sft", 1, 2048, 1, 1, 1, 1, 8, 1, 0},
    {"qwen3_32b_peft", 1, 2048, 1, 1, 1, 1, 8, 1, kFull},
    {"qwen3_32b_pretrain", 16, 4096, 8, 2, 1, 1, 32, 2, kTokenizer | kOverlaps | kFull},
    {"qwen3_32b_sft", 16, 2048, 8, 2, 1, 1, 8, 1, kFull},
    {"qwen3_4b_peft", 1, 2048, 1, 1, 1, 1, 8, 1, 0},
    {"qwen3_4b_pretrain", 2, 4096, 2, 1, 1, 1, 32, 2, kTokenizer | kOverlaps},
    {"qwen3_4b_sft", 2, 2048, 2, 1, 1, 1, 8, 1, 0},
    {"qwen3_600m_peft", 1, 2048, 1, 1, 1, 1, 8, 1, 0},
    {"qwen3_600m_pretrain", 1, 4096, 1, 1, 1, 1, 32, 2, kTokenizer | kOverlaps},
    {"qwen3_600m_sft", 1, 2048, 1, 1, 1, 1, 8, 1, 0},
    {"qwen3_600m_sft_128k", 8, 131072, 1, 1, 1, 8, 2, 1, 0},
    {"qwen3_600m_sft_yarn_128k", 8, 131072, 1, 1, 1, 8, 8, 1, 0},
    {"qwen3_8b_peft", 1, 2048, 1, 1, 1, 1, 32, 1, 0},
    {"qwen3_8b_pretrain", 16, 4096, 1, 1, 1, 1, 1024, 1, kTokenizer | kOverlaps | kBf16},
    {"qwen3_8b_pretrain", 4, 4096, 4, 1, 1, 1, 32, 2, kTokenizer | kOverlaps},
    {"qwen3_8b_sft", 4, 2048, 4, 1, 1, 1, 32, 1, 0},
    {"qwen3_8b_sft_32k", 8, 32768, 4, 1, 1, 2, 8, 1, kSequence},
};

// The recipe of GPT-3 spells its model out (below).
constexpr Row kGpt3 = {
    "gpt3_175b_pretrain", 32, 2048, 4, 8, 6, 1, 2048, 2, kNull | kOverlaps | kSequence | kBf16 | kTp | kDefer};

Json settings_of(const Row& row) {
  const auto has = [&](Trait trait) { return (row.traits & trait) != 0; };
  Json model = {{"seq_length", row.seq_length},           {"tensor_model_parallel_size", row.tp},
                {"pipeline_model_parallel_size", row.pp}, {"virtual_pipeline_model_parallel_size", row.vp},
                {"context_parallel_size", row.cp},        {"sequence_parallel", has(kSequence)}};
  if (has(kSplit))
    model["account_for_embedding_in_pipeline_split"] = model["account_for_loss_in_pipeline_split"] = true;
  if (has(kFull)) {
    model["recompute_granularity"] = "full";
    model["recompute_method"] = "uniform";
    model["recompute_num_layers"] = 1;
  }
  Json settings = {
      {"model", std::move(model)},
      {"train", {{"global_batch_size", row.global_batch_size}, {"micro_batch_size", row.micro_batch_size}}},
      {"ddp", {{"overlap_grad_reduce", has(kOverlaps)}, {"overlap_param_gather", has(kOverlaps)}}},
      {"mixed_precision", {{"bf16", true}, {"grad_reduce_in_fp32", !has(kBf16)}}}};
  constexpr int kNullVocabulary = 32'000, kQwen3Vocabulary = 151'669;
  if (has(kNull) || has(kTokenizer)) {
    settings["tokenizer"] = {{"vocab_size", has(kNull) ? kNullVocabulary : kQwen3Vocabulary}};
    settings["model"]["make_vocab_size_divisible_by"] = 128;
  }
  if (has(kComm) || has(kTp)) settings["comm_overlap"] = {{"tp_comm_overlap", has(kTp)}};
  if (has(kDefer)) {
    settings["comm_overlap"]["defer_embedding_wgrad_compute"] = true;
    settings["comm_overlap"]["wgrad_deferral_limit"] = row.tp == 4 ? 50 : 22;
  }
  if (std::string_view(row.name).ends_with("_peft")) settings["peft"] = "lora";
  return settings;
}

// Parts of a recipe's name that say it is not modelled.
constexpr std::pair<const char*, const char*> kRefusedNames[] = {
    {"moe", "recipes with experts"},
    {"_a3b", "recipes with experts"},
    {"_a22b", "recipes with experts"},
    {"_a1b", "recipes with experts"},
    {"mixtral", "recipes with experts"},
    {"deepseek", "recipes with experts"},
    {"gpt_oss", "biases of experts"},
    {"kimi", "recipes with experts"},
    {"moonlight", "recipes with experts"},
    {"glm5", "sparse attention"},
    {"deepseek_v4", "sparse attention"},
    {"glm", "recipes with experts"},
    {"minimax", "recipes with experts"},
    {"step3", "recipes with experts"},
    {"nemotron_3", "Mamba layers"},
    {"_a11b", "recipes with experts"},
    {"qwen3_next", "linear attention"},
    {"qwen35", "linear attention"},
    {"llama4", "recipes with experts"},
    {"bailing", "recipes with experts"},
    {"distill", "distillation"},
    {"falcon_h1", "Mamba layers"},
    {"nemotronh", "Mamba layers"},
    {"nemotron_h", "Mamba layers"},
    {"nemotron_nano", "Mamba layers"},
    {"mamba", "Mamba layers"},
    {"_vl", "image encoders"},
    {"vlm", "image encoders"},
    {"ministral3", "image encoders"},
    {"flux", "diffusion"},
    {"wan_", "diffusion"},
    {"omni", "image encoders"},
    {"audio", "audio encoders"},
    {"llava", "image encoders"},
    {"fp8", "fp8"},
    {"low_precision", "fp8"},
    {"nvfp4", "fp4"},
    {"t5_", "encoders"},
    {"bert", "encoders"},
};

// Returns the words of a name that identify its recipe. Words of hardware do not: "4gpu" sets `gpus`.
std::set<std::string> words_of(std::string_view name, std::int64_t& gpus) {
  std::set<std::string> words;
  std::string word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const char c = i < name.size() ? name[i] : '_';
    if (c != '_' && c != '-' && c != '.') {
      word += c;
      continue;
    }
    if (word.ends_with("gpu") && word.size() > 3 && word.size() < 10 &&
        word.find_first_not_of("0123456789") == word.size() - 3)
      gpus = std::stoll(word);
    else if (!word.empty() && word != "config" && word != "h100" && word != "bf16")
      words.insert(word);
    word.clear();
  }
  return words;
}

}  // namespace

std::optional<BridgeRecipe> bridge_recipe(std::string_view name, bool has_peft) {
  if (const PerfRecipe* recipe = perf_recipe_by_name(name)) return settings_of(*recipe);
  std::int64_t asked = 0;
  std::set<std::string> words = words_of(name, asked);
  if (words.contains("finetune")) words.insert(has_peft ? "peft" : "sft");
  std::int64_t gpus_of_best = 0;
  std::size_t most = 0;
  // Returns whether a recipe is better than those before it.
  const auto is_better = [&](std::string_view row, std::int64_t gpus) {
    std::int64_t none = 0;
    const std::set<std::string> own = words_of(row, none);
    const bool fits = std::includes(words.begin(), words.end(), own.begin(), own.end());
    if (!fits || own.size() < most || (own.size() == most && (asked != gpus || asked == gpus_of_best))) return false;
    gpus_of_best = gpus;
    most = own.size();
    return true;
  };
  const Row* best = nullptr;
  const PerfRecipe* measured = nullptr;
  std::optional<BridgeRecipe> with_experts;
  for (const Row& row : kRows)
    if (is_better(row.name, row.gpus)) best = &row;
  if (is_better(kGpt3.name, kGpt3.gpus)) best = &kGpt3;
  for (BridgeRecipe& recipe : recipes_with_experts())
    if (is_better(recipe.name, recipe.gpus)) with_experts = std::move(recipe);
  for (const PerfRecipe& recipe : perf_recipes())
    if (is_better(recipe.name, recipe.gpus)) measured = &recipe;
  if (measured != nullptr) return settings_of(*measured);
  if (with_experts || best == nullptr) return with_experts;
  BridgeRecipe recipe{best->name, best->gpus, settings_of(*best)};
  if (best == &kGpt3) {
    recipe.settings["model"].update(
        {{"num_layers", 96}, {"hidden_size", 12288}, {"ffn_hidden_size", 49152}, {"num_attention_heads", 96}});
    recipe.settings["comm_overlap"]["tp_comm_overlap_cfg"] = {{"fc2_fprop", {{"method", "ring_exchange"}}}};
  }
  return recipe;
}

std::vector<std::string> not_modelled_by_name(std::string_view name) {
  if (perf_recipe_by_name(name) != nullptr) return {};
  const std::optional<BridgeRecipe> recipe = bridge_recipe(name);
  const bool has_known_experts = recipe && !recipe->preset.empty();
  std::set<std::string> nouns;
  for (const auto& [word, noun] : kRefusedNames)
    if (name.find(word) != std::string_view::npos &&
        !(has_known_experts && std::string_view(noun).ends_with("experts")))
      nouns.insert(noun);
  // Attention or layers of another kind say more than experts, which every such model has.
  if (nouns.size() > nouns.count("fp8") + nouns.count("fp4") + nouns.count("recipes with experts"))
    nouns.erase("recipes with experts");
  return {nouns.begin(), nouns.end()};
}

}  // namespace stretto
