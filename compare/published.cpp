#include "compare/published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "base/csv.hpp"
#include "base/read_file.hpp"

namespace stretto::compare {
namespace {

// The columns that are read.
enum Column : std::size_t {
  kId,
  kSource,
  kGpu,
  kGpus,
  kModel,
  kLayers,
  kHidden,
  kHeads,
  kKvHeads,
  kFfn,
  kVocab,
  kSeq,
  kGbs,
  kMbs,
  kTp,
  kPp,
  kChunks,
  kCp,
  kEp,
  kDp,
  kPrecision,
  kRecompute,
  kFramework,
  kStep,
  kTask,
  kCluster,
  kCaveat,
  kNotes  // may be missing
};
const std::vector<std::string> kNames = {
    "id",  "source", "gpu",       "gpus",      "model",     "layers",      "hidden", "heads",     "kv_heads",
    "ffn", "vocab",  "seq_len",   "gbs",       "mbs",       "tp",          "pp",     "vp_chunks", "cp",
    "ep",  "dp",     "precision", "recompute", "framework", "step_time_s", "task",   "cluster",   "caveat"};
const char* const kNotesName = "overlap_notes";

// Part of a framework's or GPU's name → the profile or platform. The first that fits counts.
struct Known {
  const char* part;
  const char* name;
};
constexpr std::array kProfiles = {Known{"DeepSpeed ZeRO", ""},
                                  Known{"Megatron-DeepSpeed 2022", "megatron-deepspeed-2022"},
                                  Known{"Megatron-DeepSpeed", "megatron-deepspeed"},
                                  Known{"Megatron-LM 2022", "megatron-2022"},
                                  Known{"Megatron-LM 2021", "megatron-2021"},
                                  Known{"PTD-P", "megatron-2021"},
                                  Known{"NeMo", "nemo-dgxc"},
                                  Known{"llm-foundry FSDP", "llm-foundry"},
                                  Known{"torchtitan", "torchtitan"},
                                  Known{"fms-fsdp", "fms-fsdp"},
                                  Known{"Aleph Alpha", "aleph-alpha-scaling"},
                                  Known{"Meta Llama 3", "meta-llama3"},
                                  Known{"TE 2.", "megatron-core-te"},
                                  Known{"Megatron-Core", "nemo-dgxc"},
                                  Known{"Megatron-Bridge", "nemo-dgxc"}};
constexpr std::array kPlatforms = {
    Known{"A100", "a100-80gb"},    Known{"H200", "h200-sxm"}, Known{"HBM2e", "h100-hbm2e-500w"}, Known{"96GB", ""},
    Known{"gb200", "gb200-nvl72"}, Known{"b200", "b200-sxm"}, Known{"h100", "h100-sxm"}};

// Models whose rows leave out sizes that the repository they name has (mosaicml/llm-foundry,
// scripts/train/yamls/pretrain; the parameters that its benchmarks count are those of these sizes, to the last).
struct KnownModel {
  const char* name;
  std::int64_t layers, hidden, heads;
};
constexpr std::array kModels = {
    KnownModel{"MPT-125m", 12, 768, 12}, KnownModel{"MPT-350m", 24, 1024, 16}, KnownModel{"MPT-760m", 24, 1536, 12},
    KnownModel{"MPT-1b", 24, 2048, 16},  KnownModel{"MPT-3b", 32, 2560, 20},   KnownModel{"MPT-7b", 32, 4096, 32},
    KnownModel{"MPT-13b", 40, 5120, 40}, KnownModel{"MPT-30b", 48, 7168, 56},  KnownModel{"MPT-70b", 80, 8192, 64}};

// Parts of names of models with gated MLPs, RMSNorm, rotary positions and no biases; and of models with experts.
constexpr std::array kLikeLlama = {"llama", "mistral", "qwen", "baichuan"};
constexpr std::array kWithExperts = {"deepseek", "moonlight", "a3b", "a22b", "mixtral", "moe"};

// What recipes have for one model, where rows say no more than its name (NVIDIA/dgxc-benchmarking:
// cfg/gpt3_175b_hydra.yaml of v25.04.02; nemotron4-15b-synth.yaml, nemotron4-340b-synth.yaml, llama3.1_70b.yaml and
// llama3.1_405b.yaml of v25.01.1; nemotron/configure.sh and launch.sh; and the recipes of NeMo 2 that its later
// releases start, nemo/collections/llm/recipes/nemotron4_340b.py and llama31_405b.py). `source`: part of the row's
// source.
struct Habit {
  const char *profile, *model, *source, *section, *keys, *said;
};
constexpr const char* kDeferred22 = "defer_embedding_wgrad_compute = true\nwgrad_deferral_limit = 22\n";
constexpr const char* kDeferred50 = "defer_embedding_wgrad_compute = true\nwgrad_deferral_limit = 50\n";
constexpr const char* kSaidDeferred =
    "the head's weight gradients computed while the pipeline drains, as the recipe has it";
constexpr std::array kHabits = {
    Habit{"nemo-dgxc", "175b", "", "model", "hidden_dropout = 0.1\nattention_dropout = 0.1\n",
          "dropout as the recipe of GPT-3 has it"},
    Habit{"nemo-dgxc", "nemotron", "", "model",
          "position_embedding_type = \"rope\"\nadd_bias_linear = false\nuntie_embeddings_and_output_weights = true\n",
          "rotary positions, no biases and an untied head, as the recipe of Nemotron-4 has it"},
    Habit{"nemo-dgxc", "nemotron4 340b", "", "parallel", "virtual_pipeline_model_parallel_size = 12\n",
          "12 virtual stages, as the recipe's launch script has them"},
    Habit{"nemo-dgxc", "nemotron4 340b", "README_340b.md", "training", "recompute_granularity = \"selective\"\n",
          "selective recomputation, as the recipe of NeMo 1 has it"},
    Habit{"nemo-dgxc", "nemotron4 340b", "", "deferred", kDeferred22, kSaidDeferred},
    Habit{"nemo-dgxc", "llama 3.1 70b", "", "deferred", kDeferred22, kSaidDeferred},
    Habit{"nemo-dgxc", "llama 3.1 405b", "", "deferred", kDeferred50, kSaidDeferred},
};

// Recipes that set NVTE_FUSED_ATTN=0, which leaves attention to FlashAttention-2: of GPT-3 until v25.01
// (nemo_megatron/configure.sh; launch.sh of v24.11.1), of Nemotron-4 340B all of NeMo 1 (nemotron/configure.sh). Others
// have cuDNN's.
struct Recipe {
  const char *model, *source;
};
constexpr std::array kWithFlash2 = {Recipe{"175b", "v25.01"}, Recipe{"175b", "v24.11"},
                                    Recipe{"nemotron4 340b", "README_340b.md"}};

// Samples for fine-tuning are short documents, packed to seq_len, that do not attend to each other. Of SQuAD, which
// NeMo's recipes tune on, 100 fill 12 packs of 2,048 tokens (NVIDIA-NeMo/Automodel, its test of packed sequences): 246
// tokens each. As a scenario each document is a sequence of its own.
constexpr std::int64_t kDocumentTokens = 256;

// torchtitan's asynchronous tensor parallelism: products and their communication in pieces of a rank each, the copies
// by copy engines (_micro_pipeline_tp of torch's inductor).
constexpr const char* kAsyncTp =
    "tp_comm_overlap = true\ntp_comm_overlap_rs_dgrad = true\n"
    "tp_comm_overlap_cfg.proj_fprop.method = \"ring_exchange\"\ntp_comm_overlap_cfg.fc2_fprop.method = "
    "\"ring_exchange\"\n";

// A group of FSDP's HYBRID_SHARD is a node, of these GPUs.
constexpr std::int64_t kGpusOfNode = 8;

// What a caveat says of the network of a node, "inter-node 800 Gb/s"; 0: nothing.
double rate_of_nodes(const std::string& caveat) {
  constexpr std::string_view kBefore = "inter-node ", kBehind = " Gb/s";
  const std::size_t at = caveat.find(kBefore);
  if (at == std::string::npos) return 0;
  const char* const begin = caveat.data() + at + kBefore.size();
  const char* const end = caveat.data() + caveat.size();
  double rate = 0;
  const auto [rest, error] = std::from_chars(begin, end, rate);
  const bool is_rate = error == std::errc() && rate > 0 && std::string_view(rest, end).starts_with(kBehind);
  return is_rate ? rate : 0;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}
template <std::size_t N>
std::string known_name(const std::array<Known, N>& list, const std::string& text) {
  for (const Known& known : list)
    if (lower(text).find(lower(known.part)) != std::string::npos) return known.name;
  return "";
}

class Reader {
 public:
  Reader(const CsvRow& row, bool has_notes, PublishedStep& step)
      : row_(row), step_(step), notes_(has_notes ? lower(std::string(row.text(kNotes))) : "") {}

