#include "model/interchange/recipe.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "base/values_of.hpp"
#include "model/interchange/bridge_recipes.hpp"
#include "model/interchange/command_line.hpp"
#include "model/interchange/megatron.hpp"
#include "model/interchange/megatron_flags.hpp"
#include "model/interchange/model_shapes.hpp"
#include "model/interchange/precision_names.hpp"
#include "model/interchange/yaml.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

// NeMo's names for a scenario's keys, in addition to the spellings that a scenario accepts.
struct Alias {
  const char* name;
  const char* key;
};
constexpr Alias kAliases[] = {
    {"bias", "model.add_bias_linear"},
    {"max_steps", "training.train_iters"},
    {"seq_len_interpolation_factor", "model.rotary_seq_len_interpolation_factor"},
};

constexpr const char* kDefaultProducts =
    "each product's method is the default; [overlap] tp_comm_overlap_cfg says the same";

// A setting that is not modelled, with the value that has no effect.
struct Near {
  const char* name;
  Json neutral;
  const char* effect;
};
const std::vector<Near>& near_keys() {
  static const std::vector<Near> keys = {
      {"add_qkv_bias", false, "biases on q, k and v alone are left out: below 1 % of a step"},
      {"qkv_bias", false, "biases on q, k and v alone are left out: below 1 % of a step"},
      {"window_size", nullptr, "attention is over the whole sequence: more FLOPs than in the window"},
      {"rotary_percentage", 1.0, "all of a head turns, which moves more bytes"},
      {"rotary_percent", 1.0, "all of a head turns, which moves more bytes"},
      {"fp32_residual_connection", false, "the residual stream has 2 bytes an element, not 4"},
      {"mtp_num_layers", nullptr, "layers that predict further tokens, each with a head, are left out"},
      {"gradient_accumulation_fusion", true,
       "weight gradients are added inside their product: one pass less over them"},
      {"bias_activation_fusion", true, "bias and activation are one pass over memory"},
      {"bias_dropout_add_fusion", true, "bias, dropout and the residual addition are one pass over memory"},
      {"apply_rope_fusion", true, "rotary positions are one pass over memory"},
      {"transformer_engine", true, "kernels are TransformerEngine's"},
      {"mcore_gpt", true, "layers are Megatron-core's"},
      {"megatron_amp_O2", true, "gradients are summed in f32 in one buffer"},
      {"sharp", false, "NCCL's own algorithms reduce, without the network's help"},
      {"ub_tp_comm_overlap_cfg", nullptr, kDefaultProducts},
      {"tp_comm_overlap_cfg", nullptr, kDefaultProducts},
      {"num_micro_batches_with_partial_activation_checkpoints", nullptr, "all micro-batches are recomputed alike"},
      {"activations_checkpoint_layers_per_pipeline", nullptr, "all stages are recomputed alike"},
      {"cpu_offloading", false, "activations stay on the GPU"},
      {"optimizer_cpu_offload", false, "the optimizer runs on the GPU"},
      {"enable_cuda_graph", false, "the host issues operations one by one"},
      {"external_cuda_graph", false, "the host issues operations one by one"},
      {"delay_wgrad_compute", false, "weight gradients of experts are part of their backward pass"},
      {"moe_shared_expert_overlap", false, "a shared expert is not beside the dispatch of rows"},
      {"deterministic_mode", false, "kernels are the fastest ones, not the deterministic ones"},
      {"parallel_attention", false, "the MLP follows attention, and is not beside it"},
      {"use_precision_aware_optimizer", false, "the optimizer's state is in f32"},
  };
  return keys;
}

class Recipe {
 public:
  Recipe(Yaml yaml, const std::string& name, const ImportOptions& options, std::string folder = "")
      : options_(options), yaml_(std::move(yaml)), root_(yaml_.root), folder_(std::move(folder)) {
    settings_.name = name;
    settings_.profile = "nemo-dgxc";
    settings_.vocabulary_key = "vocab_size";
  }

