#include "tests/random_layout.hpp"

#include <algorithm>
#include <initializer_list>
#include <sstream>

#include "base/error.hpp"
#include "model/scenario/keys.hpp"
#include "tests/draw.hpp"

namespace stretto::testing {
namespace {

constexpr int kMostDraws = 100;
constexpr std::int64_t kMostRanks = 16;

class Section {
 public:
  explicit Section(const std::string& name) : name_(name) { text_ << "[" << name << "]\n"; }
  void set(const char* key, std::int64_t value) { line(key) << value << "\n"; }
  void set(const char* key, bool value) { line(key) << (value ? "true" : "false") << "\n"; }
  void set(const char* key, double value) { line(key) << std::showpoint << value << "\n"; }
  void set(const char* key, const std::string& value) { line(key) << '"' << value << "\"\n"; }
  void set(const char* key, const char* value) { set(key, std::string(value)); }
  void set(const char* key, const std::vector<std::string>& values) {
    line(key) << "[";
    for (const std::string& value : values) text_ << '"' << value << "\", ";
    text_ << "]\n";
  }
  void set(const char* key, const std::vector<std::int64_t>& values) {
    line(key) << "[";
    for (const std::int64_t value : values) text_ << value << ", ";
    text_ << "]\n";
  }
  void set(const char* key, const KeyValue& value) { line(key) << value.dump() << "\n"; }
  const std::string& name() const { return name_; }
  std::string text() const { return text_.str() + "\n"; }
  const std::vector<std::string>& keys() const { return keys_; }

 private:
  std::ostream& line(const char* key) {
    keys_.push_back(name_ + "." + key);
    return text_ << key << " = ";
  }
  std::string name_;
  std::vector<std::string> keys_;
  std::ostringstream text_;
};

class Generator {
 public:
  // `others` draws the keys that no code here decides.
  Generator(Draw& draw, Draw& others) : draw_(draw), others_(others) {}

  std::string toml() {
    sizes();
    split();
    context_of_layers();
    style();
    micro_batches();
    recompute();
    overlap();
    optimizer();
    streams();
    fusions();
    compare();
    latent();
    experts();
    recompute_modules();
    for (Section* section : {&model_, &parallel_, &overlap_, &training_}) draw_others(*section);
    std::string text;
    for (const Section* section : {&model_, &cluster_, &parallel_, &overlap_, &training_, &compare_})
      add(*section, text);
    return text + subsections_;
  }
  const std::vector<std::string>& keys() const { return keys_; }

 private:
  void add(const Section& section, std::string& text) {
    text += section.text();
    keys_.insert(keys_.end(), section.keys().begin(), section.keys().end());
  }

  void sizes() {
    do {
      pp_ = draw_.one_of({1, 2, 2, 2, 3, 3, 4, 5, 8});
      tp_ = draw_.one_of({1, 1, 1, 2, 2, 3, 4});
      dp_ = draw_.one_of({1, 1, 2, 2, 3, 4, 7});
      cp_ = draw_.one_of({1, 1, 1, 2, 2, 3, 4});
    } while (pp_ * tp_ * dp_ * cp_ > kMostRanks);
    if (pp_ > 1) vp_ = draw_.one_of({1, 1, 2, 2, 3});
    std::string schedule = pp_ > 1 ? draw_.one_of({"1f1b", "1f1b", "zb-h1", "zb-v", "dualpipev"}) : "1f1b";
    // Pairs of passes need a layout in which few draws are.
    pairs_ = others_.between(0, 9) == 0;
    if (pairs_) {
      pp_ = others_.one_of({1, 1, 2, 3});
      vp_ = pp_ > 1 ? 2 : 1;
      tp_ = others_.between(1, 2);
      dp_ = others_.between(2, pp_ == 3 ? 2 : 4);
      cp_ = 1;
      schedule = "1f1b";
    }
    zero_bubble_ = schedule != "1f1b";
    is_dual_ = schedule == "dualpipev";
    is_latent_ = cp_ == 1 && !zero_bubble_ && others_.one_of({false, false, true});
    if (zero_bubble_) vp_ = schedule == "zb-h1" ? 1 : 2;
    parallel_.set("pipeline_schedule", schedule);
    sequence_parallel_ = draw_.coin() || pairs_;
    parallel_.set("data_parallel_size", dp_);
    parallel_.set("tensor_model_parallel_size", tp_);
    parallel_.set("sequence_parallel", sequence_parallel_);
    distributed_optimizer_ = !draw_.seldom();
    has_instances_ = distributed_optimizer_ && !pairs_;
    parallel_.set("use_distributed_optimizer", distributed_optimizer_);
    sharding();
    instances();
    scatters_ = draw_.coin();
    parallel_.set("scatter_gather_tensors_in_pipeline", scatters_);
    has_order_ = draw_.coin() && !pairs_;
    if (has_order_)
      parallel_.set("order", cp_ > 1 ? draw_.one_of<std::string>({"tp-cp-pp-dp", "dp-tp-pp-cp", "pp-cp-dp-ep-tp"})
                                     : draw_.one_of<std::string>({"tp-pp-dp", "dp-tp-pp", "pp-cp-dp-ep-tp"}));
    parallel_.set("context_parallel_size", cp_);
    parallel_.set("pipeline_model_parallel_size", pp_);
    parallel_.set("virtual_pipeline_model_parallel_size", vp_);
    cluster_.set("ranks_per_device",
                 draw_.one_of({std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, tp_, tp_ * cp_, tp_ * dp_}));
  }