  void read() {
    step_.id = text(kId);
    step_.source = text(kSource);
    step_.gpu = text(kGpu);
    step_.model = text(kModel);
    step_.framework = text(kFramework);
    step_.task = text(kTask);
    step_.cluster = text(kCluster);
    step_.recompute = text(kRecompute);
    step_.precision = lower(text(kPrecision));
    step_.node_Gbps = rate_of_nodes(text(kCaveat));
    step_.gpus = count(kGpus);
    step_.step_s = row_.number(kStep);
    step_.profile = known_name(kProfiles, step_.framework);
    step_.platform = known_name(kPlatforms, step_.gpu);
    if (step_.profile.empty() && lower(step_.framework).find("megatron") != std::string::npos) assume_profile();
    if ((step_.profile == "torchtitan" || step_.profile == "fms-fsdp") && notes_.find("compile") != std::string::npos)
      step_.profile += "-compile";
    if (step_.profile == "megatron-deepspeed-2022" && step_.precision == "bf16") step_.profile += "-bf16";
    framework_ = step_.profile;
    if (step_.profile == "nemo-dgxc" && step_.task == "lora") framework_ = step_.profile = "nemo-dgxc-lora";
    if (step_.profile == "nemo-dgxc" && has_flash2()) {
      step_.profile = "nemo-dgxc-flash2";
      step_.assumptions.push_back("FlashAttention-2, as the recipe has it");
    }
    step_.skipped = why_not();
    if (step_.skipped.empty()) write_scenario();
  }