  Settings run() {
    take_recipe();
    take_defaults();
    resolve_references(root_);
    visit(root_, "");
    refuse(settings_, options_);
    finish();
    return std::move(settings_);
  }

 private:
  int line_of(const std::string& path) const {
    const auto found = yaml_.lines.find(path);
    return found == yaml_.lines.end() ? 0 : found->second;
  }
  void near(const std::string& path, const Json& value, const std::string& effect) {
    std::string what = path;
    if (!value.is_structured()) what += ": " + (value.is_string() ? value.get<std::string>() : value.dump());
    settings_.approximated.push_back({what.substr(0, 100), line_of(path), effect});
  }
  void refuse_here(const std::string& noun, const std::string& path) {
    settings_.refused.emplace(noun, Judged{path, line_of(path), ""});
  }

  std::string stem() const { return std::filesystem::path(settings_.name).stem().string(); }
  // Returns the name of the recipe that the settings change: `run.name`, else the file's name.
  std::string recipe_name() const {
    const Json* node = &root_;
    for (const char* key : {"run", "name"})
      node = node != nullptr && node->is_object() && node->contains(key) ? &(*node)[key] : nullptr;
    return node != nullptr && node->is_string() ? node->get<std::string>() : stem();
  }

  // Returns the name of the model that NeMo's fine-tuning reads from a checkpoint, by run.model_train_name and the size
  // in run.name: "llama2_13b".
  std::string checkpoint_name() const {
    if (!root_.contains("run") || !root_["run"].is_object() || !root_["run"].contains("model_train_name")) return "";
    const Json& family = root_["run"]["model_train_name"];
    std::string size;
    for (const char c : recipe_name() + "_") {
      if (std::isdigit(static_cast<unsigned char>(c)) != 0)
        size += c;
      else if (c == 'b' && !size.empty())
        return family.is_string() ? family.get<std::string>() + "_" + size + "b" : "";
      else
        size.clear();
    }
    return "";
  }

  // Completes Megatron-Bridge's YAML and overrides, which change a recipe, by the recipe's own settings.
  void take_recipe() {
    const bool has_sizes = root_.contains("model") && root_["model"].is_object() &&
                           root_["model"].contains("num_layers") && root_["model"].contains("hidden_size");
    if (root_.contains("trainer") || has_sizes) return;
    for (const std::string& noun : not_modelled_by_name(recipe_name())) refuse_here(noun, recipe_name());
    // With --set training.precision, a recipe in fp8 is predicted in the precision that it says.
    if (settings_.refused.size() > settings_.refused.count("fp8")) return;
    std::optional<BridgeRecipe> recipe = bridge_recipe(recipe_name(), root_.contains("peft"));
    if (!recipe) return;
    if (!recipe->preset.empty()) settings_.values["model.preset"] = recipe->preset;
    // The user's tokenizer replaces the recipe's vocabulary.
    if (root_.contains("tokenizer")) recipe->settings.erase("tokenizer");
    merge(recipe->settings, root_);
    root_ = std::move(recipe->settings);
    is_recipe_ = true;
    settings_.ranks = recipe->gpus;
    settings_.ranks_from = "the recipe's name";
    settings_.notes.push_back("what nothing else says is as in Megatron-Bridge's recipe " + recipe->name);
  }
  static void merge(Json& into, const Json& from) {
    for (const auto& [key, value] : from.items())
      if (value.is_object() && into.contains(key) && into[key].is_object())
        merge(into[key], value);
      else
        into[key] = value;
  }

  // Takes "optional tp_overlap@model.ub_tp_comm_overlap_cfg: ub_cfg_…": a table of products in a file of its own.
  void take_defaults() {
    if (!root_.contains("defaults") || !root_["defaults"].is_array() || !root_.contains("model")) return;
    for (const Json& one : root_["defaults"]) {
      if (!one.is_object()) continue;
      for (const auto& [key, file] : one.items()) {
        const std::size_t at = key.find('@');
        if (at == std::string::npos || !file.is_string() || file == "" || !root_["model"].is_object()) continue;
        const std::string group = key.substr(key.rfind(' ', at) + 1, at - key.rfind(' ', at) - 1);
        const std::string key_of_model = key.substr(key.rfind('.') + 1);
        if (!key_of_model.ends_with("tp_comm_overlap_cfg")) continue;
        const std::string path = folder_ + group + "/" + file.get<std::string>() + ".yaml";
        const auto text = options_.read ? options_.read(path) : std::nullopt;
        if (text)
          root_["model"][key_of_model] = parse_yaml(*text, path).root;
        else
          near("defaults." + group, file, "its file is not there: " + std::string(kDefaultProducts));
      }
    }
  }