  void sharding() {
    const bool is_unit =
        distributed_optimizer_ && !pairs_ && (pp_ == 1 ? !draw_.seldom() : draw_.one_of({false, false, true}));
    if (is_unit) {
      const std::string strategy = zero_bubble_
                                       ? "optim_grads_params"
                                       : draw_.one_of({"optim_grads", "optim_grads_params", "optim_grads_params"});
      parallel_.set("data_parallel_sharding_strategy", strategy);
      if (strategy == "optim_grads_params")
        parallel_.set("reshard_after_forward", !zero_bubble_ && (pp_ == 1 ? !draw_.seldom() : draw_.coin()));
    } else if (draw_.seldom()) {
      parallel_.set("data_parallel_sharding_strategy", distributed_optimizer_ ? "optim" : "no_shard");
    }
    const bool is_beside = !draw_.seldom();
    overlap_.set("fsdp_comm_overlap", is_beside);
    unit_overlap_ = is_unit && is_beside;
    overlap_.set("fsdp_prefetch_depth", draw_.between(0, 4));
  }

  void instances() {
    if (!has_instances_) return;
    for (const std::int64_t count : {3, 2})
      if (dp_ % count == 0 && dp_ * cp_ > count && draw_.coin()) instances_ = count;
    if (instances_ > 1 || draw_.seldom()) parallel_.set("num_distributed_optimizer_instances", instances_);
  }

  void context_of_layers() {
    const auto any = [&] { return std::string(draw_.one_of({"p2p", "p2p", "all_gather", "a2a", "a2a+p2p"})); };
    std::vector<std::string> types = {any()};
    if (draw_.coin()) {
      while (std::ssize(types) < layers_) types.push_back(any());
      parallel_.set("cp_comm_type", types);
    } else {
      parallel_.set("cp_comm_type", types.front());
    }
    if (std::count(types.begin(), types.end(), "a2a+p2p") > 0) {
      exchange_ = cp_ % 2 == 0 && draw_.coin() ? 2 : draw_.coin() ? 1 : cp_;
      parallel_.set("hierarchical_context_parallel_sizes", std::vector<std::int64_t>{exchange_, cp_ / exchange_});
    }
    if (std::count(types.begin(), types.end(), "a2a") > 0) exchange_ = cp_;
  }

  void split() {
    if (draw_.seldom())
      split_by_layout();
    else
      split_by_counts();
    model_.set("num_layers", layers_);
  }