 private:
  std::string text(std::size_t column) const { return std::string(row_.text(column)); }
  // A count; 0 where the row says nothing.
  std::int64_t count(std::size_t column) const {
    const std::string cell = text(column);
    if (cell.empty() || cell == "NA") return 0;
    constexpr std::int64_t kMost = 1 << 24;
    const std::int64_t count = row_.count(column);
    if (count > kMost) throw row_.error(column, "a number up to 2^24");
    return count;
  }
  // A size of the model, where the row leaves it out that of a model by its name.
  std::int64_t size(Column column) const {
    if (const std::int64_t given = count(column); given > 0) return given;
    for (const KnownModel& known : kModels)
      if (step_.model == known.name)
        return column == kLayers ? known.layers : column == kHidden ? known.hidden : column == kHeads ? known.heads : 0;
    return 0;
  }
  std::int64_t at_least_1(std::size_t column) const { return std::max<std::int64_t>(1, count(column)); }

  template <std::size_t N>
  bool names_one_of(const std::array<const char*, N>& parts) const {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return lower(step_.model).find(part) != std::string::npos; });
  }

  bool has_flash2() const {
    return std::any_of(kWithFlash2.begin(), kWithFlash2.end(), [&](const Recipe& recipe) {
      return lower(step_.model).find(recipe.model) != std::string::npos &&
             step_.source.find(recipe.source) != std::string::npos;
    });
  }

  // Megatron-LM of a year that the row does not tell: that of the GPU.
  void assume_profile() {
    step_.profile = step_.platform == "a100-80gb" ? "megatron-2022" : "megatron-core-te";
    step_.assumptions.push_back("profile " + step_.profile);
  }

