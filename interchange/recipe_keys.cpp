#include "base/values_of.hpp"
#include "interchange/megatron.hpp"
#include "interchange/precision_names.hpp"
#include "interchange/recipe_settings.hpp"

namespace stretto {

using Json = nlohmann::json;

namespace {

void take_precision(RecipeSettings& recipe, const std::string& path, const Json& value, const std::string& word) {
  for (const auto& [key, made] : low_precision_of(word)) recipe.settings.values[key] = made;
  const bool is_16 = word == "16" || word.find("fp16") != std::string::npos || word.starts_with("16");
  // Megatron-Bridge's named precisions reduce in f32 and win over `ddp` (mixed_precision.py:185).
  if (path == "mixed_precision") recipe.facts.mixed_reduces_in_fp32 = true;
  recipe.settings.values["training.precision"] = word.starts_with("32") || word == "fp32" ? "fp32" : "bf16";
  if (is_16) recipe.near(path, value, "predicted as bf16, which takes as long");
}

}  // namespace

bool take_recipe_key(RecipeSettings& recipe, const std::string& key, const std::string& path, const Json& value) {
  auto& values = recipe.settings.values;
  const std::string word = value.is_string()    ? value.get<std::string>()
                           : value.is_boolean() ? (value.get<bool>() ? "true" : "false")
                                                : value.dump();
  const bool is_on =
      !(word == "false" || word == "0" || word == "null" || word == "none" || word == "None" || word.empty());
  const auto has = [&](const char* part) { return word.find(part) != std::string::npos; };
  if (key == "num_experts") {
    if (is_on) values["model.num_moe_experts"] = value;
  } else if (key == "fp8" && (word == "hybrid" || word == "e4m3")) {
    values["training.fp8_format"] = word;
    // MixedPrecisionConfig has another default than the model's configuration.
    if (path.starts_with("mixed_precision")) values.emplace("training.fp8_recipe", "tensorwise");
  } else if (key == "fp8") {  // NeMo's switch, in addition to the formats'
    recipe.facts.is_fp8 = is_on;
  } else if (key == "fp8_hybrid" || key == "fp8_e4m3") {
    if (is_on) recipe.facts.nemo_format = key == "fp8_e4m3" ? "e4m3" : "hybrid";
  } else if (key == "fp4") {
    values["training.fp4_format"] = is_on ? "e2m1" : "none";
  } else if (key == "fp8_multi_head_attention") {
    if (is_on && recipe.facts.is_recipe)
      recipe.near(path, value, "attention's operands and results are cast by themselves");
    else if (is_on)
      recipe.refuse("attention in fp8", path);
  } else if (key == "hybrid_override_pattern" || key == "hybrid_layer_pattern") {
    if (is_on) recipe.refuse("Mamba layers", path);
  } else if (key == "precision" || key == "mixed_precision") {
    take_precision(recipe, path, value, word);
  } else if (key == "bf16") {
    if (is_on) values["training.precision"] = "bf16";
  } else if (key == "moe_router_force_load_balancing") {
    if (is_on) values["training.moe_expert_loads"] = "forced";
  } else if (key == "cuda_graph_scope" || key == "cuda_graph_modules") {
    for (const GraphModule module : values_of<GraphModule>())
      if (has(name_of(module))) recipe.facts.graph_modules.push_back(name_of(module));
  } else if (key == "cuda_graph_impl") {
    recipe.facts.has_graphs = is_on;
    if (has("full_iteration")) recipe.facts.graph_modules.push_back(name_of(GraphModule::full_iteration));
  } else if (key == "pipeline_model_parallel_layout" && has("m")) {
    std::string without = word;
    std::erase(without, 'm');
    values["parallel.pipeline_model_parallel_layout"] = without;
  } else if (key == "num_nodes") {
    recipe.facts.nodes = value;
  } else if (key == "devices" || key == "num_gpus_per_node" || key == "gpus_per_node") {
    recipe.facts.devices = value;
  } else if (key == "normalization") {
    values["model.normalization"] = has("rms") || has("RMS") ? "RMSNorm" : "LayerNorm";
  } else if (key == "activation") {
    const bool is_gated = has("glu");
    values["model.swiglu"] = is_gated;
    if (is_gated && !has("swiglu")) recipe.near(path, value, "predicted with SwiGLU, which moves as many bytes");
    if (has("squared")) recipe.near(path, value, "predicted with GELU, which moves as many bytes");
  } else if (key == "gated_linear_unit" || key == "swiglu") {
    values["model.swiglu"] = is_on;
  } else if (key == "share_embeddings_and_output_weights") {
    values["model.untie_embeddings_and_output_weights"] = !is_on;
  } else if (key == "position_embedding_type") {
    values["model.position_embedding_type"] =
        word == "rope" || word == "yarn" || word == "mrope" ? "rope" : "learned_absolute";
    if (word != "rope" && word != "learned_absolute") recipe.near(path, value, "positions are rotary or learned");
  } else if (key == "override_vocab_size") {
    // The number is the padded size (NeMo, megatron_gpt_model.py).
    if (!value.is_number_integer()) return false;
    values["model.vocab_size"] = value;
    values["model.make_vocab_size_divisible_by"] = 1;
    recipe.facts.overrides_vocabulary = true;
  } else if (key == "make_vocab_size_divisible_by" && recipe.facts.overrides_vocabulary) {
    // Stretto ignores the value.
  } else if (key == "exp_avg_dtype" || key == "exp_avg_sq_dtype" || key == "main_params_dtype") {
    const bool is_16 = has("16"), is_brain = has("bf");  // "bf16", "torch.bfloat16"
    values["training." + key] = is_16 && is_brain ? "bf16" : is_16 ? "fp16" : has("8") ? "fp8" : "fp32";
  } else if (key == "main_grads_dtype") {
    // Megatron-core's optimizer only checks it. Gradients have the type in which they are reduced (mixed_precision).
  } else if (key == "grad_sync_dtype") {
    values["overlap.grad_reduce_in_fp32"] = word != "bf16" && word != "fp16" && word != "16";
  } else if (path == "mixed_precision.grad_reduce_in_fp32") {
    recipe.facts.mixed_reduces_in_fp32 = is_on;
  } else if (key == "fsdp_grad_reduce_dtype") {
    recipe.facts.fsdp_reduces_in_fp32 = word == "32" || has("fp32") || has("float32");
  } else if (key == "fsdp_sharding_strategy") {
    recipe.facts.fsdp_strategy = word;
  } else if (key == "bucket_cap_mb" && path.ends_with("optim.bucket_cap_mb")) {
    recipe.facts.bucket_mb = value;
  } else if (path.ends_with("optimizer.optimizer") && has("muon")) {
    recipe.near(path, value, "the optimizer is AdamW, whose updates are not made orthogonal");
  } else if (key == "betas" && value.is_array() && value.size() == 2) {
    values["training.adam_beta1"] = value[0];
    values["training.adam_beta2"] = value[1];
  } else if (key == "name" && path.ends_with("optim.name")) {
    values["parallel.use_distributed_optimizer"] = has("distributed");
    recipe.facts.is_apex = has("distributed_fused");
  } else if (key == "attention_backend") {
    if (has("flash")) recipe.settings.profile = "nemo-dgxc-flash2";
    values["training.attention_backend"] = has("unfused") || has("local") ? "unfused" : "fused";
  } else if (key == "fsdp" || key == "use_torch_fsdp2" || key == "use_megatron_fsdp") {
    recipe.facts.is_fsdp = recipe.facts.is_fsdp || is_on;
  } else if (key == "NVTE_FUSED_ATTN") {
    if (!is_on) recipe.settings.profile = "nemo-dgxc-flash2";
  } else if (key == "CUDA_DEVICE_MAX_CONNECTIONS") {
    if (const Json number = value_of_word(word); number.is_number_integer())
      values["cluster.cuda_device_max_connections"] = number;
  } else if (key == "lr_warmup_iters" || key == "lr_decay_iters" || key == "min_lr" || key == "adam_eps" ||
             key == "eps") {
    // The course of training does not affect a step.
  } else {
    return false;
  }
  return true;
}

void take_recipe_tokenizer(RecipeSettings& recipe, const Json& tokenizer) {
  // The type of one of Megatron's own tokenizers determines the vocabulary; for others the model does.
  for (const char* key : {"tokenizer_model", "pretrained_model_name", "model_name", "type", "tokenizer_type", "model"})
    if (tokenizer.contains(key) && tokenizer[key].is_string())
      recipe.settings.vocabulary_hints += tokenizer[key].get<std::string>() + "\n";
  if (tokenizer.contains("vocab_size") && tokenizer["vocab_size"].is_number_integer())
    recipe.settings.values.emplace("model.vocab_size", tokenizer["vocab_size"]);
}

}  // namespace stretto
