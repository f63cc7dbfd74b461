#include "interchange/benchmark_overrides.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// Layouts that Bridge takes for other numbers of stages and chunks (recipes/deepseek/h100/deepseek_v3.py:50,
// recipes/kimi/h100/kimi_k2.py:32, which has (2, 8) as well and no layer that predicts a second token); "" for others.
std::string layout_of(std::int64_t pp, std::int64_t vp, bool is_kimi) {
  const std::string last = is_kimi ? "L" : "mL";
  const std::int64_t chunks = pp * vp;
  if (pp == 4 && vp == 1) return "Et*16|(t*16|)*2t*13" + last;
  if ((pp == 8 && vp == 1) || (pp == 4 && vp == 2)) return "Et*8|(t*8|)*6t*5" + last;
  const bool has_16 = chunks == 16 && (pp >= 4 || (is_kimi && pp == 2));
  return has_16 ? "Et*4|(t*4|)*14t" + last : "";
}

class BenchmarkOverrides {
 public:
  BenchmarkOverrides(Json& root, const BenchmarkOptions& given, const BenchmarkRun& run)
      : root_(root), given_(given), run_(run) {}

  void apply() {
    const Json own = settings_of(run_.recipe).settings;
    had_pairs_ = own.contains("comm_overlap") && own["comm_overlap"].value("overlap_moe_expert_parallel_comm", false);
    take_optimizer();
    take_sharding();
    take_graphs();
    take_recompute();
    take_expert_overlap();
    take_capacity();
    take_layout();
    take_backend();
    finish();
    take_connections();
  }

 private:
  Json& model() { return root_["model"]; }
  std::int64_t whole(const char* key, std::int64_t otherwise = 1) {
    const Json& value = model()[key];
    return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
  }

  // overrides.py:666: only recipes in bf16, and with Adam.
  void take_optimizer() {
    Json& optimizer = root_["optimizer"];
    const bool is_adam = !optimizer.is_object() || optimizer.value("optimizer", "adam") == "adam";
    if (run_.recipe.key.precision == "bf16" && is_adam) optimizer["use_precision_aware_optimizer"] = true;
  }

  void take_sharding() {
    // Only "true" acts.
    if (given_.is_on("use_megatron_fsdp").value_or(false)) {
      root_["ddp"]["use_megatron_fsdp"] = true;
      root_["ddp"]["data_parallel_sharding_strategy"] = "optim_grads_params";
      model()["gradient_accumulation_fusion"] = true;
      if (root_.contains("comm_overlap")) root_["comm_overlap"]["defer_embedding_wgrad_compute"] = nullptr;
    }
    if (given_.is_on("nccl_ub").value_or(false)) root_["ddp"]["nccl_ub"] = true;
  }

  void take_graphs() {
    Json &impl = model()["cuda_graph_impl"], &scope = model()["cuda_graph_scope"];
    if (const auto word = given_.text("cuda_graph_impl")) {
      if (*word != "none" && *word != "local" && *word != "transformer_engine")
        given_.fail("cuda_graph_impl", "expected one of none, local, transformer_engine");
      // Graphs of the whole step are local ones, or none are there to be kept.
      if (impl == "full_iteration" && *word == "transformer_engine" && !given_.has("cuda_graph_scope"))
        given_.fail("cuda_graph_impl", "expected --cuda_graph_scope too: the recipe's graph is of the whole step");
      if (impl != "full_iteration" || *word != "local") impl = *word;
    }
    if (impl.is_null() || impl == "none") {
      impl = scope = nullptr;
      return;
    }
    if (const auto modules = given_.words("cuda_graph_scope")) {
      const bool is_whole = std::find(modules->begin(), modules->end(), "full_iteration") != modules->end();
      if (is_whole && modules->size() > 1) given_.fail("cuda_graph_scope", "expected full_iteration alone");
      if (is_whole && impl == "transformer_engine")
        given_.fail("cuda_graph_scope", "expected parts of a layer with cuda_graph_impl transformer_engine");
      if (!is_whole && impl != "transformer_engine")
        given_.fail("cuda_graph_scope", "expected --cuda_graph_impl transformer_engine with parts of a layer");
      if (is_whole) impl = "full_iteration";
      scope = is_whole ? Json() : Json(*modules);
    }
    // Without parts all of a layer is captured (cuda_graph_modules of Megatron-LM's transformer_config.py).
    if (impl == "transformer_engine" && (scope.is_null() || scope.empty()) && !has_experts()) scope = {"attn", "mlp"};
    if (impl == "local")
      given_.fail("cuda_graph_impl", "expected transformer_engine, or --cuda_graph_scope full_iteration");
  }