  std::string why_not() const {
    if (step_.profile.empty())
      return "no profile of " + (step_.framework.empty() ? "an unnamed framework" : step_.framework);
    if (step_.platform.empty()) return "no platform of " + step_.gpu;
    if (lower(text(kCaveat)).find("deterministic") != std::string::npos) return "deterministic mode";
    if (step_.precision.find("fp8") != std::string::npos) return "fp8 compute";
    if (at_least_1(kEp) > 1 || names_one_of(kWithExperts)) return "experts";
    for (const Column column : {kLayers, kHidden, kHeads, kSeq, kGbs})
      if (size(column) == 0) return "no " + kNames[column] + " given";
    const std::int64_t of_model = at_least_1(kTp) * at_least_1(kPp) * at_least_1(kCp);
    if (step_.gpus % of_model != 0 || step_.gpus == 0 || (count(kDp) > 0 && count(kDp) * of_model != step_.gpus))
      return "gpus are not tp x cp x pp x dp";
    return "";
  }

  void write_scenario() {
    const std::int64_t tp = at_least_1(kTp), pp = at_least_1(kPp), cp = at_least_1(kCp), hidden = size(kHidden),
                       heads = size(kHeads), dp = step_.gpus / (tp * cp * pp);
    const bool is_packed = (step_.task == "sft" || step_.task == "lora") && count(kSeq) % kDocumentTokens == 0;
    const std::int64_t documents = is_packed ? count(kSeq) / kDocumentTokens : 1;  // of a sequence
    if (is_packed) step_.assumptions.push_back(fmt::format("packed documents of {} tokens", kDocumentTokens));
    const bool is_llama = names_one_of(kLikeLlama);
    std::string& out = step_.scenario_text;
    out = fmt::format("name = \"{}\"\nplatform = \"{}\"\nprofile = \"{}\"\n", step_.id, step_.platform, step_.profile);
    out += fmt::format("[model]\nnum_layers = {}\nhidden_size = {}\nnum_attention_heads = {}\nseq_length = {}\n",
                       size(kLayers), hidden, heads, count(kSeq) / documents);
    if (const std::int64_t kv = count(kKvHeads); kv > 0 && kv != heads)
      out += fmt::format("num_query_groups = {}\n", kv);
    if (count(kFfn) > 0) out += fmt::format("ffn_hidden_size = {}\n", count(kFfn));
    if (count(kLayers) == 0) step_.assumptions.push_back("sizes of " + step_.model + " as its repository has them");
    if (is_fsdp() && count(kVocab) > 0) {
      out += fmt::format("vocab_size = {}\nmake_vocab_size_divisible_by = 1\n", count(kVocab));  // is a multiple of 64
    } else if (count(kVocab) > 0) {
      out += fmt::format("vocab_size = {}\nmake_vocab_size_divisible_by = 128\n", count(kVocab));
    } else if (step_.profile == "megatron-deepspeed") {
      out += fmt::format("vocab_size = {}\nmake_vocab_size_divisible_by = 1\n", 50257 / tp * tp);
      step_.assumptions.push_back("GPT-2's vocabulary, not padded, cut by floor division");
    } else {
      out += fmt::format("vocab_size = {}\nmake_vocab_size_divisible_by = 128\n", is_llama ? 128256 : 50257);
      step_.assumptions.push_back(is_llama ? "Llama 3's vocabulary" : "GPT-2's vocabulary");
    }
    if (is_llama)
      out +=
          "normalization = \"RMSNorm\"\nswiglu = true\nposition_embedding_type = \"rope\"\nadd_bias_linear = false\n"
          "untie_embeddings_and_output_weights = true\n";
    add_habits("model");
    out += fmt::format(
        "[parallel]\ndata_parallel_size = {}\ntensor_model_parallel_size = {}\n"
        "pipeline_model_parallel_size = {}\n",
        dp, tp, pp);
    if (cp > 1) out += fmt::format("context_parallel_size = {}\n", cp);
    if (const std::int64_t chunks = at_least_1(kChunks); chunks > 1 && pp > 1)
      out += fmt::format("virtual_pipeline_model_parallel_size = {}\n", chunks);
    if (count(kChunks) == 0 && pp > 1) add_habits("parallel");
    // Models of 126 layers and their like: embedding and head stand for a layer each (arXiv 2407.21783, 3.3.2).
    const std::int64_t pieces = pp * at_least_1(kChunks);
    if (pp > 1 && count(kLayers) % pieces != 0 && (count(kLayers) + 2) % pieces == 0) {
      out += "account_for_embedding_in_pipeline_split = true\naccount_for_loss_in_pipeline_split = true\n";
      step_.assumptions.push_back("embedding and head counted as layers");
    }
    if (step_.recompute.find("sequence parallel") != std::string::npos) out += "sequence_parallel = true\n";
    if (notes_.find("shard_grad_op") != std::string::npos) out += "reshard_after_forward = false\n";
    if (notes_.find("hybrid_shard") != std::string::npos && dp > kGpusOfNode)
      out += fmt::format("num_distributed_optimizer_instances = {}\n", dp / kGpusOfNode);
    out += "[overlap]\n";
    if (is_fsdp() && notes_.find("pure") != std::string::npos) out += "grad_reduce_in_fp32 = false\n";
    if (is_torchtitan() && notes_.find("asynctp") != std::string::npos) out += kAsyncTp;
    add_habits("overlap");
    if (pp > 1) add_habits("deferred");
    out += fmt::format("[training]\nmicro_batch_size = {}\nglobal_batch_size = {}\n", at_least_1(kMbs) * documents,
                       count(kGbs) * documents);
    if (count(kMbs) == 0) step_.assumptions.push_back("micro_batch_size 1");
    if (step_.task == "lora") {
      out += "frozen_base = true\n";
      step_.assumptions.push_back("adapters not counted");
    }
    write_recomputation();
  }