  void split_by_layout() {
    std::vector<std::string> chunks;
    for (std::int64_t c = 0; c < pp_ * vp_; ++c) {
      const bool is_first = c == 0, is_last = c + 1 == pp_ * vp_;
      const std::int64_t layers = draw_.between(is_first || is_last ? 0 : 1, 2);
      layers_ += layers;
      const std::string text = layers == 2 && draw_.coin() ? "t*2" : std::string(static_cast<std::size_t>(layers), 't');
      chunks.push_back((is_first ? "E" : "") + text + (is_last ? "L" : ""));
    }
    if (layers_ == 0) chunks.front() += "t", layers_ = 1;
    std::string text;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const bool is_repeated = c + 2 < chunks.size() && chunks[c] == chunks[c + 1] && draw_.coin();
      if (is_repeated) {
        text += "(" + chunks[c] + "|)*2";
        ++c;
      } else {
        text += chunks[c] + (c + 1 < chunks.size() ? draw_.one_of({"|", " | ", ",|"}) : "");
      }
    }
    parallel_.set("pipeline_model_parallel_layout", text);
  }

  void split_by_counts() {
    const std::int64_t each = vp_ * draw_.between(1, pp_ * vp_ > 8 ? 1 : 2);
    layers_ = each * pp_;
    const auto uneven = [&](const char* key) {
      if (pp_ == 1 || !draw_.seldom()) return;
      const std::int64_t layers = vp_ * draw_.between(1, 3);
      layers_ += layers - each;
      parallel_.set(key, layers);
    };
    uneven("num_layers_in_first_pipeline_stage");
    uneven("num_layers_in_last_pipeline_stage");
    const auto account = [&](const char* key) {
      if (!draw_.seldom()) return;
      --layers_;
      parallel_.set(key, true);
    };
    account("account_for_embedding_in_pipeline_split");
    account("account_for_loss_in_pipeline_split");
  }