  void take_recompute() {
    if (given_.count("activation_offload_layers")) model()["cpu_offloading"] = true;
    if (const auto layers = given_.count("recompute_num_layers")) {
      model()["recompute_granularity"] = "full";
      model()["recompute_method"] = "block";
      model()["recompute_num_layers"] = *layers;
    }
    if (const auto modules = given_.words("recompute_modules")) {
      model()["recompute_modules"] = *modules;
      model()["recompute_granularity"] = "selective";
    }
  }

  bool has_experts() const { return !settings_of(run_.recipe).preset.empty(); }

  void take_expert_overlap() {
    if (!given_.is_on("moe_a2a_overlap").value_or(false)) return;  // only "true" acts
    if (whole("expert_model_parallel_size") < 2 && !given_.has("expert_model_parallel_size"))
      given_.fail("moe_a2a_overlap", "expected a recipe whose experts are on several ranks");
    if (!root_.contains("comm_overlap")) {
      root_["comm_overlap"] = {{"tp_comm_overlap", whole("tensor_model_parallel_size") > 1}};
      root_["ddp"]["overlap_grad_reduce"] = root_["ddp"]["overlap_param_gather"] = true;
    }
    root_["comm_overlap"]["overlap_moe_expert_parallel_comm"] = true;
    root_["comm_overlap"]["delay_wgrad_compute"] = true;
    model()["moe_shared_expert_overlap"] = false;
  }

  // training/utils/moe_token_drop.py
  void take_capacity() {
    const auto drops = given_.is_on("use_tokendrop");
    if (!drops || !has_experts()) return;
    if (model()["moe_token_dispatcher_type"] != "alltoall")
      given_.fail("use_tokendrop", "expected a recipe with the all-to-all dispatcher, as Megatron-Bridge does");
    model()["moe_router_force_load_balancing"] = !*drops;
    model()["moe_expert_capacity_factor"] = *drops ? Json(1.0) : Json();
    model()["moe_pad_expert_input_to_capacity"] = *drops ? Json(true) : Json();
  }

  void take_layout() {
    for (const auto& [option, section] : {std::pair{"tensor_model_parallel_size", "model"},
                                          {"pipeline_model_parallel_size", "model"},
                                          {"context_parallel_size", "model"},
                                          {"expert_model_parallel_size", "model"},
                                          {"seq_length", "model"},
                                          {"global_batch_size", "train"},
                                          {"micro_batch_size", "train"}})
      if (const auto size = given_.count(option)) root_[section][option] = *size;
    if (given_.has("tensor_model_parallel_size"))
      model()["sequence_parallel"] = whole("tensor_model_parallel_size") > 1;
    if (const char* vp = "virtual_pipeline_model_parallel_size"; given_.text(vp) == "None")
      model()[vp] = nullptr;
    else if (given_.has(vp))
      model()[vp] = *given_.count(vp);
    // Without a number the experts' size is that of the other layers.
    if (const char* etp = "expert_tensor_parallel_size"; given_.has(etp))
      model()[etp] = given_.text(etp)->empty() ? whole("tensor_model_parallel_size") : *given_.count(etp);
    Json& layout = model()["pipeline_model_parallel_layout"];
    const auto own = given_.text("pipeline_model_parallel_layout");
    if (own) layout = *own;
    const std::string& name = run_.recipe.key.model;
    if (own || (name != "deepseek_v3" && name != "kimi_k2") ||
        (!given_.has("pipeline_model_parallel_size") && !given_.has("virtual_pipeline_model_parallel_size")))
      return;
    const std::int64_t pp = whole("pipeline_model_parallel_size"), vp = whole("virtual_pipeline_model_parallel_size");
    if (pp == 1 && vp == 1)
      layout = nullptr;
    else if (const std::string made = layout_of(pp, vp, name == "kimi_k2"); !made.empty())
      layout = made;
  }