  void visit(const Json& node, const std::string& path) {
    for (const auto& [key, value] : node.items()) {
      const std::string here = path.empty() ? key : path + "." + key;
      // Sections of other models, and sections that do not affect training.
      if (key == "teacher" || key == "kd_config" || key == "exp_manager" || key == "hydra" || key == "defaults" ||
          key == "run")
        continue;
      if (key == "encoder" && value.is_object() && node.contains("decoder")) refuse_here("encoders", here);
      if (key == "bert_binary_head" || key == "bert_type") refuse_here("encoders", here);
      if (key == "retro" && value.is_object()) refuse_here("retrieval", here);
      if (key == "mm_cfg" || key == "vision_pretraining_type" || key == "patch_dim")
        refuse_here("image encoders", here);
      if ((key == "vision" || key == "unet_config" || key == "vision_transformer_config") && value.is_object())
        refuse_here("image encoders", here);
      if (key == "tokenizer" && value.is_object()) {
        take_tokenizer(value);
        continue;
      }
      if (key == "comm_overlap" && value.is_object()) has_comm_overlap_ = true;
      if (key == "peft" && !value.is_null()) take_adapters(here, value);
      if (key.ends_with("tp_comm_overlap_cfg") && value.is_object()) {
        settings_.values["overlap.tp_comm_overlap_cfg"] = overlaps_of_products(value);
        settings_.taken.push_back(here);
        continue;
      }
      if (key == "recompute_modules" && value.is_array()) {
        std::vector<std::string> modules;
        for (const Json& one : value)
          if (one.is_string()) modules.push_back(one);
        for (const auto& [module, effect] : settings_.take_recompute_modules(modules)) near(here, module, effect);
        continue;
      }
      if (value.is_object() && !is_near(key, here, value)) {
        visit(value, here);
        continue;
      }
      if (!value.is_null() && !value.is_object()) leaf(key, here, value);
    }
  }

  void take_adapters(const std::string& path, const Json& value) {
    if (value.is_object() && value.contains("peft_scheme") && !value["peft_scheme"].is_string()) return;
    settings_.values["training.frozen_base"] = true;
    near(path, value, "the passes of the frozen model are predicted, without those of the adapters");
  }

  bool is_near(const std::string& key, const std::string& path, const Json& value) {
    // A switch of an overlap mode that a scenario has is taken.
    const bool is_mode = std::any_of(megatron_rows().begin(), megatron_rows().end(), [&](const MegatronRow& row) {
      return row.is_switch && row.key == "overlap." + key;
    });
    for (const Near& one : near_keys())
      if (key == one.name && !is_mode) {
        const bool is_same =
            value == one.neutral || value.is_null() || (value.is_number() && one.neutral.is_null() && value == 0);
        if (!is_same) near(path, value, one.effect);
        return true;
      }
    return false;
  }

  void leaf(const std::string& key, const std::string& path, const Json& value) {
    if (take_special(key, path, value)) return settings_.taken.push_back(path);
    if (is_near(key, path, value)) return;
    for (const MegatronRow& row : megatron_rows()) {
      bool is_it = row.name() == key;
      for (const std::string& other : row.spellings) is_it = is_it || key == other;
      for (const Alias& alias : kAliases) is_it = is_it || (key == alias.name && row.key == alias.key);
      if (!is_it || row.key == "parallel.order" || row.key.find("rope_scaling_") != std::string::npos) continue;
      put(row, path, value);
      return settings_.taken.push_back(path);
    }
    settings_.ignored.push_back(path);
  }

