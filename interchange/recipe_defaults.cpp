#include <algorithm>

#include "base/error.hpp"
#include "interchange/recipe_settings.hpp"
#include "model/layout.hpp"

namespace stretto {

using Json = nlohmann::json;

namespace {

// CUDA graphs of parts of a layer, and the profile of models with experts, whose host issues every other kernel.
void finish_experts(RecipeSettings& recipe) {
  const bool has_experts =
      recipe.settings.values.contains("model.preset") || recipe.settings.whole("model.num_moe_experts", 0) > 0;
  std::string& profile = recipe.settings.profile;
  const bool is_measured = profile == "megatron-bridge";
  if (has_experts && !recipe.facts.is_nemo && (profile == "nemo-dgxc" || is_measured))
    profile = "megatron-bridge-moe";
  else if (is_measured && recipe.facts.is_fsdp)
    profile = "megatron-bridge-fsdp";
  if (recipe.facts.has_graphs && (has_experts || is_measured) && !recipe.facts.graph_modules.empty())
    recipe.settings.values["training.cuda_graph_modules"] = recipe.facts.graph_modules;
  else if (recipe.facts.has_graphs)
    recipe.near("model.cuda_graph_impl", true, "the host issues operations one by one");
}

void finish_layout(RecipeSettings& recipe, bool is_whole) {
  auto& values = recipe.settings.values;
  const std::int64_t tp = recipe.settings.whole("parallel.tensor_model_parallel_size", 1),
                     cp = recipe.settings.whole("parallel.context_parallel_size", 1);
  const char* virtual_stages = "parallel.virtual_pipeline_model_parallel_size";
  // A command may change the sizes of a recipe's groups. The recipe's list of layers a stage is for the recipe's sizes.
  const char* layout_key = "parallel.pipeline_model_parallel_layout";
  if (const Json* layout = recipe.settings.find(layout_key);
      recipe.facts.is_recipe && layout != nullptr && layout->is_string() &&
      (!recipe.settings.origins.contains(layout_key) || recipe.settings.origins[layout_key].line == 0))
    try {
      const std::int64_t chunks = std::ssize(parse_layout(layout->get<std::string>()));
      const std::int64_t asked =
          recipe.settings.whole("parallel.pipeline_model_parallel_size", 1) * recipe.settings.whole(virtual_stages, 1);
      if (chunks != asked) {
        values.erase(layout_key);
        recipe.settings.assumptions.emplace_back(
            layout_key, "the recipe's layout of stages falls away: it has " + std::to_string(chunks) + " chunks");
      }
    } catch (const Error&) {  // the scenario's reader reports the fault
    }
  if (recipe.settings.whole("parallel.pipeline_model_parallel_size", 1) <= 1 &&
      recipe.settings.whole(virtual_stages, 1) > 1) {
    values.erase(virtual_stages);
    recipe.settings.assumptions.emplace_back(virtual_stages,
                                             "the recipe's virtual stages fall away: there is one pipeline stage");
  }
  const bool is_interleaved = recipe.settings.whole(virtual_stages, 1) > 1;
  const char* gathers_with_step = "overlap.overlap_param_gather_with_optimizer_step";
  if (!is_interleaved && recipe.settings.is(gathers_with_step, true)) {
    values.erase(gathers_with_step);
    recipe.settings.assumptions.emplace_back(
        gathers_with_step,
        "the recipe's overlap_param_gather_with_optimizer_step falls away: it acts with virtual stages alone");
  }
  if (recipe.facts.is_fsdp) {
    values.emplace("parallel.data_parallel_sharding_strategy",
                   recipe.facts.fsdp_strategy == "grad" ? "optim_grads" : "optim_grads_params");
    if (recipe.facts.fsdp_strategy == "hybrid")
      recipe.near("model.fsdp_sharding_strategy", recipe.facts.fsdp_strategy,
                  "all data-parallel ranks share the parameters");
    values["overlap.fsdp_comm_overlap"] = true;
    for (const char* key : {"overlap.overlap_grad_reduce", "overlap.align_grad_reduce", "overlap.overlap_param_gather",
                            "overlap.align_param_gather"})
      values[key] = false;
  } else {
    values.erase("parallel.data_parallel_sharding_strategy");
  }
  if (tp <= 1) values["parallel.sequence_parallel"] = false;
  // The defaults are CommOverlapConfig's (comm_overlap.py:413-583), else those of the configuration's classes.
  if (recipe.facts.has_comm_overlap && !recipe.facts.is_fsdp) {
    values.emplace("overlap.overlap_grad_reduce", true);
    values.emplace("overlap.overlap_param_gather", true);
    values.emplace("overlap.align_param_gather", is_interleaved);
    values.emplace("overlap.bucket_size", std::int64_t{128} << 20);
    values.emplace("overlap.tp_comm_overlap", false);
    values.emplace("overlap.overlap_p2p_comm", is_interleaved);
  } else if (is_whole) {
    for (const char* key : {"parallel.sequence_parallel", "overlap.overlap_grad_reduce", "overlap.overlap_param_gather",
                            "overlap.align_param_gather", "overlap.tp_comm_overlap"})
      values.emplace(key, false);
    values.emplace("overlap.overlap_p2p_comm", false);
  }
  // DistributedInitConfig's default (Megatron-Bridge, training/setup.py:616), which acts with stages.
  if (values.contains("overlap.overlap_grad_reduce"))
    values.emplace("overlap.align_grad_reduce",
                   recipe.settings.is("overlap.overlap_grad_reduce", true) &&
                       recipe.settings.whole("parallel.pipeline_model_parallel_size", 1) > 1);
  if (tp <= 1 || recipe.settings.is("parallel.sequence_parallel", false)) values["overlap.tp_comm_overlap"] = false;
  if (recipe.settings.is("overlap.tp_comm_overlap", false)) values.erase("overlap.tp_comm_overlap_cfg");
  if (recipe.settings.is("overlap.overlap_param_gather", false))
    values.erase("overlap.overlap_param_gather_with_optimizer_step");
  // Without userbuffers TransformerEngine gathers the input for the weight gradient during the data gradient's product,
  // and scatters that one's result during the weight gradient's (pytorch/module/linear.py of v2.9, async_op = True).
  if (recipe.settings.profile == "megatron-bridge" && !values.contains("model.preset") && tp > 1 &&
      recipe.settings.is("parallel.sequence_parallel", true) && recipe.settings.is("overlap.tp_comm_overlap", false)) {
    values["overlap.tp_comm_overlap"] = true;
    values["overlap.tp_comm_overlap_ag"] = values["overlap.tp_comm_overlap_rs"] = false;
    recipe.settings.assumptions.emplace_back(
        "overlap.tp_comm_overlap",
        "tp_comm_overlap is false: TransformerEngine gathers and scatters during GEMMs of the backward pass all the "
        "same");
  }
  if (!is_interleaved) values["overlap.overlap_p2p_comm"] = false;
  values["overlap.batch_p2p_comm"] = !recipe.settings.is("overlap.overlap_p2p_comm", true);
  if (cp <= 1)
    for (const char* key : {"parallel.cp_comm_type", "parallel.hierarchical_context_parallel_sizes"}) values.erase(key);
  // The launcher sets the variable (nemo_launcher/core/stages.py:580).
  if ((tp > 1 || cp > 1) && !recipe.facts.is_fsdp && recipe.facts.is_nemo) {
    values.emplace("cluster.cuda_device_max_connections", 1);
    recipe.settings.assumptions.emplace_back("cluster.cuda_device_max_connections",
                                             "CUDA_DEVICE_MAX_CONNECTIONS is 1, as NeMo's launcher sets it");
  }
}

// Sets the type of gradients, which frameworks sum in the type in which they reduce: NeMo's default is f32
// (megatron_gpt_model.py, setup_mcore_distributed_parallel); Megatron-Bridge's mixed precision decides, and without
// one the type is that of parameters.
void finish_gradients(RecipeSettings& recipe, bool is_whole) {
  auto& values = recipe.settings.values;
  const char* key = "overlap.grad_reduce_in_fp32";
  const bool is_nemo = recipe.facts.is_nemo;
  if (recipe.facts.is_fsdp && recipe.facts.fsdp_reduces_in_fp32)
    values[key] = *recipe.facts.fsdp_reduces_in_fp32;
  else if (recipe.facts.mixed_reduces_in_fp32)
    values[key] = *recipe.facts.mixed_reduces_in_fp32;
  else if (is_whole)
    values.emplace(key, is_nemo || recipe.facts.is_fsdp);
  if (recipe.facts.bucket_mb.is_number_integer() && recipe.facts.is_apex && !recipe.facts.is_fsdp &&
      recipe.facts.bucket_mb > 0 && recipe.facts.bucket_mb < (1 << 20))
    values.emplace("overlap.bucket_size",
                   recipe.facts.bucket_mb.get<std::int64_t>() * (1 << 20) / (recipe.settings.is(key, true) ? 4 : 2));
  if (recipe.settings.is("training.frozen_base", true))
    recipe.settings.profile = "nemo-dgxc-lora";
  else if (recipe.settings.is(key, true) && !recipe.facts.is_fsdp &&
           (recipe.settings.profile == "nemo-dgxc" || recipe.settings.profile == "megatron-bridge"))
    recipe.settings.profile = "nemo-fp32-grads";
}

const Json* data_length(const RecipeFacts& facts, const Json& root) {
  const Json* node = facts.is_nemo ? &root : nullptr;
  for (const char* key : {"model", "data", "seq_length"})
    node = node != nullptr && node->is_object() && node->contains(key) ? &(*node)[key] : nullptr;
  return node != nullptr && node->is_number_integer() ? node : nullptr;
}

void finish_model(RecipeSettings& recipe, const Json& root) {
  auto& values = recipe.settings.values;
  if (!recipe.settings.is("model.position_embedding_type", "rope"))
    for (const char* key : {"rotary_base", "rotary_seq_len_interpolation_factor", "use_rope_scaling"})
      values.erase(std::string("model.") + key);
  // NeMo's encoder_seq_length is the length of messages between stages and of positions; samples have the length of
  // the data.
  if (const Json* length = data_length(recipe.facts, root);
      length != nullptr && length->get<std::int64_t>() > 0 && *length < recipe.settings.whole("model.seq_length", 0)) {
    recipe.settings.assumptions.emplace_back("model.seq_length", "seq_length is that of model.data, " + length->dump());
    values["model.seq_length"] = *length;
  }
  const std::int64_t length = recipe.settings.whole("model.seq_length", 0);
  if (recipe.settings.whole("model.max_position_embeddings", length) < length)
    values.erase("model.max_position_embeddings");
}

}  // namespace

void complete_recipe(RecipeSettings& recipe, const Json& root, bool is_whole) {
  finish_layout(recipe, is_whole);
  finish_experts(recipe);
  finish_gradients(recipe, is_whole);
  finish_model(recipe, root);
  recipe.settings.finish_recompute();
  if (recipe.facts.is_fp8) recipe.settings.values.emplace("training.fp8_format", recipe.facts.nemo_format);
  const Json &nodes = recipe.facts.nodes, &devices = recipe.facts.devices;
  if (!nodes.is_number_integer() && !devices.is_number_integer()) return;
  recipe.settings.ranks = std::max<std::int64_t>(1, nodes.is_number_integer() ? nodes.get<std::int64_t>() : 1) *
                          std::max<std::int64_t>(1, devices.is_number_integer() ? devices.get<std::int64_t>() : 8);
  recipe.settings.ranks_from = "num_nodes and devices";
}

}  // namespace stretto
