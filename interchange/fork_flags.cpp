#include <algorithm>

#include "interchange/command_line.hpp"
#include "interchange/megatron_flags.hpp"

namespace stretto {
namespace {

// A flag of an older release or of a fork, and the flag of today that means what it meant.
struct Renamed {
  std::string_view flag, today;
};
constexpr Renamed kRenamed[] = {
    {"--checkpoint-num-layers", "--activations-checkpoint-num-layers"},  // before April 2021
    {"--use-custom-fsdp", "--use-megatron-fsdp"},                        // early 2025
    {"--intermediate-size", "--ffn-hidden-size"},                        // from here on Pai-Megatron-Patch's
    {"--n-head-kv", "--num-key-value-heads"},
    {"--qk-nope-head-dim", "--qk-head-dim"},
    {"--qk-rope-head-dim", "--qk-pos-emb-head-dim"},
    {"--rotary-scale-factor", "--rotary-seq-len-interpolation-factor"},
    {"--use-llama2-rotary-position-embeddings", "--use-rotary-position-embeddings"},
    {"--use-mistral-rotary-position-embeddings", "--use-rotary-position-embeddings"},
};

}  // namespace

void rename_old_flags(CommandLine& line) {
  const auto has = [&](std::string_view name) {
    return std::any_of(line.flags.begin(), line.flags.end(), [&](const Flag& flag) { return flag.name == name; });
  };
  for (const Renamed& one : kRenamed) {
    if (has(one.today)) continue;
    for (Flag& flag : line.flags)
      if (flag.name == one.flag) {
        flag.name = one.today;
        const std::string note = std::string(one.flag) + " is read as " + std::string(one.today);
        if (std::find(line.notes.begin(), line.notes.end(), note) == line.notes.end()) line.notes.push_back(note);
      }
  }
}

std::vector<FlagRule> fork_flag_rules() {
  constexpr FlagVerdict kNo = FlagVerdict::without_effect, kNear = FlagVerdict::approximated;
  return {
      // Megatron-LM of 2020 to 2025 (megatron/arguments.py, megatron/training/arguments.py).
      {"--distribute-checkpointed-activations", kNear, "saved activations are whole on each rank"},
      {"--no-contiguous-buffers-in-local-ddp", kNear, "gradients are in one buffer"},
      {"--num-unique-layers", kNear, "each layer has weights of its own"},
      {"--param-sharing-style", kNo},
      {"--pipeline-model-parallel-split-rank", kNo},
      {"--delay-param-gather", kNo},
      {"--keep-fp8-transpose-cache-when-using-custom-fsdp", kNo},
      {"--local_rank", kNo},
      {"--faiss-use-gpu", kNo},
      {"--img-dim", kNo},
      {"--min-scale", kNo},
      {"--override-lr-scheduler", kNo},
      {"--use-checkpoint-lr-scheduler", kNo},
      {"--renormalize-blend-weights", kNo},
      {"--report-topk-accuracies", kNo},
      {"--s3-cache-path", kNo},
      // BigScience's and Microsoft's Megatron-DeepSpeed (megatron/arguments.py of both).
      {"--inference", FlagVerdict::refused, "inference"},
      {"--embed-layernorm", kNear, "the norm after the embedding is left out"},
      {"--sync-tp-duplicated-parameters", kNear, "what ranks of tensor parallelism share is not summed again"},
      {"--scattered-embeddings", kNear, "embeddings are whole on each rank of a sequence"},
      {"--split-transformers", kNear, "a layer is one block of recomputation"},
      {"--synchronize-each-layer", kNear, "the host does not wait after each layer"},
      {"--tile-factor", kNear, "products are whole"},
      {"--use-tutel", kNear, "rows are sorted as in Megatron-LM"},
      {"--use-bnb-optimizer", kNear, "moments are in f32"},
      {"--cpu_torch_adam", kNear, "the optimizer runs on the GPU"},
      {"--remote-device", kNear, "parameters stay on the GPU", "none"},
      {"--use-pin-memory", kNo},
      {"--ds_fused_adam", kNo},
      {"--disable-mem-efficient-ln", kNo},
      {"--abort-on-unmet-fused-kernel-constraints", kNo},
      {"--use-contiguous-buffers-in-ddp", kNo},
      {"--contigious-checkpointing", kNo},
      {"--codecarbon-dir", kNo},
      {"--loss-on-targets-only", kNo},
      {"--mean-noise-span-length", kNo},
      {"--noise-density", kNo},
      {"--reweight-loss-based-on-position-frequency", kNo},
      {"--skip-train-iteration-range", kNo},
      {"--train-weighted-split-paths", kNo},
      {"--train-weighted-split-paths-path", kNo},
      {"--aml-data-download-path", kNo},
      {"--profile_steps", kNo},
      {"--repeated-dataloader", kNo},
      {"--reset-iteration", kNo},
      {"--return-data-index", kNo},
      {"--train-desc-path", kNo},
      {"--train-doc-idx-path", kNo},
      {"--train-idx-path", kNo},
      {"--train-sample-idx-path", kNo},
      {"--train-shuffle-idx-path", kNo},
      {"--use-dataset-only", kNo},
      {"--num-layers-teacher", kNo},
      {"--hidden-size-teacher", kNo},
      {"--num-attention-heads-teacher", kNo},
      {"--num-experts-teacher", kNo},
      {"--num-experts-switch", kNo},
      {"--enable-expert-tensor-parallelism", kNo},
      {"--disable-moe-token-dropping", kNo},
      {"--disable-moe-top2-2nd-expert-sampling", kNo},
      // Primus (primus/configs/models/megatron).
      {"--lfm-layer-types", FlagVerdict::refused, "convolutions"},
      // Pai-Megatron-Patch (megatron_patch/arguments.py).
      {"--sliding-window", kNear, "attention is over the whole sequence: more FLOPs than in the window"},
      {"--use-alibi-mask", kNear, "attention's scores have no bias by distance"},
      {"--use-normhead", kNear, "the head's weights are not normalised"},
      {"--disable-bias-linear-fc", kNear, "biases are in all products or in none"},
      {"--disable-bias-attn-fc", kNear, "biases are in all products or in none"},
      {"--optimizer-offload-policy", kNear, "the optimizer runs on the GPU", "static"},
      {"--optimizer-offload-", kNo},
      {"--moe", kNo},  // experts are those of --num-experts
      {"--router-type", kNo},
      {"--z-loss-weight", kNo},
      {"--max-padding-length", kNo},
      {"--dataset", kNo},
      {"--dataset-config", kNo},
      {"--train-mode", kNo},
      {"--train-data", kNo},
      {"--epochs", kNo},
      {"--keep-last", kNo},
      {"--adaptive-seq-len", kNo},
      {"--source-seq-len", kNo},
      {"--target-seq-len", kNo},
      {"--transformer-type", kNo},
      {"--transformer-timers", kNo},
      {"--convert-checkpoint-from-megatron-to-transformers", kNo},
      {"--special-tokens", kNo},
      {"--verbosity", kNo},
      {"--version", kNo},
  };
}

}  // namespace stretto
