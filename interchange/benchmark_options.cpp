#include "interchange/benchmark_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/command_line.hpp"
#include "interchange/megatron.hpp"
#include "interchange/shell_expand.hpp"

namespace stretto {
namespace {

// Options as "name:letters", with a sign for how many words follow one: "!" none, "?" at most one, "*" any number.
// Acting ones change a step; the last two are of release 0.2.
constexpr const char* kActing =
    "model_family_name:m model_recipe_name:mr use_recipes! num_gpus:ng hidden_size num_layers num_moe_experts "
    "pipeline_model_parallel_layout first_k_dense_replace task global_batch_size:gb micro_batch_size:mb seq_length:sl "
    "tensor_model_parallel_size:tp pipeline_model_parallel_size:pp context_parallel_size:cp "
    "virtual_pipeline_model_parallel_size:vp expert_model_parallel_size:ep expert_tensor_parallel_size:et? "
    "custom_env_vars:ce env:E gpu:g compute_dtype:c use_tokendrop use_megatron_fsdp nccl_ub cuda_graph_impl "
    "cuda_graph_scope moe_a2a_overlap recompute_num_layers:rl activation_offload_layers:ol recompute_modules "
    "moe_flex_dispatcher_backend deterministic! config_variant:cv data model_name model_size:s";
// Clusters, files, logs, checks and the course of training; names that begin with kubeflow_ and dgxc_ are like these.
// The tokenizer leaves the model's vocabulary (use_tokenizer_vocab_size False), and run_script.py does not hand on
// optimizer_type.
constexpr const char* kIdle =
    "domain nemo_home:nh detach max_retries dryrun:d! max_steps:ms distributed_timeout_minutes lr min_lr warmup_iters "
    "pretrained_checkpoint save_dir load_dir save_interval most_recent_k c4_root c4_train_shards* dataset_paths* "
    "dataset_root index_mapping_dir dataset_name packed_sequence! head_only! diffusion_dataset_path tokenizer_type "
    "tokenizer_model vocab_size hf_token:hf offline! account:a partition:p time_limit:t preempt_time gpus_per_node:gn "
    "container_image:i custom_mounts:cm custom_srun_args:cs custom_bash_cmds:cb* gres additional_slurm_params "
    "packager enable_pct_binding csp optimizer_type enable_vboost:vb lock_gpu_freq:lgc peak_mem_clk:lmc "
    "enable_nsys:en! export_nsys_sqlite! pytorch_profiler:pyp profiling_start_step profiling_stop_step "
    "record_memory_history:mh profiling_gpu_metrics! profiling_ranks nsys_trace nsys_extra_args wandb_key:wdk "
    "wandb_project_name:wdp wandb_entity_name:wde wandb_experiment_name:wdj wandb_save_dir:wds wandb_prj_name "
    "wandb_exp_name log_dir:l save_config_filepath dump_env! list_config_variants! is_long_convergence_run! "
    "retry_on_testing_failure! golden_values_path timing_threshold skip_first_percent_time correlation_threshold "
    "high_loss_tolerance medium_loss_tolerance low_loss_tolerance final_loss_tolerance max_outlier_ratio "
    "outlier_threshold skip_first_percent_loss memory_threshold eval_time_start_step eval_time_end_step";

struct BenchmarkOption {
  std::string name, letters;
  char takes = '1';
  bool acts = false;
};

const std::vector<BenchmarkOption>& benchmark_option_table() {
  static const std::vector<BenchmarkOption> options = [] {
    std::vector<BenchmarkOption> all;
    for (const bool acts : {true, false}) {
      std::istringstream words(acts ? kActing : kIdle);
      for (std::string word; words >> word;) {
        BenchmarkOption option;
        option.acts = acts;
        if (std::string_view("!?*").find(word.back()) != std::string_view::npos) {
          option.takes = word.back();
          word.pop_back();
        }
        option.name = word.substr(0, word.find(':'));
        if (option.name != word) option.letters = word.substr(option.name.size() + 1);
        all.push_back(std::move(option));
      }
    }
    return all;
  }();
  return options;
}

// Returns the option that a word names: by its letters, its name, or a beginning that no other name has; nullptr for
// none.
const BenchmarkOption* option_of(const std::string& word) {
  const bool is_long = word.starts_with("--");
  const std::string plain = word.substr(is_long ? 2 : 1);
  const BenchmarkOption* beginning = nullptr;
  int beginnings = 0;
  for (const BenchmarkOption& option : benchmark_option_table()) {
    if (plain == (is_long ? option.name : option.letters)) return &option;
    if (!is_long || !option.name.starts_with(plain)) continue;
    beginning = &option;
    ++beginnings;
  }
  static const BenchmarkOption kOfCluster = {"kubeflow", "", '1', false};
  if (is_long && (plain.starts_with("kubeflow_") || plain.starts_with("dgxc_"))) return &kOfCluster;
  return beginnings == 1 ? beginning : nullptr;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
}

std::string nearest_option(const std::string& word) {
  std::vector<std::string> known;
  for (const BenchmarkOption& option : benchmark_option_table()) known.push_back("--" + option.name);
  return nearest_spelling(word, known);
}

}  // namespace

BenchmarkOptions::BenchmarkOptions(const CommandLine& line, const std::string& name) : name_(name) {
  const std::vector<std::string>& words = line.words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_option(words[i])) {
      if (words[i].find('=') != std::string::npos && shell::unknown_names(words[i]).empty())
        overrides_.push_back(words[i]);
      continue;
    }
    const std::size_t equal = words[i].find('=');
    const std::string spelling = words[i].substr(0, equal);
    const BenchmarkOption* option = option_of(spelling);
    if (option == nullptr) {
      const std::string nearest = nearest_option(spelling);
      throw input_error(name_ + ": " + in_quotes(spelling) +
                        ": expected an option of Megatron-Bridge's setup_experiment.py" +
                        (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
    }
    std::string text;
    bool has_value = equal != std::string::npos;
    if (has_value) text = words[i].substr(equal + 1);
    while (!has_value && option->takes != '!' && i + 1 < words.size() && !is_option(words[i + 1])) {
      text += (text.empty() ? "" : " ") + words[++i];
      has_value = option->takes != '*';
    }
    (option->acts ? taken_ : ignored_).push_back(spelling);
    if (!option->acts) continue;
    const auto variables = shell::unknown_names(text);
    if (!variables.empty()) {
      unset_[option->name] = *variables.begin();
      continue;
    }
    // Release 0.2 says --model_name for the family.
    const std::string key = option->name == "model_name" ? "model_family_name" : option->name;
    Value& value = values_[key];
    // Both options of the environment may be repeated.
    const bool is_more = (key == "env" || key == "custom_env_vars") && !value.text.empty();
    value = {is_more ? value.text + "," + text : text, spelling};
  }
}

std::string BenchmarkOptions::written(const std::string& option) const {
  const auto found = values_.find(option);
  if (found == values_.end()) return "--" + option;
  return found->second.spelling + (found->second.text.empty() ? "" : " " + found->second.text);
}

void BenchmarkOptions::fail(const std::string& option, const std::string& message) const {
  throw input_error(name_ + ": " + written(option) + ": " + message);
}

std::optional<std::string> BenchmarkOptions::text(const std::string& option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? std::nullopt : std::optional(found->second.text);
}

std::optional<std::int64_t> BenchmarkOptions::count(const std::string& option) const {
  const auto word = text(option);
  if (!word) return std::nullopt;
  const nlohmann::json number = value_of_word(*word);
  if (!number.is_number_integer() || number < 1 || number > (1 << 24))
    fail(option, "expected a whole number of at least 1");
  return number.get<std::int64_t>();
}

std::optional<bool> BenchmarkOptions::is_on(const std::string& option) const {
  auto word = text(option);
  if (!word) return std::nullopt;
  for (char& c : *word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* yes : {"true", "1", "t", "yes", "y"})
    if (*word == yes) return true;
  for (const char* no : {"false", "0", "f", "no", "n"})
    if (*word == no) return false;
  fail(option, "expected true or false");
}

std::optional<std::vector<std::string>> BenchmarkOptions::words(const std::string& option) const {
  const auto word = text(option);
  if (!word) return std::nullopt;
  std::vector<std::string> parts(1);
  for (const char c : *word)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

}  // namespace stretto
