#include <algorithm>

#include "tests/random_scenario.hpp"

namespace stretto::testing {

void RandomScenario::micro_batches() {
  const std::int64_t least = is_dual_ ? 2 * pp_ : vp_ > 1 && !zero_bubble_ ? pp_ : 1;
  const std::int64_t count = draw_.between(least, 2 * pp_ + (least > 1 ? 3 : 1));
  micro_batches_ = count;
  if (draw_.coin()) parallel_.set("microbatch_group_size_per_vp_stage", draw_.between(pp_, std::max(pp_, count)));
  const std::int64_t size = draw_.one_of<std::int64_t>({1, 1, 2});
  training_.set("micro_batch_size", size);
  training_.set("global_batch_size", count * size * dp_);
  std::string precision = pairs_ ? "fp64" : draw_.one_of({"fp64", "fp64", "fp64", "fp64", "bf16", "fp32"});
  if (codes_ != nullptr) precision = codes_->seldom() ? "fp32" : "bf16";
  training_.set("precision", precision);
  rounds_ = precision != "fp64";
  is_bf16_ = precision == "bf16";
}

void RandomScenario::optimizer() {
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

void RandomScenario::recompute() {
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

void RandomScenario::overlap() {
  const bool reduces = draw_.coin();
  overlap_.set("overlap_grad_reduce", reduces);
  is_aware_ = is_bf16_ && distributed_optimizer_ && others_.coin();
  if (is_aware_) training_.set("use_precision_aware_optimizer", true);
  for (const char* key : {"exp_avg_dtype", "exp_avg_sq_dtype"})
    if (is_aware_) training_.set(key, others_.one_of({"fp32", "bf16"}));
  const bool gathers = reduces && distributed_optimizer_ && draw_.coin();
  overlap_.set("overlap_param_gather", gathers);
  if (draw_.coin()) overlap_.set("overlap_param_gather_with_optimizer_step", gathers && vp_ > 1);
  overlap_.set("align_param_gather", draw_.coin());
  if (!draw_.seldom()) overlap_.set("bucket_size", draw_.one_of<std::int64_t>({1, 50, 300, 2000}));
  if (draw_.seldom() && !pairs_) {
    const bool in_fp32 = draw_.coin();
    overlap_.set("grad_reduce_in_fp32", in_fp32);
    rounds_ = rounds_ || !in_fp32;
    if (!in_fp32 && is_aware_) training_.set("main_grads_dtype", "bf16");
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
  const bool overlaps = draw_.coin() || (pp_ == 2 && vp_ > 1 && !zero_bubble_) || (pairs_ && pp_ > 1);
  overlap_.set("overlap_p2p_comm", overlaps);
  if (overlaps) overlap_.set("overlap_p2p_comm_warmup_flush", draw_.coin());
  if (!overlaps) overlap_.set("batch_p2p_comm", draw_.coin());
  if (pp_ == 1 || draw_.coin()) return;
  overlap_.set("defer_embedding_wgrad_compute", true);
  if (draw_.coin()) overlap_.set("wgrad_deferral_limit", draw_.between(0, micro_batches_ + 1));
}

// Any method may be drawn for any GEMM: the reader refuses the impossible ones.
void RandomScenario::overlap_of_gemms() {
  for (const char* gemm : {"qkv_fprop", "qkv_dgrad", "qkv_wgrad", "proj_fprop", "proj_dgrad", "fc1_fprop", "fc1_dgrad",
                           "fc1_wgrad", "fc2_fprop", "fc2_dgrad"}) {
    if (!draw_.seldom()) continue;
    TomlSection section("overlap.tp_comm_overlap_cfg." + std::string(gemm));
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

void RandomScenario::streams() {
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
    TomlSection section("cluster.nccl_communicator_config." + std::string(group));
    const std::int64_t ctas = draw_.between(1, 3);
    section.set("max_ctas", ctas);
    section.set("cta_policy", ctas == 3 ? "zero" : "default");
    has_zero_cta = has_zero_cta || ctas == 3;
    add(section, subsections_);
  }
  for (const char* group : {"ep", "edp"}) {
    if (!others_.seldom()) continue;
    TomlSection section("cluster.nccl_communicator_config." + std::string(group));
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

void RandomScenario::fusions() {
  for (const char* knob :
       {"gelu_fusion", "bias_gradient_fusion", "gelu_bias_gradient_fusion", "residual_fusion", "norm_gradient_fusion"})
    training_.set(knob, draw_.coin());
  const std::string backend = cp_ == 1 && !is_latent_ ? draw_.one_of({"fused", "unfused"}) : "fused";
  training_.set("attention_backend", backend);
  may_have_rules_ = may_have_rules_ && backend == "fused";
}

// The reader's gates refuse what recipes cannot be combined with.
void RandomScenario::low_precision() {
  const std::string recipe = may_send_codes_ && codes_->coin()
                                 ? "mxfp8"
                                 : codes_->one_of({"delayed", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"});
  const bool sends = may_send_codes_ && recipe == "mxfp8";
  const bool is_delayed = recipe == "delayed";
  if (recipe == "nvfp4") {
    training_.set("fp4_format", "e2m1");
    training_.set("fp4_recipe", "nvfp4");
    training_.set("fp4_param_gather", codes_->coin());
  } else {
    training_.set("fp8_format", sends ? "e4m3" : codes_->one_of({"e4m3", "hybrid"}));
    training_.set("fp8_recipe", recipe);
  }
  if (sends) {
    training_.set("moe_dispatch_fwd_dtype", codes_->one_of({"bf16", "mxfp8"}));
    training_.set("moe_combine_bwd_dtype", codes_->one_of({"bf16", "mxfp8"}));
  }
  if (is_delayed) {
    training_.set("fp8_margin", codes_->between(0, 2));
    training_.set("fp8_amax_history_len", codes_->one_of<std::int64_t>({1, 4, 1024}));
    training_.set("fp8_amax_compute_algo", codes_->one_of({"most_recent", "max"}));
    training_.set("tp_only_amax_red", codes_->coin());
  }
  training_.set("fp8_transposes", codes_->coin());
  if (is_delayed || sends || !codes_->seldom()) return;
  training_.set("first_last_layers_bf16", true);
  training_.set("num_layers_at_start_in_bf16", codes_->between(0, 1));
  training_.set("num_layers_at_end_in_bf16", codes_->between(0, 1));
}

void RandomScenario::compare() {
  compare_.set("modes", std::vector<std::string>{"plain"});
  compare_.set("ranks", std::vector<std::int64_t>{pp_ * tp_ * cp_ * draw_.between(1, 2)});
  compare_.set("repeats", draw_.between(1, 9));
}

// Draws keys by their rows (model/scenario/keys.hpp).
void RandomScenario::draw_others(TomlSection& section) {
  for (const ScenarioKey& key : scenario_keys_of(section.name())) {
    if (key.drawn.empty()) continue;
    const KeyValue& value = key.drawn[static_cast<std::size_t>(others_.between(0, std::ssize(key.drawn) - 1))];
    if (!section.has(key.name)) section.set(key.name, value);
  }
}

}  // namespace stretto::testing