  bool is_torchtitan() const { return step_.profile.starts_with("torchtitan"); }
  bool is_fsdp() const {
    return is_torchtitan() || step_.profile.starts_with("fms-fsdp") || step_.profile == "llm-foundry";
  }

  // torchtitan's selective recomputation is of operations, or of every second layer.
  void write_recomputation() {
    std::string& out = step_.scenario_text;
    const auto says = [&](const char* what) { return step_.recompute.find(what) != std::string::npos; };
    if (says("full")) {
      out += "recompute_granularity = \"full\"\n";
    } else if (says("selective layer") && is_torchtitan()) {
      out += fmt::format("recompute_granularity = \"full\"\nrecompute_method = \"block\"\nrecompute_num_layers = {}\n",
                         std::max<std::int64_t>(1, size(kLayers) / 2));
    } else if (says("selective")) {
      out += is_torchtitan() ? "recompute_granularity = \"selective_op\"\n" : "recompute_granularity = \"selective\"\n";
    } else {
      add_habits("training");
    }
  }

  void add_habits(const std::string& section) {
    for (const Habit& habit : kHabits)
      if (habit.section == section && habit.profile == framework_ &&
          lower(step_.model).find(habit.model) != std::string::npos &&
          step_.source.find(habit.source) != std::string::npos) {
        step_.scenario_text += habit.keys;
        step_.assumptions.push_back(habit.said);
      }
  }

  const CsvRow& row_;
  PublishedStep& step_;
  const std::string notes_;  // in lower case
  std::string framework_;    // the profile, whichever kernels of attention it has
};

}  // namespace

std::vector<PublishedStep> read_published(const std::string& path) {
  const std::vector<std::byte> bytes = ReadFile::open(path).take();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> columns = kNames;
  const bool has_notes = has_csv_column(text, kNotesName);
  if (has_notes) columns.push_back(kNotesName);
  std::vector<PublishedStep> steps;
  read_csv(text, path, columns, [&](const CsvRow& row) { Reader(row, has_notes, steps.emplace_back()).read(); });
  return steps;
}

}  // namespace stretto::compare