  void style() {
    // The style is GPT's, Llama's, or a mixture. Multi-latent attention needs much of Llama's.
    const int kind = is_latent_ || pairs_ ? 1 : draw_.one_of({0, 1, 2});
    const auto llama = [&] { return kind == 2 ? draw_.coin() : kind == 1; };
    const std::int64_t heads_of_rank = exchange_ * draw_.between(1, exchange_ > 1 ? 2 : 4), heads = tp_ * heads_of_rank;
    model_.set("num_attention_heads", heads);
    model_.set("hidden_size", heads * draw_.one_of({2, 4}));
    model_.set("ffn_hidden_size", tp_ * draw_.one_of({3, 5, 7}));
    const std::int64_t pieces = (sequence_parallel_ || scatters_ ? tp_ : 1) * (cp_ > 1 ? 2 * cp_ : 1);
    model_.set("seq_length", pieces > 1 ? pieces * draw_.between(1, 3) : draw_.one_of<std::int64_t>({3, 5, 7}));
    model_.set("max_position_embeddings", std::max<std::int64_t>(13, 3 * pieces));
    model_.set("vocab_size", draw_.between(13, 40));
    model_.set("make_vocab_size_divisible_by", draw_.one_of<std::int64_t>({1, 1, 2, 3, 8}));
    if (llama()) model_.set("normalization", "RMSNorm");
    if (draw_.coin()) model_.set("hidden_dropout", 0.25);
    if (draw_.coin()) model_.set("attention_dropout", 0.1);
    if (llama()) model_.set("swiglu", true);
    if (llama()) {
      model_.set("position_embedding_type", "rope");
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
      model_.set("num_query_groups",
                 heads_of_rank % (2 * exchange_) == 0 && draw_.coin() ? heads / 2 : tp_ * exchange_);
  }

  void latent() {
    model_.set("multi_latent_attention", is_latent_);
    model_.set("qk_layernorm", is_latent_ || others_.coin());
    if (!is_latent_) {
      model_.set("kv_channels", others_.one_of<std::int64_t>({2, 4, 6, 8}));
      return;
    }
    model_.set("q_lora_rank", others_.one_of<std::int64_t>({0, 3, 5}));
    model_.set("kv_lora_rank", others_.one_of<std::int64_t>({3, 4}));
    model_.set("qk_head_dim", others_.between(1, 3));
    model_.set("qk_pos_emb_head_dim", others_.one_of<std::int64_t>({2, 4}));
    model_.set("v_head_dim", others_.between(1, 4));
    const bool is_scaled = others_.coin();
    model_.set("rotary_scaling_factor", is_scaled ? 4.0 : 1.0);
    if (!is_scaled) return;
    model_.set("beta_fast", 3.0);
    model_.set("beta_slow", 0.5);
    model_.set("mscale", 0.7);
    model_.set("mscale_all_dim", others_.one_of({0.0, 0.9}));
    model_.set("original_max_position_embeddings", std::int64_t{16});
  }

  void micro_batches() {
    const std::int64_t least = is_dual_ ? 2 * pp_ : vp_ > 1 && !zero_bubble_ ? pp_ : 1;
    const std::int64_t count = draw_.between(least, 2 * pp_ + (least > 1 ? 3 : 1));
    micro_batches_ = count;
    if (draw_.coin()) parallel_.set("microbatch_group_size_per_vp_stage", draw_.between(pp_, std::max(pp_, count)));
    const std::int64_t size = draw_.one_of<std::int64_t>({1, 1, 2});
    training_.set("micro_batch_size", size);
    training_.set("global_batch_size", count * size * dp_);
    const std::string precision = pairs_ ? "fp64" : draw_.one_of({"fp64", "fp64", "fp64", "fp64", "bf16", "fp32"});
    training_.set("precision", precision);
    rounds_ = precision != "fp64";
    is_bf16_ = precision == "bf16";
  }

  void optimizer() {
    training_.set("train_iters", draw_.between(2, 5));
    training_.set("lr", draw_.one_of({1e-2, 3e-3}));
    training_.set("min_lr", draw_.one_of({0.0, 1e-3}));
    training_.set("lr_warmup_iters", draw_.between(0, 1));
    training_.set("lr_decay_iters", draw_.one_of<std::int64_t>({0, 2, 9}));
    training_.set("weight_decay", draw_.one_of({0.0, 0.1}));
    training_.set("adam_beta1", draw_.one_of({0.0, 0.9}));
    training_.set("adam_beta2", draw_.one_of({0.5, 0.95}));
    // With a small adam_eps AdamW takes a whole step for a gradient that is only rounding, in either direction.
    training_.set("adam_eps", rounds_ ? 1.0 : draw_.one_of({1e-8, 1e-4}));
    training_.set("init_method_std", 0.2);
    training_.set("clip_grad", draw_.one_of({0.0, 1.0, 0.05}));
    training_.set("seed", draw_.between(0, 1000));
    training_.set("enable_cuda_graph", draw_.coin());
    training_.set("cudnn_attention_dropout", draw_.coin());
  }

  void recompute() {
    const char* granularity = zero_bubble_ || pairs_ ? draw_.one_of({"none", "selective"})
                              : is_latent_           ? draw_.one_of({"none", "selective", "full", "full"})
                                           : draw_.one_of({"none", "selective_op", "selective", "full", "full"});
    training_.set("recompute_granularity", granularity);
    recomputes_by_op_ = granularity == std::string("selective_op");
    recomputes_modules_ = granularity == std::string("selective") && !zero_bubble_;
    if (granularity != std::string("full")) return;
    training_.set("recompute_whole_layers", draw_.coin());
    training_.set("recompute_method", draw_.one_of({"uniform", "block"}));
    training_.set("recompute_num_layers",
                  draw_.between(1, std::max<std::int64_t>(1, std::min<std::int64_t>(layers_, 3))));
  }

  void overlap() {
    const bool reduces = draw_.coin();
    overlap_.set("overlap_grad_reduce", reduces);
    const bool gathers = reduces && distributed_optimizer_ && draw_.coin();
    overlap_.set("overlap_param_gather", gathers);
    if (draw_.coin()) overlap_.set("overlap_param_gather_with_optimizer_step", gathers && vp_ > 1);
    overlap_.set("align_param_gather", draw_.coin());
    if (!draw_.seldom()) overlap_.set("bucket_size", draw_.one_of<std::int64_t>({1, 50, 300, 2000}));
    if (draw_.seldom() && !pairs_) {
      const bool in_fp32 = draw_.coin();
      overlap_.set("grad_reduce_in_fp32", in_fp32);
      rounds_ = rounds_ || !in_fp32;
    }
    overlap_.set("reduce_scatter_with_fp32_accumulation", instances_ == 1 && draw_.coin());
    if (draw_.coin()) overlap_.set("fp8_param_gather", is_bf16_ && distributed_optimizer_);
    overlap_.set("async_tensor_model_parallel_allreduce", draw_.coin());
    overlap_.set("tp_comm_overlap", draw_.coin() && tp_ > 1 && sequence_parallel_ && !pairs_);
    overlap_.set("tp_comm_bulk_dgrad", draw_.coin());
    overlap_.set("tp_comm_bulk_wgrad", draw_.coin());
    for (const char* knob : {"tp_comm_overlap_ag", "tp_comm_overlap_rs", "tp_comm_overlap_rs_dgrad"})
      overlap_.set(knob, draw_.coin());
    for (const char* knob : {"tp_comm_overlap_disable_qkv", "tp_comm_overlap_disable_fc1"})
      overlap_.set(knob, draw_.seldom());
    overlap_.set("tp_comm_overlap_compute_lanes", draw_.between(1, 3));
    if (draw_.coin() && !pairs_) overlap_of_gemms();
    if (draw_.coin()) overlap_.set("cp_comm_overlap", draw_.coin());
    overlap_.set("cp_flash_overlap", draw_.coin());
    // Two stages of several chunks must overlap their messages.
    const bool beside = draw_.coin() || (pp_ == 2 && vp_ > 1 && !zero_bubble_) || (pairs_ && pp_ > 1);
    overlap_.set("overlap_p2p_comm", beside);
    if (beside) overlap_.set("overlap_p2p_comm_warmup_flush", draw_.coin());
    if (!beside) overlap_.set("batch_p2p_comm", draw_.coin());
    if (pp_ == 1 || draw_.coin()) return;
    overlap_.set("defer_embedding_wgrad_compute", true);
    if (draw_.coin()) overlap_.set("wgrad_deferral_limit", draw_.between(0, micro_batches_ + 1));
  }

  // Any method may be drawn for any GEMM: the reader refuses the impossible ones.
  void overlap_of_gemms() {
    for (const char* gemm : {"qkv_fprop", "qkv_dgrad", "qkv_wgrad", "proj_fprop", "proj_dgrad", "fc1_fprop",
                             "fc1_dgrad", "fc1_wgrad", "fc2_fprop", "fc2_dgrad"}) {
      if (!draw_.seldom()) continue;
      Section section("overlap.tp_comm_overlap_cfg." + std::string(gemm));
      const std::string method = draw_.one_of({"none", "bulk", "ring_exchange", "pipeline", "flash"});
      section.set("method", method);
      if (method == "ring_exchange" && draw_.coin()) section.set("aggregate", true);
      if (method == "pipeline") section.set("num_splits", draw_.between(2, 4));
      if (method == "flash") {
        section.set("num_slices", draw_.between(1, 3));
        const std::string name = gemm;
        const bool scatters = name == "proj_fprop" || name == "fc2_fprop" || name == "qkv_dgrad" || name == "fc1_dgrad";
        if (scatters && draw_.coin()) section.set("accumulate", draw_.one_of({"ring", "owner"}));
      }
      add(section, subsections_);
    }
  }

  void streams() {
    const std::int64_t connections = draw_.one_of<std::int64_t>({0, 0, 1, 8, 32});
    cluster_.set("cuda_device_max_connections", connections == 1 && unit_overlap_ ? 2 : connections);
    cluster_.set("cores_per_device", draw_.between(0, 4));
    cluster_.set("link_GBps", draw_.one_of({1.0, 20.0}));
    cluster_.set("link_latency_us", draw_.one_of({0.0, 10.0}));
    if (draw_.seldom()) cluster_.set("network", "links");
    if (draw_.seldom()) cluster_.set("channel_GBps", draw_.one_of({0.5, 5.0}));
    bool has_zero_cta = false;
    for (const char* group : {"dp", "tp", "cp", "pp", "embd"}) {
      if (!draw_.seldom()) continue;
      Section section("cluster.nccl_communicator_config." + std::string(group));
      const std::int64_t ctas = draw_.between(1, 3);
      section.set("max_ctas", ctas);
      section.set("cta_policy", ctas == 3 ? "zero" : "default");
      has_zero_cta = has_zero_cta || ctas == 3;
      add(section, subsections_);
    }
    for (const char* group : {"ep", "edp"}) {
      if (!others_.seldom()) continue;
      Section section("cluster.nccl_communicator_config." + std::string(group));
      section.set("max_ctas", others_.between(1, 3));
      section.set("cta_policy", "default");
      add(section, subsections_);
    }
    cluster_.set("nccl_ub", has_zero_cta);
    std::vector<std::string> first;
    for (const char* group : {"dp", "tp", "cp", "pp"})
      if (draw_.seldom()) first.emplace_back(group);
    cluster_.set("high_priority_stream_groups", first);
  }

  void fusions() {
    for (const char* knob : {"gelu_fusion", "bias_gradient_fusion", "gelu_bias_gradient_fusion", "residual_fusion",
                             "norm_gradient_fusion"})
      training_.set(knob, draw_.coin());
    training_.set("attention_backend", cp_ == 1 && !is_latent_ ? draw_.one_of({"fused", "unfused"}) : "fused");
  }

  // Which experts a token goes through may depend on rounding.
  void experts() {
    const auto coin = [&] { return others_.coin(); };
    if (has_biases_ || (tp_ > 1 && !sequence_parallel_) || zero_bubble_ || recomputes_by_op_ || rounds_ ||
        (!pairs_ && coin()))
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
    const std::int64_t width = tp_ * others_.between(1, 4);
    model_.set("moe_ffn_hidden_size", width);
    if (groups > 0) model_.set("moe_router_num_groups", groups);
    if (groups > 0) model_.set("moe_router_group_topk", others_.between(1, 2));
    model_.set("moe_router_score_function", is_sigmoid ? "sigmoid" : "softmax");
    model_.set("moe_router_pre_softmax", !is_sigmoid && (topk == 1 || coin()));
    if (coin()) model_.set("moe_router_topk_scaling_factor", 2.5);
    model_.set("moe_router_enable_expert_bias", is_sigmoid && coin());
    model_.set("moe_router_bias_update_rate", 0.01);
    model_.set("moe_router_load_balancing_type", others_.one_of({"none", "aux_loss", "seq_aux_loss"}));
    model_.set("moe_aux_loss_coeff", others_.one_of({0.0, 0.1}));
    model_.set("moe_z_loss_coeff", others_.one_of({0.0, 0.01}));
    if (instances_ == 1 && !has_order_ && (pairs_ || coin())) {
      std::int64_t ranks = 1;  // that share the experts
      for (const std::int64_t some : {6, 5, 4, 3, 2})
        if (ranks == 1 && count % some == 0 && tp_ * cp_ * dp_ % some == 0) ranks = some;
      bool shared_beside = false;
      if (pairs_ || ranks == 1) {
        overlap_.set("overlap_moe_expert_parallel_comm", pairs_);
        overlap_.set("delay_wgrad_compute", pairs_ && coin());
        overlap_.set("ep_overlap_early_attn_memory_release", pairs_ && coin());
      } else {
        overlap_.set("overlap_dispatch_backward_with_experts_wgrad", coin());
        shared_beside = coin();
        overlap_.set("moe_shared_expert_overlap", shared_beside);
      }
      parallel_.set("expert_model_parallel_size", ranks);
      const std::int64_t cut = others_.one_of<std::int64_t>({1, 2, 3, tp_});
      parallel_.set("expert_tensor_parallel_size",
                    width % cut == 0 && tp_ * cp_ * dp_ % (ranks * cut) == 0 ? cut : std::int64_t{1});
      const std::string dispatcher = others_.one_of({"alltoall", pairs_ || shared_beside ? "alltoall" : "allgather",
                                                     ranks > 1 ? "flex" : "alltoall"}),
                        backend = others_.one_of({"deepep", "hybridep"});
      const bool pads = dispatcher != "allgather" && (dispatcher != "flex" || backend != "deepep") && coin();
      parallel_.set("moe_token_dispatcher_type", dispatcher);
      if (ranks > 1) parallel_.set("moe_flex_dispatcher_backend", backend);
      if (ranks > 1) parallel_.set("moe_expert_rank_capacity_factor", pads ? 0.0 : others_.one_of({0.0, 6.0}));
      parallel_.set("moe_expert_capacity_factor", pads ? 6.0 : 0.0);
      parallel_.set("moe_pad_expert_input_to_capacity", pads);
    }
    const bool is_shared = coin();
    model_.set("moe_shared_expert_intermediate_size", is_shared ? tp_ * others_.between(1, 3) : 0);
    model_.set("moe_shared_expert_gate", is_shared && coin());
    if (coin()) {
      model_.set("moe_layer_freq", others_.between(1, 2));
    } else {
      std::vector<std::int64_t> has;
      while (std::ssize(has) < layers_) has.push_back(others_.between(0, 1));
      if (has.size() > 1) model_.set("moe_layer_freq", has);
    }
  }

  void recompute_modules() {
    if (!recomputes_modules_ || others_.coin()) return;
    std::vector<std::string> modules = {others_.one_of({"core_attn", "mlp", "layernorm"})};
    const auto add = [&](const char* module, bool may) {
      if (may && modules.front() != module && others_.coin()) modules.emplace_back(module);
    };
    add("mlp", true);
    add("layernorm", true);
    add("mla_up_proj", is_latent_);
    add("moe_act", has_experts_);
    add("shared_experts", has_experts_);
    training_.set("recompute_modules", modules);
    training_.set("recompute_whole_layers", others_.coin());
  }

  void compare() {
    compare_.set("modes", std::vector<std::string>{"plain"});
    compare_.set("ranks", std::vector<std::int64_t>{pp_ * tp_ * cp_ * draw_.between(1, 2)});
    compare_.set("repeats", draw_.between(1, 9));
  }

  // Draws keys by their rows (model/scenario/keys.hpp).
  void draw_others(Section& section) {
    for (const ScenarioKey& key : scenario_keys_of(section.name()))
      if (!key.drawn.empty())
        section.set(key.name, key.drawn[static_cast<std::size_t>(others_.between(0, std::ssize(key.drawn) - 1))]);
  }

  Draw& draw_;
  Draw& others_;
  std::string subsections_;
  std::vector<std::string> keys_;
  std::int64_t micro_batches_ = 1;
  bool rounds_ = false;  // some value is rounded to lower precision than fp64's
  std::int64_t dp_ = 1, tp_ = 1, pp_ = 1, vp_ = 1, cp_ = 1, layers_ = 0;
  std::int64_t exchange_ = 1;  // ranks that exchange heads
  std::int64_t instances_ = 1;
  bool has_order_ = false;
  bool pairs_ = false;          // overlap_moe_expert_parallel_comm
  bool has_instances_ = false;  // the optimizer may have instances
  bool is_bf16_ = false;
  bool has_biases_ = true, recomputes_by_op_ = false, recomputes_modules_ = false, is_latent_ = false;
  bool has_experts_ = false;
  bool sequence_parallel_ = false;
  bool scatters_ = false;
  bool zero_bubble_ = false, is_dual_ = false;
  bool distributed_optimizer_ = true;
  bool unit_overlap_ = false;  // fsdp_comm_overlap acts, unless a rank is the only one
  Section model_{"model"}, cluster_{"cluster"}, parallel_{"parallel"}, overlap_{"overlap"}, training_{"training"},
      compare_{"compare"};
};

}  // namespace

std::vector<std::string> scenario_keys() {
  // The reader lists all keys of a section when it meets one that resembles none of them.
  const auto known = [](const std::string& section) {
    try {
      parse_scenario("[model]\npreset = \"gpt2-124m\"\n", "keys", {section + ".XXXXXXXXXXXXXXXXXXXX=1"});
    } catch (const Error& error) {
      const std::string what = error.what(), before = "expected one of ", after = ", got an unknown key";
      const std::size_t begin = what.find(before) + before.size(), end = what.find(after);
      std::istringstream words(what.substr(begin, end - begin));
      std::vector<std::string> keys;
      for (std::string word; std::getline(words >> std::ws, word, ',');) keys.push_back(section + "." + word);
      return keys;
    }
    throw runtime_failure("[" + section + "] takes any key");
  };
  std::vector<std::string> keys;
  std::vector<std::string> sections = {"model", "cluster", "parallel", "overlap", "training", "compare"};
  for (std::size_t s = 0; s < sections.size(); ++s)
    for (const std::string& key : known(sections[s]))
      if (key == "cluster.nccl_communicator_config" || key == "overlap.tp_comm_overlap_cfg" ||
          key.starts_with("cluster.nccl_communicator_config.") || key.starts_with("overlap.tp_comm_overlap_cfg."))
        (std::count(key.begin(), key.end(), '.') < 3 ? sections : keys).push_back(key);
      else
        keys.push_back(key);
  return keys;
}

std::vector<std::string> keys_not_drawn() {
  std::vector<std::string> keys = {
      // A named model sets the drawn keys to larger values.
      "model.preset", "model.hf_config",
      // Acts only where ranks are processes.
      "cluster.bind_cores_to_rank",
      // Files, and the timeout for a hang.
      "training.data", "training.data_weights", "training.validation_data", "training.eval_interval",
      "training.eval_iters", "training.save_retain_interval", "training.grad_norm_skip_threshold", "training.load",
      "training.checkpoint_dir", "training.checkpoint_interval", "training.timeout_s", "training.moe_expert_loads_file",
      // Acts only in predictions on published GPUs.
      "training.cuda_graph_modules", "training.cuda_graph_scope",
      // Frozen runs have nothing to compare with; frozen_base_test.cpp has layouts of its own.
      "training.frozen_base",
      // Other spellings (scenario_test.cpp reads each).
      "model.encoder_seq_length", "overlap.overlap_grad_sync", "overlap.overlap_param_sync", "overlap.fp8_params",
      "overlap.ub_tp_comm_overlap", "overlap.ub_tp_comm_overlap_cfg", "overlap.grad_sync_dtype",
      "overlap.tp_comm_split_ag", "overlap.tp_comm_split_rs", "training.activations_checkpoint_granularity",
      "training.activations_checkpoint_method", "training.activations_checkpoint_num_layers",
      "training.gradient_clip_val", "parallel.decoder_first_pipeline_num_layers",
      "parallel.decoder_last_pipeline_num_layers"};
  // Acts only with methods that these GEMMs do not have.
  for (const char* gemm : {"qkv_dgrad", "qkv_wgrad", "proj_fprop", "fc1_dgrad", "fc1_wgrad", "fc2_fprop"})
    keys.push_back(std::string("overlap.tp_comm_overlap_cfg.") + gemm + ".aggregate");
  for (const char* gemm : {"qkv_fprop", "qkv_wgrad", "proj_dgrad", "fc1_fprop", "fc1_wgrad", "fc2_dgrad"})
    keys.push_back(std::string("overlap.tp_comm_overlap_cfg.") + gemm + ".num_splits");
  for (const char* gemm : {"qkv_fprop", "qkv_wgrad", "proj_dgrad", "fc1_fprop", "fc1_wgrad", "fc2_dgrad"})
    keys.push_back(std::string("overlap.tp_comm_overlap_cfg.") + gemm + ".accumulate");
  for (const char* gemm : {"qkv_wgrad", "fc1_wgrad"})
    keys.push_back(std::string("overlap.tp_comm_overlap_cfg.") + gemm + ".num_slices");
  return keys;
}

RandomLayout random_layout(std::uint64_t seed) {
  Draw draw(seed), others(~seed);
  RandomLayout layout;
  for (; layout.refused < kMostDraws; ++layout.refused) {
    Generator generator(draw, others);
    layout.toml = generator.toml();
    layout.keys = generator.keys();
    try {
      layout.scenario = parse_scenario(layout.toml, "random.toml");
      return layout;
    } catch (const Error&) {
    }
  }
  throw runtime_failure("every draw was refused, lastly\n" + layout.toml);
}

}  // namespace stretto::testing