  // training/flex_dispatcher_backend.py: DeepEP is for Ampere, Hopper, B200 and B300.
  void take_backend() {
    const auto backend = given_.text("moe_flex_dispatcher_backend");
    if (!backend || !has_experts()) return;
    if (*backend != "deepep" && *backend != "hybridep" && *backend != "None")
      given_.fail("moe_flex_dispatcher_backend", "expected one of deepep, hybridep, None");
    const bool is_nvl72 = run_.recipe.key.gpu.starts_with("gb") || run_.recipe.key.gpu.starts_with("vr");
    const bool is_flex = *backend == "hybridep" || (*backend == "deepep" && !is_nvl72);
    model()["moe_token_dispatcher_type"] = is_flex ? "flex" : "alltoall";
    model()["moe_flex_dispatcher_backend"] = is_flex ? Json(*backend) : Json();
  }

  void finish() {
    if (given_.has("deterministic")) {
      model()["deterministic_mode"] = true;
      if (root_.contains("comm_overlap")) root_["comm_overlap"]["tp_comm_overlap"] = false;
    }
    if (!run_.is_checked) return;
    const std::string place = run_.name + ": -ng, " + run_.recipe.name;
    const std::int64_t replicas = replicas_of(model(), run_.gpus, place);
    if (run_.recipe.gpus != run_.gpus) scale(replicas);
    const Json &given_batch = root_["train"]["global_batch_size"], &given_micro = root_["train"]["micro_batch_size"];
    if (!given_batch.is_number_integer() || !given_micro.is_number_integer()) return;  // the scenario's reader says why
    const std::int64_t batch = given_batch,
                       micro = std::clamp<std::int64_t>(given_micro.get<std::int64_t>(), 1, 1 << 20);
    if (batch % (micro * replicas) != 0)
      throw input_error(fmt::format(
          "{}: expected a global batch size that is a multiple of {}, {} replicas' micro-batches of {}, got {}",
          run_.name, micro * replicas, replicas, micro, batch));
  }

  void scale(std::int64_t replicas) {
    // set_post_overrides() of utils/overrides.py, which recipes of the number of GPUs do not pass through.
    const std::string& precision = run_.recipe.key.precision;
    if (replicas > 1 && whole("pipeline_model_parallel_size") > 1 &&
        whole("virtual_pipeline_model_parallel_size") > 1 && precision != "fp8mx" && precision != "nvfp4" &&
        run_.recipe.key.model != "kimi_k2" && root_.contains("comm_overlap"))
      root_["comm_overlap"]["overlap_param_gather_with_optimizer_step"] = true;
    if (!given_.has("global_batch_size")) scale_batch(root_, run_.recipe, run_.gpus, run_.name + ": -ng");
  }

  // _apply_flat_cli_environment_compatibility() of utils/overrides.py; the launcher's own variables win.
  void take_connections() {
    const char* key = "CUDA_DEVICE_MAX_CONNECTIONS";
    Json& value = root_["env_vars"][key];
    const bool is_protected =
        std::any_of(given_.overrides().begin(), given_.overrides().end(),
                    [](const std::string& one) { return one.find("env_vars") != std::string::npos; });
    const bool is_changed = given_.has("tensor_model_parallel_size") || given_.has("context_parallel_size") ||
                            given_.has("moe_a2a_overlap");
    if (is_changed && !is_protected) {
      const bool is_hopper = run_.recipe.key.gpu == "h100";
      const bool has_backend = settings_of(run_.recipe).settings["model"].contains("moe_flex_dispatcher_backend");
      const bool has_pairs = given_.has("moe_a2a_overlap") ? *given_.is_on("moe_a2a_overlap") : had_pairs_;
      const bool shares = whole("tensor_model_parallel_size") > 1 || whole("context_parallel_size") > 1;
      value = is_hopper && shares && !has_pairs ? 1 : !is_hopper || has_backend ? 32 : 8;
    }
    if (!run_.connections.empty()) value = run_.connections;
    for (const char* option : {"custom_env_vars", "env"})
      for (const std::string& one : given_.words(option).value_or(std::vector<std::string>{}))
        if (one.starts_with(std::string(key) + "=")) value = one.substr(one.find('=') + 1);
  }

  Json& root_;
  const BenchmarkOptions& given_;
  const BenchmarkRun& run_;
  bool had_pairs_ = false;  // the recipe overlaps the exchange of rows
};

}  // namespace

void apply_benchmark_options(Json& root, const BenchmarkOptions& options, const BenchmarkRun& run) {
  BenchmarkOverrides(root, options, run).apply();
}

}  // namespace stretto
