#include <algorithm>

#include "tests/random_scenario.hpp"

namespace stretto::testing {

void RandomScenario::style() {
  // The style is GPT's, Llama's, or a mixture. Multi-latent attention needs much of Llama's.
  const int kind = is_latent_ || pairs_ ? 1 : draw_.one_of({0, 1, 2});
  const auto llama = [&] { return kind == 2 ? draw_.coin() : kind == 1; };
  const std::int64_t heads_of_rank = exchange_ * draw_.between(1, exchange_ > 1 ? 2 : 4), heads = tp_ * heads_of_rank;
  model_.set("num_attention_heads", heads);
  model_.set("hidden_size", heads * draw_.one_of({2, 4}) * unit_);
  model_.set("ffn_hidden_size", tp_ * draw_.one_of({3, 5, 7}) * unit_);
  const std::int64_t pieces = (sequence_parallel_ || scatters_ ? tp_ : 1) * (cp_ > 1 ? 2 * cp_ : 1);
  model_.set("seq_length", unit_ * (pieces > 1 ? pieces * draw_.between(1, 3) : draw_.one_of<std::int64_t>({3, 5, 7})));
  model_.set("max_position_embeddings", unit_ * std::max<std::int64_t>(13, 3 * pieces));
  model_.set("vocab_size", draw_.between(13, 40));
  model_.set("make_vocab_size_divisible_by", draw_.one_of<std::int64_t>({1, 1, 2, 3, 8}));
  if (llama()) model_.set("normalization", "RMSNorm");
  if (draw_.coin()) model_.set("hidden_dropout", 0.25);
  if (draw_.coin()) model_.set("attention_dropout", 0.1);
  if (llama()) model_.set("swiglu", true);
  if (llama()) {
    model_.set("position_embedding_type", "rope");
    has_rope_ = true;
    if (draw_.coin()) model_.set("rotary_base", draw_.one_of({50.0, 500.0}));
    const std::int64_t scaling = is_latent_ ? 0 : draw_.between(0, 3);
    if (scaling == 1) model_.set("rotary_seq_len_interpolation_factor", draw_.one_of({2.0, 3.0}));
    if (scaling > 1) model_.set("use_rope_scaling", true);
    if (scaling > 2) model_.set("rope_scaling_factor", draw_.one_of({3.0, 4.5}));
    if (scaling > 2) model_.set("rope_scaling_original_max_position_embeddings", std::int64_t{16});
    if (scaling > 2) model_.set("rope_scaling_low_freq_factor", 0.5);
    if (scaling > 2) model_.set("rope_scaling_high_freq_factor", 2.5);
  }
  has_biases_ = !llama();
  if (!has_biases_) model_.set("add_bias_linear", false);
  if (llama()) model_.set("untie_embeddings_and_output_weights", true);
  if (llama() && !is_latent_)
    model_.set("num_query_groups", heads_of_rank % (2 * exchange_) == 0 && draw_.coin() ? heads / 2 : tp_ * exchange_);
}

void RandomScenario::latent() {
  model_.set("multi_latent_attention", is_latent_);
  const bool norms_heads = is_latent_ || others_.coin();
  model_.set("qk_layernorm", norms_heads);
  if (!is_latent_) {
    model_.set("kv_channels", unit_ * others_.one_of<std::int64_t>({2, 4, 6, 8}));
    model_.set("qk_layernorm_full_width", norms_heads && tp_ == 1 && others_.coin());
    attention_rules();
    return;
  }
  model_.set("q_lora_rank", unit_ * others_.one_of<std::int64_t>({0, 3, 5}));
  model_.set("kv_lora_rank", unit_ * others_.one_of<std::int64_t>({3, 4}));
  model_.set("qk_head_dim", unit_ * others_.between(1, 3));
  model_.set("qk_pos_emb_head_dim", unit_ * others_.one_of<std::int64_t>({2, 4}));
  model_.set("v_head_dim", unit_ * others_.between(1, 4));
  const bool is_scaled = others_.coin();
  model_.set("rotary_scaling_factor", is_scaled ? 4.0 : 1.0);
  if (!is_scaled) return;
  model_.set("beta_fast", 3.0);
  model_.set("beta_slow", 0.5);
  model_.set("mscale", 0.7);
  model_.set("mscale_all_dim", others_.one_of({0.0, 0.9}));
  model_.set("original_max_position_embeddings", std::int64_t{16});
}

// Layers of several kinds of attention. Keys that a layout has no room for keep their defaults.
void RandomScenario::attention_rules() {
  const auto coin = [&] { return others_.coin(); };
  const auto pattern = [&](const char* key) {
    std::vector<std::int64_t> has;
    while (std::ssize(has) < layers_) has.push_back(others_.between(0, 1));
    if (has.size() > 1 && coin())
      model_.set(key, has);
    else
      model_.set(key, others_.between(2, 3));
  };
  if (has_rope_ && coin()) pattern("no_rope_freq");
  model_.set("add_qkv_bias", !has_biases_ && coin());
  if (!has_biases_ && !recomputes_by_op_ && coin()) {
    norms_results_alone_ = coin();
    model_.set("norm_places", norms_results_alone_ ? "post" : "both");
  }
  if (!may_have_rules_) return;
  if (coin()) {
    model_.set(others_.one_of({"sliding_window", "attention_chunk_size"}), others_.between(1, 6));
    if (coin()) pattern("window_attn_skip_freq");
  }
  model_.set("softmax_type", others_.one_of({"vanilla", "off-by-one", "learnable"}));
  if (coin()) model_.set("attn_logit_softcapping", others_.one_of({0.5, 2.0}));
}

// Which experts a token goes through may depend on rounding.
void RandomScenario::experts() {
  const auto coin = [&] { return others_.coin(); };
  if (has_biases_ || norms_results_alone_ || (tp_ > 1 && !sequence_parallel_) || recomputes_by_op_ ||
      (rounds_ && codes_ == nullptr) || (!pairs_ && coin()))
    return;
  has_experts_ = true;
  const std::int64_t groups = pairs_ ? 0 : others_.one_of<std::int64_t>({0, 0, 2, 3}),
                     count = pairs_       ? dp_ * others_.between(1, 2)
                             : groups > 0 ? groups * 2
                                          : others_.between(2, 6),
                     topk = groups > 0 ? 2 : others_.between(1, std::min<std::int64_t>(3, count));
  const bool is_sigmoid = coin();
  model_.set("num_moe_experts", count);
  model_.set("moe_router_topk", topk);
  const std::int64_t width = tp_ * others_.between(1, 4) * unit_;
  model_.set("moe_ffn_hidden_size", width);
  if (groups > 0) model_.set("moe_router_num_groups", groups);
  if (groups > 0) model_.set("moe_router_group_topk", others_.between(1, 2));
  model_.set("moe_router_score_function", is_sigmoid ? "sigmoid" : "softmax");
  model_.set("moe_router_pre_softmax", !is_sigmoid && (topk == 1 || coin()));
  if (coin()) model_.set("moe_router_topk_scaling_factor", 2.5);
  model_.set("moe_router_enable_expert_bias", is_sigmoid && coin());
  model_.set("moe_router_bias_update_rate", 0.01);
  model_.set("moe_router_load_balancing_type", others_.one_of({"none", "aux_loss", "seq_aux_loss", "global_aux_loss"}));
  model_.set("moe_aux_loss_coeff", others_.one_of({0.0, 0.1}));
  model_.set("moe_z_loss_coeff", others_.one_of({0.0, 0.01}));
  if (instances_ == 1 && !has_order_ && (pairs_ || coin())) {
    std::int64_t ranks = 1;  // that share the experts
    for (const std::int64_t some : {6, 5, 4, 3, 2})
      if (ranks == 1 && count % some == 0 && tp_ * cp_ * dp_ % some == 0) ranks = some;
    bool shared_concurrent = false, flashes = false;
    if (pairs_ || ranks == 1) {
      overlap_.set("overlap_moe_expert_parallel_comm", pairs_);
      overlap_.set("delay_wgrad_compute", pairs_ && coin());
      overlap_.set("ep_overlap_early_attn_memory_release", pairs_ && coin());
    } else {
      flashes = coin() || (ranks > 2 && coin());  // a shard of several ranks needs three
      overlap_.set("ep_flash_overlap", flashes);
      overlap_.set("overlap_dispatch_backward_with_experts_wgrad", !flashes && coin());
      shared_concurrent = !flashes && coin();
      overlap_.set("moe_shared_expert_overlap", shared_concurrent);
    }
    parallel_.set("expert_model_parallel_size", ranks);
    const std::int64_t cut = others_.one_of<std::int64_t>({1, 2, 3, tp_});
    may_send_codes_ = codes_ != nullptr && ranks > 1 && !flashes && codes_->coin();
    const bool may_cut = width % cut == 0 && tp_ * cp_ * dp_ % (ranks * cut) == 0 && !may_send_codes_;
    parallel_.set("expert_tensor_parallel_size", may_cut ? cut : std::int64_t{1});
    std::string dispatcher =
                    others_.one_of({"alltoall", pairs_ || shared_concurrent || flashes ? "alltoall" : "allgather",
                                    ranks > 1 && !flashes ? "flex" : "alltoall"}),
                backend = others_.one_of({"deepep", "hybridep", "ncclep"});
    if (may_send_codes_) dispatcher = "flex", backend = "ncclep";
    const bool pads = (dispatcher != "flex" || backend == "hybridep") && (flashes ? layers_ % 2 > 0 : coin());
    parallel_.set("moe_token_dispatcher_type", dispatcher);
    if (ranks > 1) parallel_.set("moe_flex_dispatcher_backend", backend);
    const double room = pads || ranks == 1 ? 0.0 : flashes ? 6.0 : others_.one_of({0.0, 6.0});
    if (ranks > 1) parallel_.set("moe_expert_rank_capacity_factor", room);
    parallel_.set("moe_expert_capacity_factor", pads ? 6.0 : 0.0);
    parallel_.set("moe_pad_expert_input_to_capacity", pads);
  }
  const bool is_shared = coin();
  model_.set("moe_shared_expert_intermediate_size", is_shared ? tp_ * others_.between(1, 3) * unit_ : 0);
  model_.set("moe_shared_expert_gate", is_shared && coin());
  if (coin()) {
    model_.set("moe_layer_freq", others_.between(1, 2));
  } else {
    std::vector<std::int64_t> has;
    while (std::ssize(has) < layers_) has.push_back(others_.between(0, 1));
    if (has.size() > 1) model_.set("moe_layer_freq", has);
  }
}

// Draws of their own leave other keys of a seed as they are. Documents and parts of sequences are refused.
void RandomScenario::linear_attention() {
  if (cp_ > 1 || codes_ != nullptr || pairs_ || !mixers_.seldom()) return;
  training_.set("reset_attention_mask", false);
  if (!has_experts_ && mixers_.coin()) return hybrid();
  const std::int64_t keys = tp_ * mixers_.between(1, 2);
  if (mixers_.coin()) {
    model_.set("linear_attention_freq", mixers_.between(2, 3));
  } else {
    std::vector<std::int64_t> is_linear;
    while (std::ssize(is_linear) < layers_) is_linear.push_back(mixers_.between(0, 1));
    if (layers_ == 1) return;
    model_.set("linear_attention_freq", is_linear);
  }
  model_.set("linear_conv_kernel_dim", mixers_.between(1, 4));
  model_.set("linear_key_head_dim", mixers_.between(1, 4));
  model_.set("linear_value_head_dim", mixers_.between(1, 4));
  model_.set("linear_num_key_heads", keys);
  model_.set("linear_num_value_heads", keys * mixers_.between(1, 2));
}

// Layers of one sublayer each.
void RandomScenario::hybrid() {
  std::string pattern;
  while (std::ssize(pattern) < layers_) pattern += mixers_.one_of({'M', 'M', '*', '-'});
  model_.set("hybrid_layer_pattern", pattern);
  if (pattern.find('M') == std::string::npos) return;
  const std::int64_t groups = tp_ * mixers_.between(1, 2);
  model_.set("mamba_num_groups", groups);
  model_.set("mamba_num_heads", groups * mixers_.between(1, 2));
  model_.set("mamba_head_dim", mixers_.between(1, 4));
  model_.set("mamba_state_dim", mixers_.between(1, 4));
}

void RandomScenario::recompute_modules() {
  if (!recomputes_modules_ || others_.coin()) return;
  std::vector<std::string> modules = {others_.one_of({"core_attn", "mlp", "layernorm"})};
  const auto add = [&](const char* module, bool may) {
    if (may && modules.front() != module && others_.coin()) modules.emplace_back(module);
  };
  add("mlp", true);
  add("layernorm", true);
  add("mla_up_proj", is_latent_);
  const bool repeats_experts = has_experts_ && !pairs_ && others_.coin();
  if (repeats_experts) modules.emplace_back("moe");
  add("moe_act", has_experts_ && !repeats_experts);
  add("shared_experts", has_experts_ && !repeats_experts);
  training_.set("recompute_modules", modules);
  training_.set("recompute_whole_layers", others_.coin());
}

}  // namespace stretto::testing
