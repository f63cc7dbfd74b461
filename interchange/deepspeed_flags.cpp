#include "interchange/megatron_flags.hpp"

namespace stretto {

std::vector<FlagRule> deepspeed_flag_rules() {
  constexpr FlagVerdict kNo = FlagVerdict::without_effect, kNear = FlagVerdict::approximated;
  return {
      // Experts are in every second layer (--expert-interval 2), and their products cut and pad rows.
      {"--moe-expert-parallel-size", FlagVerdict::refused, "DeepSpeed's experts", "1"},
      {"--deepspeed", kNear, "the optimizer's step is Megatron-LM's"},
      {"--deepspeed-", kNo},
      {"--zero-", kNo},
      {"--ds-", kNo},
      {"--force-ds-sequence-parallel", kNo},
      {"--ds-sequence-parallel-fpdt", kNear, "attention is over the whole sequence at once, without its chunks"},
      {"--partition-activations", kNear, "saved activations are whole on each rank"},
      {"--checkpoint-in-cpu", kNear, "activations stay on the GPU"},
      {"--cpu-optimizer", kNear, "the optimizer runs on the GPU"},
      {"--enable-zbh1-", kNear, "predicted as 1F1B"},
      {"--embedding-weights-in-fp32", kNear, "the embedding's weights are in the precision of the others"},
      {"--random-ltd", kNear, "all tokens pass through all layers"},
      {"--mos", kNear, "the passes of a teacher are left out"},
      {"--kd", kNear, "the passes of a teacher are left out"},
      {"--kd-", kNo},
      {"--create-moe-param-group", kNo},
      {"--mlp-type", kNo},
      {"--topk", kNo},
      {"--train-tokens", kNo},
      {"--train-data-exact-num-epochs", kNo},
      {"--use-flash-attn-", kNo},
      {"--rotary-position-embeddings-theta", kNo},
      {"--universal-checkpoint", kNo},
      {"--no-load-lr-state", kNo},
      {"--kill-switch-", kNo},
  };
}

}  // namespace stretto