  void put(const MegatronRow& row, const std::string& path, const Json& value) {
    auto& values = settings_.values;
    Json made = value;
    if (made.is_string()) {
      for (const auto& [word, ours] : row.words)
        if (made == word) made = ours;
      // 1e-5 without a point is a string in YAML.
      if (row.words.empty()) made = value_of_word(made.get<std::string>());
    }
    if (row.key == "parallel.virtual_pipeline_model_parallel_size" && made == 1) return;
    if ((row.key == "overlap.bucket_size" || row.key == "overlap.wgrad_deferral_limit") &&
        !(made.is_number_integer() && made > 0)) {
      if (row.key == "overlap.bucket_size")
        throw input_error(settings_.name + ":" + std::to_string(line_of(path)) + ": " + path +
                          ": expected a whole number of at least 1, or null, got " + value.dump());
      return;
    }
    // Two sections may have one key, as with seq_length; the model's counts.
    if (values.contains(row.key) && !path.starts_with("model")) return;
    values[row.key] = made;
  }

  bool take_special(const std::string& key, const std::string& path, const Json& value) {
    auto& values = settings_.values;
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
    } else if (key == "fp8") {  // NeMo's switch, beside the formats'
      is_fp8_ = is_on;
    } else if (key == "fp8_hybrid" || key == "fp8_e4m3") {
      if (is_on) nemo_format_ = key == "fp8_e4m3" ? "e4m3" : "hybrid";
    } else if (key == "fp4") {
      values["training.fp4_format"] = is_on ? "e2m1" : "none";
    } else if (key == "fp8_dot_product_attention" || key == "fp8_multi_head_attention") {
      if (is_on) refuse_here("attention in fp8", path);
    } else if (key == "hybrid_override_pattern" || key == "hybrid_layer_pattern") {
      if (is_on) refuse_here("Mamba layers", path);
    } else if (key == "precision" || key == "mixed_precision") {
      take_precision(path, value, word);
    } else if (key == "bf16") {
      if (is_on) values["training.precision"] = "bf16";
    } else if (key == "moe_router_force_load_balancing") {
      if (is_on) values["training.moe_expert_loads"] = "forced";
    } else if (key == "cuda_graph_scope" || key == "cuda_graph_modules") {
      for (const GraphModule module : values_of<GraphModule>())
        if (has(name_of(module))) graph_modules_.push_back(name_of(module));
    } else if (key == "cuda_graph_impl") {
      has_graphs_ = is_on;
      if (has("full_iteration")) graph_modules_.push_back(name_of(GraphModule::full_iteration));
    } else if (key == "pipeline_model_parallel_layout" && has("m")) {
      std::string without = word;
      std::erase(without, 'm');
      values["parallel.pipeline_model_parallel_layout"] = without;
    } else if (key == "num_nodes") {
      nodes_ = value;
    } else if (key == "devices" || key == "num_gpus_per_node" || key == "gpus_per_node") {
      devices_ = value;
    } else if (key == "normalization") {
      values["model.normalization"] = has("rms") || has("RMS") ? "RMSNorm" : "LayerNorm";
    } else if (key == "activation") {
      const bool is_gated = has("glu");
      values["model.swiglu"] = is_gated;
      if (is_gated && !has("swiglu")) near(path, value, "predicted with SwiGLU, which moves as many bytes");
      if (has("squared")) near(path, value, "predicted with GELU, which moves as many bytes");
    } else if (key == "gated_linear_unit" || key == "swiglu") {
      values["model.swiglu"] = is_on;
    } else if (key == "share_embeddings_and_output_weights") {
      values["model.untie_embeddings_and_output_weights"] = !is_on;
    } else if (key == "position_embedding_type") {
      values["model.position_embedding_type"] =
          word == "rope" || word == "yarn" || word == "mrope" ? "rope" : "learned_absolute";
      if (word != "rope" && word != "learned_absolute") near(path, value, "positions are rotary or learned");
    } else if (key == "override_vocab_size") {
      // The number is the padded size (NeMo, megatron_gpt_model.py).
      if (!value.is_number_integer()) return false;
      values["model.vocab_size"] = value;
      values["model.make_vocab_size_divisible_by"] = 1;
      overrides_vocabulary_ = true;
    } else if (key == "make_vocab_size_divisible_by" && overrides_vocabulary_) {
      // Stretto ignores the value.
    } else if (key == "grad_sync_dtype") {
      values["overlap.grad_reduce_in_fp32"] = word != "bf16" && word != "fp16" && word != "16";
    } else if (path == "mixed_precision.grad_reduce_in_fp32") {
      mixed_reduces_in_fp32_ = is_on;
    } else if (key == "fsdp_grad_reduce_dtype") {
      fsdp_reduces_in_fp32_ = word == "32" || has("fp32") || has("float32");
    } else if (key == "fsdp_sharding_strategy") {
      fsdp_strategy_ = word;
    } else if (key == "bucket_cap_mb" && path.ends_with("optim.bucket_cap_mb")) {
      bucket_mb_ = value;
    } else if (key == "betas" && value.is_array() && value.size() == 2) {
      values["training.adam_beta1"] = value[0];
      values["training.adam_beta2"] = value[1];
    } else if (key == "name" && path.ends_with("optim.name")) {
      values["parallel.use_distributed_optimizer"] = has("distributed");
      is_apex_ = has("distributed_fused");
    } else if (key == "attention_backend") {
      if (has("flash")) settings_.profile = "nemo-dgxc-flash2";
      values["training.attention_backend"] = has("unfused") || has("local") ? "unfused" : "fused";
    } else if (key == "fsdp" || key == "use_torch_fsdp2" || key == "use_megatron_fsdp") {
      is_fsdp_ = is_fsdp_ || is_on;
    } else if (key == "NVTE_FUSED_ATTN") {
      if (!is_on) settings_.profile = "nemo-dgxc-flash2";
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

  void take_precision(const std::string& path, const Json& value, const std::string& word) {
    for (const auto& [key, made] : low_precision_of(word)) settings_.values[key] = made;
    const bool is_16 = word == "16" || word.find("fp16") != std::string::npos || word.starts_with("16");
    // Megatron-Bridge's named precisions reduce in f32 and win over `ddp` (mixed_precision.py:185).
    if (path == "mixed_precision") mixed_reduces_in_fp32_ = true;
    settings_.values["training.precision"] = word.starts_with("32") || word == "fp32" ? "fp32" : "bf16";
    if (is_16) near(path, value, "predicted as bf16, which takes as long");
  }

  void take_tokenizer(const Json& tokenizer) {
    // The type of one of Megatron's own tokenizers determines the vocabulary; for others the model does.
    for (const char* key :
         {"tokenizer_model", "pretrained_model_name", "model_name", "type", "tokenizer_type", "model"})
      if (tokenizer.contains(key) && tokenizer[key].is_string())
        settings_.vocabulary_hints += tokenizer[key].get<std::string>() + "\n";
    if (tokenizer.contains("vocab_size") && tokenizer["vocab_size"].is_number_integer())
      settings_.values.emplace("model.vocab_size", tokenizer["vocab_size"]);
  }

  // ---- the meaning of absent keys of a recipe ----

  void finish() {
    auto& values = settings_.values;
    const bool has_sizes = values.contains("model.num_layers") && values.contains("model.hidden_size");
    settings_.vocabulary_hints += recipe_name() + "\n" + stem() + "\n";
    if (!has_sizes && settings_.refused.empty())
      if ((add_shape_by_name(recipe_name(), settings_) || add_shape_by_name(checkpoint_name(), settings_) ||
           add_shape_by_name(stem(), settings_)) &&
          !is_recipe_)
        settings_.notes.push_back(
            "the sizes of the model are those that its name says; the recipe or checkpoint that has them is not here");
    const bool is_whole = has_sizes || is_recipe_ || root_.contains("trainer");
    finish_layout(is_whole);
    finish_experts();
    finish_gradients(is_whole);
    finish_model();
    settings_.finish_recompute();
    if (is_fp8_) values.emplace("training.fp8_format", nemo_format_);
    if (nodes_.is_number_integer() || devices_.is_number_integer()) {
      settings_.ranks = std::max<std::int64_t>(1, nodes_.is_number_integer() ? nodes_.get<std::int64_t>() : 1) *
                        std::max<std::int64_t>(1, devices_.is_number_integer() ? devices_.get<std::int64_t>() : 8);
      settings_.ranks_from = "num_nodes and devices";
    }
  }

  // CUDA graphs of parts of a layer, and the profile of models with experts, whose host issues every other kernel.
  void finish_experts() {
    const bool has_experts =
        settings_.values.contains("model.preset") || settings_.whole("model.num_moe_experts", 0) > 0;
    if (has_experts && !root_.contains("trainer") && settings_.profile == "nemo-dgxc")
      settings_.profile = "megatron-bridge-moe";
    if (has_graphs_ && has_experts && !graph_modules_.empty())
      settings_.values["training.cuda_graph_modules"] = graph_modules_;
    else if (has_graphs_)
      near("model.cuda_graph_impl", true, "the host issues operations one by one");
  }

  void finish_layout(bool is_whole) {
    auto& values = settings_.values;
    const std::int64_t tp = settings_.whole("parallel.tensor_model_parallel_size", 1),
                       cp = settings_.whole("parallel.context_parallel_size", 1);
    const bool is_interleaved = settings_.whole("parallel.virtual_pipeline_model_parallel_size", 1) > 1;
    if (is_fsdp_) {
      values.emplace("parallel.data_parallel_sharding_strategy",
                     fsdp_strategy_ == "grad" ? "optim_grads" : "optim_grads_params");
      if (fsdp_strategy_ == "hybrid")
        near("model.fsdp_sharding_strategy", fsdp_strategy_, "all data-parallel ranks share the parameters");
      values["overlap.fsdp_comm_overlap"] = true;
      for (const char* key : {"overlap.overlap_grad_reduce", "overlap.align_grad_reduce",
                              "overlap.overlap_param_gather", "overlap.align_param_gather"})
        values[key] = false;
    } else {
      values.erase("parallel.data_parallel_sharding_strategy");
    }
    if (tp <= 1) values["parallel.sequence_parallel"] = false;
    // The defaults are CommOverlapConfig's (comm_overlap.py:413-583), else those of the configuration's classes.
    if (has_comm_overlap_ && !is_fsdp_) {
      values.emplace("overlap.overlap_grad_reduce", true);
      values.emplace("overlap.overlap_param_gather", true);
      values.emplace("overlap.align_param_gather", is_interleaved);
      values.emplace("overlap.bucket_size", std::int64_t{128} << 20);
      values.emplace("overlap.tp_comm_overlap", false);
      values.emplace("overlap.overlap_p2p_comm", is_interleaved);
    } else if (is_whole) {
      for (const char* key : {"parallel.sequence_parallel", "overlap.overlap_grad_reduce",
                              "overlap.overlap_param_gather", "overlap.align_param_gather", "overlap.tp_comm_overlap"})
        values.emplace(key, false);
      values.emplace("overlap.overlap_p2p_comm", false);
    }
    // DistributedInitConfig's default (Megatron-Bridge, training/setup.py:616), which acts with stages.
    if (values.contains("overlap.overlap_grad_reduce"))
      values.emplace("overlap.align_grad_reduce", settings_.is("overlap.overlap_grad_reduce", true) &&
                                                      settings_.whole("parallel.pipeline_model_parallel_size", 1) > 1);
    if (tp <= 1 || settings_.is("parallel.sequence_parallel", false)) values["overlap.tp_comm_overlap"] = false;
    if (settings_.is("overlap.tp_comm_overlap", false)) values.erase("overlap.tp_comm_overlap_cfg");
    if (!is_interleaved) values["overlap.overlap_p2p_comm"] = false;
    values["overlap.batch_p2p_comm"] = !settings_.is("overlap.overlap_p2p_comm", true);
    if (cp <= 1)
      for (const char* key : {"parallel.cp_comm_type", "parallel.hierarchical_context_parallel_sizes"})
        values.erase(key);
    // The launcher sets the variable (nemo_launcher/core/stages.py:580).
    if ((tp > 1 || cp > 1) && !is_fsdp_ && root_.contains("trainer")) {
      values.emplace("cluster.cuda_device_max_connections", 1);
      settings_.notes.push_back("CUDA_DEVICE_MAX_CONNECTIONS is 1, as NeMo's launcher sets it");
    }
  }

  // Sets the type of gradients, which frameworks sum in the type in which they reduce: NeMo's default is f32
  // (megatron_gpt_model.py, setup_mcore_distributed_parallel); Megatron-Bridge's mixed precision decides, and without
  // one the type is that of parameters.
  void finish_gradients(bool is_whole) {
    auto& values = settings_.values;
    const char* key = "overlap.grad_reduce_in_fp32";
    const bool is_nemo = root_.contains("trainer");
    if (is_fsdp_ && fsdp_reduces_in_fp32_)
      values[key] = *fsdp_reduces_in_fp32_;
    else if (mixed_reduces_in_fp32_)
      values[key] = *mixed_reduces_in_fp32_;
    else if (is_whole)
      values.emplace(key, is_nemo || is_fsdp_);
    if (bucket_mb_.is_number_integer() && is_apex_ && !is_fsdp_ && bucket_mb_ > 0 && bucket_mb_ < (1 << 20))
      values.emplace("overlap.bucket_size",
                     bucket_mb_.get<std::int64_t>() * (1 << 20) / (settings_.is(key, true) ? 4 : 2));
    if (settings_.is("training.frozen_base", true))
      settings_.profile = "nemo-dgxc-lora";
    else if (settings_.is(key, true) && !is_fsdp_ && settings_.profile == "nemo-dgxc")
      settings_.profile = "nemo-fp32-grads";
  }

  void finish_model() {
    auto& values = settings_.values;
    if (!settings_.is("model.position_embedding_type", "rope"))
      for (const char* key : {"rotary_base", "rotary_seq_len_interpolation_factor", "use_rope_scaling"})
        values.erase(std::string("model.") + key);
    // NeMo's encoder_seq_length is the length of messages between stages and of positions; samples have the length of
    // the data.
    if (const Json* length = data_length();
        length != nullptr && length->get<std::int64_t>() > 0 && *length < settings_.whole("model.seq_length", 0)) {
      settings_.notes.push_back("seq_length is that of model.data, " + length->dump());
      values["model.seq_length"] = *length;
    }
    const std::int64_t length = settings_.whole("model.seq_length", 0);
    if (settings_.whole("model.max_position_embeddings", length) < length)
      values.erase("model.max_position_embeddings");
  }

  const Json* data_length() const {
    const Json* node = root_.contains("trainer") ? &root_ : nullptr;
    for (const char* key : {"model", "data", "seq_length"})
      node = node != nullptr && node->is_object() && node->contains(key) ? &(*node)[key] : nullptr;
    return node != nullptr && node->is_number_integer() ? node : nullptr;
  }

  const ImportOptions& options_;
  Yaml yaml_;
  Json& root_;
  std::string folder_;
  Settings settings_;
  Json nodes_, devices_;
  bool is_fp8_ = false;                 // NeMo's switch
  std::string nemo_format_ = "hybrid";  // with it
  bool is_fsdp_ = false, has_comm_overlap_ = false, overrides_vocabulary_ = false, is_recipe_ = false, is_apex_ = false;
  std::optional<bool> mixed_reduces_in_fp32_, fsdp_reduces_in_fp32_;
  std::string fsdp_strategy_;
  bool has_graphs_ = false;
  std::vector<std::string> graph_modules_;
  Json bucket_mb_;
};

// Returns MODEL_ARGS and ENV_VARS of Megatron-LM's functional tests as the command line that they become.
CommandLine command_line_of_test(const Yaml& yaml, const std::string& name) {
  CommandLine line;
  line.program = "pretrain_gpt.py";
  // Folders are those of models (tests/test_utils/recipes).
  constexpr std::pair<const char*, const char*> kPrograms[] = {{"/bert/", "pretrain_bert.py"},
                                                               {"/t5/", "pretrain_t5.py"},
                                                               {"/hybrid/", "pretrain_hybrid.py"},
                                                               {"/multimodal-llava/", "pretrain_vlm.py"}};
  for (const auto& [folder, program] : kPrograms)
    if (name.find(folder) != std::string::npos) line.program = program;
  line.processes = 8;  // GPUS_PER_NODE (tests/functional_tests/shell_test_utils/_run_training.sh:202)
  for (const auto& [name, value] : yaml.root["MODEL_ARGS"].items()) {
    if (!name.starts_with("--") || value == false) continue;
    Flag flag{name, {}, 1, {}};
    if (const auto found = yaml.lines.find("MODEL_ARGS." + name); found != yaml.lines.end()) flag.line = found->second;
    const auto add = [&](const Json& one) {
      if (one == true) return;
      // "[2 2]" becomes two words.
      std::string text = one.is_string() ? one.get<std::string>() : one.dump();
      std::replace_if(
          text.begin(), text.end(), [](char c) { return c == '[' || c == ']' || c == ','; }, ' ');
      if (!one.is_string() || flag.name == "--pipeline-model-parallel-layout" || flag.name == "--moe-layer-freq")
        return flag.values.push_back(one.is_string() ? one.get<std::string>() : one.dump());
      for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        flag.values.push_back(text.substr(at, end - at));
        at = end;
      }
    };
    if (value.is_array())
      for (const Json& one : value) add(one);
    else
      add(value);
    line.flags.push_back(std::move(flag));
  }
  if (yaml.root.contains("ENV_VARS") && yaml.root["ENV_VARS"].is_object())
    for (const auto& [name, value] : yaml.root["ENV_VARS"].items())
      line.exports[name] = value.is_string() ? value.get<std::string>() : value.dump();
  return line;
}

}  // namespace

