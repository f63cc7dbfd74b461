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
  kCaveat
};
const std::vector<std::string> kNames = {
    "id",  "source", "gpu",       "gpus",      "model",     "layers",      "hidden", "heads",     "kv_heads",
    "ffn", "vocab",  "seq_len",   "gbs",       "mbs",       "tp",          "pp",     "vp_chunks", "cp",
    "ep",  "dp",     "precision", "recompute", "framework", "step_time_s", "task",   "cluster",   "caveat"};

// Part of a framework's or GPU's name → the profile or platform. The first that fits counts.
struct Known {
  const char* part;
  const char* name;
};
constexpr std::array kProfiles = {Known{"DeepSpeed ZeRO", ""},
                                  Known{"Megatron-DeepSpeed", "megatron-deepspeed"},
                                  Known{"Megatron-LM 2022", "megatron-2022"},
                                  Known{"Megatron-LM 2021", "megatron-2021"},
                                  Known{"PTD-P", "megatron-2021"},
                                  Known{"NeMo", "nemo-dgxc"},
                                  Known{"llm-foundry FSDP", "llm-foundry"},
                                  Known{"TE 2.", "megatron-core-te"},
                                  Known{"Megatron-Core", "nemo-dgxc"},
                                  Known{"Megatron-Bridge", "nemo-dgxc"}};
constexpr std::array kPlatforms = {Known{"A100", "a100-80gb"},    Known{"H200", "h200-sxm"}, Known{"96GB", ""},
                                   Known{"gb200", "gb200-nvl72"}, Known{"b200", "b200-sxm"}, Known{"h100", "h100-sxm"}};

// Models whose rows leave out sizes that the repository they name has (mosaicml/llm-foundry,
// scripts/train/yamls/pretrain; the parameters that its benchmarks count are those of these sizes, to the last).
struct KnownModel {
  const char* name;
  std::int64_t layers, hidden, heads;
};
constexpr std::array kModels = {KnownModel{"MPT-760m", 24, 1536, 12}, KnownModel{"MPT-1b", 24, 2048, 16},
                                KnownModel{"MPT-3b", 32, 2560, 20},   KnownModel{"MPT-7b", 32, 4096, 32},
                                KnownModel{"MPT-13b", 40, 5120, 40},  KnownModel{"MPT-30b", 48, 7168, 56},
                                KnownModel{"MPT-70b", 80, 8192, 64}};

// Parts of names of models with gated MLPs, RMSNorm, rotary positions and no biases; and of models with experts.
constexpr std::array kLikeLlama = {"llama", "mistral", "qwen", "baichuan"};
constexpr std::array kWithExperts = {"deepseek", "moonlight", "a3b", "a22b", "mixtral", "moe"};

// Samples for fine-tuning are short documents, packed to seq_len, that do not attend to each other. Of SQuAD, which
// NeMo's recipes tune on, 100 fill 12 packs of 2,048 tokens (NVIDIA-NeMo/Automodel, its test of packed sequences): 246
// tokens each. As a scenario each document is a sequence of its own.
constexpr std::int64_t kDocumentTokens = 256;

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
  Reader(const CsvRow& row, PublishedStep& step) : row_(row), step_(step) {}

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
    step_.gpus = count(kGpus);
    step_.step_s = row_.number(kStep);
    step_.profile = known_name(kProfiles, step_.framework);
    step_.platform = known_name(kPlatforms, step_.gpu);
    if (step_.profile.empty() && lower(step_.framework).find("megatron") != std::string::npos) assume_profile();
    if (step_.profile == "nemo-dgxc" && step_.task == "lora") step_.profile = "nemo-dgxc-lora";
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
    if (step_.profile == "llm-foundry") {
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
    out += fmt::format(
        "[parallel]\ndata_parallel_size = {}\ntensor_model_parallel_size = {}\n"
        "pipeline_model_parallel_size = {}\n",
        dp, tp, pp);
    if (cp > 1) out += fmt::format("context_parallel_size = {}\n", cp);
    if (const std::int64_t chunks = at_least_1(kChunks); chunks > 1 && pp > 1)
      out += fmt::format("virtual_pipeline_model_parallel_size = {}\n", chunks);
    // Models of 126 layers and their like: embedding and head stand for a layer each (arXiv 2407.21783, 3.3.2).
    const std::int64_t pieces = pp * at_least_1(kChunks);
    if (pp > 1 && count(kLayers) % pieces != 0 && (count(kLayers) + 2) % pieces == 0) {
      out += "account_for_embedding_in_pipeline_split = true\naccount_for_loss_in_pipeline_split = true\n";
      step_.assumptions.push_back("embedding and head counted as layers");
    }
    if (step_.recompute.find("sequence parallel") != std::string::npos) out += "sequence_parallel = true\n";
    out += fmt::format("[training]\nmicro_batch_size = {}\nglobal_batch_size = {}\n", at_least_1(kMbs) * documents,
                       count(kGbs) * documents);
    if (count(kMbs) == 0) step_.assumptions.push_back("micro_batch_size 1");
    if (step_.task == "lora") {
      out += "frozen_base = true\n";
      step_.assumptions.push_back("adapters not counted");
    }
    if (step_.recompute.find("full") != std::string::npos) out += "recompute_granularity = \"full\"\n";
    if (step_.recompute.find("selective") != std::string::npos) out += "recompute_granularity = \"selective\"\n";
  }

  const CsvRow& row_;
  PublishedStep& step_;
};

}  // namespace

std::vector<PublishedStep> read_published(const std::string& path) {
  const std::vector<std::byte> bytes = ReadFile::open(path).take();
  std::vector<PublishedStep> steps;
  read_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, kNames,
           [&](const CsvRow& row) { Reader(row, steps.emplace_back()).read(); });
  return steps;
}

}  // namespace stretto::compare
