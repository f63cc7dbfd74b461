#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "tests/random_layout.hpp"

namespace stretto::testing {

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
      // The course of the learning rate; a drawn layout trains two steps of it.
      "training.lr_decay_style", "training.lr_wsd_decay_iters", "training.lr_wsd_decay_style",
      // Files, and the timeout for a hang.
      "training.data", "training.data_weights", "training.validation_data", "training.eval_interval",
      "training.eval_iters", "training.save_retain_interval", "training.grad_norm_skip_threshold", "training.load",
      "training.checkpoint_dir", "training.checkpoint_interval", "training.timeout_s", "training.moe_expert_loads_file",
      "training.document_lengths_file", "training.global_batch_documents",
      // Sums depend on how buckets are cut, as NCCL's do.
      "training.round_partial_sums",
      // Acts only in predictions on published GPUs.
      "training.cuda_graph_modules", "training.cuda_graph_scope", "training.fp8_dot_product_attention",
      "training.use_transformer_engine_op_fuser",
      // Has one scale a tensor, and is predicted alone.
      "training.main_params_dtype",
      // Frozen runs have nothing to compare with; frozen_base_test.cpp has layouts of its own.
      "training.frozen_base",
      // Not free of the layout, to the bit; random_layout_in_codes() draws most of them.
      "training.fp8_format", "training.fp8_recipe", "training.fp8_margin", "training.fp8_amax_history_len",
      "training.fp8_amax_compute_algo", "training.fp8_wgrad", "training.tp_only_amax_red",
      "training.first_last_layers_bf16", "training.num_layers_at_start_in_bf16", "training.num_layers_at_end_in_bf16",
      "training.reuse_grad_buf_for_mxfp8_param_ag", "training.fp4_format", "training.fp4_recipe",
      "training.fp4_param_gather", "training.fp8_transposes", "training.fp8", "training.fp4",
      "training.moe_dispatch_fwd_dtype", "training.moe_combine_bwd_dtype",
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

}  // namespace stretto::testing