Json overlaps_of_products(const Json& table) {
  Json made = Json::object();
  for (const auto& [product, value] : table.items()) {
    if (!value.is_object() || !value.contains("method") || !value["method"].is_string()) continue;
    const Json& method = value["method"];
    Json one = {{"method", method}};
    if (method == "ring_exchange" && value.contains("aggregate"))
      if (const Json& aggregate = value["aggregate"]; aggregate == true || aggregate == 1) one["aggregate"] = true;
    if (method == "pipeline" && value.contains("num_splits") && value["num_splits"].is_number_integer())
      one["num_splits"] = value["num_splits"];
    made[product] = one;
  }
  return made;
}

Translation from_recipe(std::string_view text, const std::string& name, const ImportOptions& options) {
  Yaml yaml = parse_yaml(text, name);
  if (!yaml.root.is_object()) throw input_error(name + ": expected \"key: value\" lines of YAML, got none");
  if (yaml.root.contains("MODEL_ARGS") && yaml.root["MODEL_ARGS"].is_object())
    return from_megatron_flags(command_line_of_test(yaml, name), name, options);
  // A file that has only overlap settings describes no model.
  bool is_overlap = true;
  for (const auto& [key, value] : yaml.root.items()) is_overlap = is_overlap && !value.is_structured();
  if (is_overlap && !yaml.root.contains("num_layers")) return from_bridge(text, name);
  return from_yaml(std::move(yaml), name, options, "");
}

Settings settings_of_recipe(Yaml yaml, const std::string& name, const ImportOptions& options) {
  return Recipe(std::move(yaml), name, options).run();
}

Translation from_yaml(Yaml yaml, const std::string& name, const ImportOptions& options, const std::string& folder) {
  return scenario_of(Recipe(std::move(yaml), name, options, folder).run(), options);
}

}  // namespace stretto
