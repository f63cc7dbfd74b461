#include "exec/training_record.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace stretto::exec {

CheckpointMetadata identity_of(const Scenario& s) {
  const auto number = [](auto value) { return std::to_string(value); };
  return {
      {"num_layers", number(s.model.num_layers)},
      {"hidden_size", number(s.model.hidden_size)},
      {"num_attention_heads", number(s.model.num_attention_heads)},
      {"ffn_hidden_size", number(s.model.ffn_hidden_size)},
      {"num_query_groups", number(s.model.kv_heads())},
      {"normalization", name_of(s.model.normalization)},
      {"swiglu", number(s.model.swiglu)},
      {"position_embedding_type", name_of(s.model.position_embedding_type)},
      {"rotary_base", number(s.model.rotary_base)},
      {"rotary_seq_len_interpolation_factor", number(s.model.rope_scaling.interpolation_factor)},
      {"rope_scaling_factor", number(s.model.rope_scaling.factor)},
      {"rope_scaling_low_freq_factor", number(s.model.rope_scaling.low_freq_factor)},
      {"rope_scaling_high_freq_factor", number(s.model.rope_scaling.high_freq_factor)},
      {"rope_scaling_original_max_position_embeddings", number(s.model.rope_scaling.original_max_position_embeddings)},
      {"add_bias_linear", number(s.model.add_bias_linear)},
      {"untie_embeddings_and_output_weights", number(s.model.untie_embeddings_and_output_weights)},
      {"seq_length", number(s.model.seq_length)},
      {"vocab_size", number(s.model.vocab_size)},
      {"global_batch_size", number(s.training.global_batch_size)},
      {"hidden_dropout", number(s.model.hidden_dropout)},
      {"attention_dropout", number(s.model.attention_dropout)},
      {"frozen_base", number(s.training.frozen_base)},
      {"seed", number(s.training.seed)},
      {"precision", s.training.precision}};
}

void require_same_training(const TensorFile& checkpoint, const Scenario& scenario) {
  const CheckpointMetadata defaults = identity_of({});
  for (const auto& [key, expected] : identity_of(scenario)) {
    const auto found = checkpoint.metadata().find(key);
    // Checkpoints from before there was dropout, a frozen base, or scaled rotary positions, do not name it.
    const bool is_newer = key.ends_with("_dropout") || key == "frozen_base" || key.starts_with("rope_scaling_") ||
                          key == "rotary_seq_len_interpolation_factor";
    const std::string absent = is_newer ? defaults.at(key) : "(absent)";
    const std::string& written = found == checkpoint.metadata().end() ? absent : found->second;
    if (written != expected)
      throw input_error(checkpoint.name() + ": was written with " + key + " = " + written + ", the scenario has " +
                        expected + "; choose another checkpoint_dir or the same " + key);
  }
}

CheckpointMetadata settings_of(const Training& t, const TokenSource& data) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  return {{"data", data.identity()},
          {"lr", number(t.lr)},
          {"min_lr", number(t.min_lr)},
          {"lr_warmup_iters", number(t.lr_warmup_iters)},
          {"lr_decay_iters", number(t.lr_decay_iters > 0 ? t.lr_decay_iters : t.train_iters)},
          {"weight_decay", number(t.weight_decay)},
          {"adam_beta1", number(t.adam_beta1)},
          {"adam_beta2", number(t.adam_beta2)},
          {"adam_eps", number(t.adam_eps)},
          {"clip_grad", number(t.clip_grad)}};
}

std::string changed_settings(const TensorFile& checkpoint, const CheckpointMetadata& settings) {
  std::string changed;
  for (const auto& [key, now] : settings) {
    const auto found = checkpoint.metadata().find(key);
    if (found == checkpoint.metadata().end() || found->second == now) continue;
    changed += fmt::format("{}{} = {} (was {})", changed.empty() ? "" : ", ", key, now, found->second);
  }
  return changed;
}

}  // namespace stretto::exec
