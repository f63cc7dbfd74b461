#include "interchange/torchtitan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/formats.hpp"
#include "interchange/model_shapes.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

Json json_of(const TomlNode& node) {
  struct Visit {
    Json operator()(bool value) const { return value; }
    Json operator()(std::int64_t value) const { return value; }
    Json operator()(double value) const { return value; }
    Json operator()(const std::string& value) const { return value; }
    Json operator()(const TomlNode::Array& array) const {
      Json list = Json::array();
      for (const TomlNode& one : array) list.push_back(json_of(one));
      return list;
    }
    Json operator()(const TomlNode::Table& table) const {
      Json map = Json::object();
      for (const auto& [key, value] : table) map[key] = json_of(value);
      return map;
    }
  };
  return std::visit(Visit{}, node.data);
}

// Returns 64 for a comment "a preset for 64 A100 GPUs".
std::optional<std::int64_t> gpus_in_comment(std::string_view text) {
  const std::size_t found = text.find("preset for ");
  if (found == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  for (std::size_t at = found + 11;
       at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0 && number < (1 << 24); ++at)
    number = 10 * number + (text[at] - '0');
  return number > 0 ? std::optional(number) : std::nullopt;
}

// Sections of job_config.py that hardly another program has.
constexpr const char* kTitanSections[] = {"job", "training", "parallelism", "activation_checkpoint", "experimental"};

constexpr std::int64_t kGpusOfLauncher = 8;  // NGPU of run_train.sh

class Config {
 public:
  Config(std::string_view text, const std::string& name, const ImportOptions& options, const TitanOverrides& overrides)
      : options_(options),
        text_(text),
        name_(name),
        started_(overrides.ranks),
        nodes_(parsed(text, name)),
        root_(json_of(nodes_)) {
    require_titan();
    for (const auto& [section, key, value] : overrides.values)
      if (!root_.contains(section) || root_[section].is_object()) root_[section][key] = value;
    settings_.name = name;
    settings_.vocabulary_key = "[model] flavor";
  }

  Settings run() {
    assess();
    refuse_models();
    refuse(settings_, options_);
    take_model();
    take_training();
    take_parallelism();
    take_recompute();
    take_pipeline();
    settings_.profile = is_compiled_ ? "torchtitan-compile" : "torchtitan";
    for (const auto& [section, table] : root_.items())
      for (const auto& [key, value] : table.items())
        if (const std::string path = section + "." + key;
            std::find(settings_.taken.begin(), settings_.taken.end(), path) == settings_.taken.end())
          (is_idle(section, key) ? settings_.ignored : settings_.unknown).push_back(path);
    return std::move(settings_);
  }

 private:
  static TomlNode parsed(std::string_view text, const std::string& name) {
    try {
      return parse_toml_nodes(text, name);
    } catch (const Error&) {
      refuse_unparsed(text, name);
      throw;
    }
  }
  // Throws unless the file is a JobConfig: [model] with a flavor, or with a name and a section of a job.
  void require_titan() const {
    const bool has_model = root_.contains("model") && root_["model"].is_object();
    const bool has_job = std::any_of(std::begin(kTitanSections), std::end(kTitanSections),
                                     [&](const char* section) { return root_.contains(section); });
    if (has_model && (root_["model"].contains("flavor") || (root_["model"].contains("name") && has_job))) return;
    refuse_document(root_, name_, "a configuration of torchtitan ([model] name and flavor, [training], [parallelism])");
  }

  // Returns whether a key says nothing of a step: files, logs, checks, data, the course of training (job_config.py of
  // 0.1 to 0.2.2).
  static bool is_idle(const std::string& section, const std::string& key) {
    constexpr const char* kSections[] = {"job",        "profiling",         "metrics",      "checkpoint",     "comm",
                                         "validation", "memory_estimation", "lr_scheduler", "dump_folder",    "debug",
                                         "ft",         "fault_tolerance",   "logging",      "hf_transformers"};
    constexpr const char* kKeys[] = {"tokenizer_path",
                                     "hf_assets_path",
                                     "print_after_conversion",
                                     "dataset",
                                     "dataset_path",
                                     "gc_freq",
                                     "gc_debug",
                                     "deterministic",
                                     "implementation",
                                     "early_step_in_backward",
                                     "beta1",
                                     "beta2",
                                     "eps",
                                     "norm_type",
                                     "custom_args_module",
                                     "custom_import",
                                     "data_parallel_type"};
    return std::find(std::begin(kSections), std::end(kSections), section) != std::end(kSections) ||
           std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
  }

  // Returns a key of the first section that has it; null where none has.
  Json look(std::initializer_list<const char*> sections, const char* key) {
    for (const char* section : sections)
      if (root_.contains(section) && root_[section].is_object() && root_[section].contains(key)) {
        settings_.taken.push_back(std::string(section) + "." + key);
        return root_[section][key];
      }
    return nullptr;
  }
  // Makes a setting of the file the origin of the value of a scenario's key, where the file has the setting.
  void is_from(const std::string& ours, std::initializer_list<const char*> sections, const char* key) {
    for (const char* section : sections)
      if (root_.contains(section) && root_[section].is_object() && root_[section].contains(key)) {
        settings_.origins[ours] = {fmt::format("[{}] {}", section, key), line_of(section, key), ""};
        return;
      }
  }
  int line_of(const std::string& section, const std::string& key) const {
    const auto* root = std::get_if<TomlNode::Table>(&nodes_.data);
    const auto found = root->find(section);
    if (found == root->end()) return 0;
    const auto* table = std::get_if<TomlNode::Table>(&found->second.data);
    if (table == nullptr || !table->contains(key)) return found->second.line;
    return table->at(key).line;
  }
  std::int64_t degree(const char* key, std::int64_t otherwise = 1) {
    const Json value = look({"parallelism", "training", "experimental"}, key);
    return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
  }
  void near(const std::string& section, const std::string& key, const std::string& effect) {
    settings_.approximated.push_back({"[" + section + "] " + key, line_of(section, key), effect});
  }
  void refuse_here(const std::string& noun, const std::string& section, const std::string& key) {
    settings_.refused.emplace(noun, Assessment{"[" + section + "] " + key, line_of(section, key), ""});
  }

  // ---- what is not modelled ----

  void assess() {
    for (const auto& [section, table] : root_.items())
      if (!table.is_object())
        throw input_error(name_ + ": expected sections as [model] and [training], got " + in_quotes(section) +
                          " outside of one");
    const Json converters = look({"model"}, "converters");
    const std::string all = converters.is_null() ? "" : converters.dump();
    for (const auto& [word, noun] : {std::pair{"mxfp8", "scales of 32 elements"},
                                     {"\"mx\"", "scales of 32 elements"},
                                     {"linear.mx", "scales of 32 elements"},
                                     {"grouped_mm", "experts in fp8"},
                                     {"nvfp4", "fp4"},
                                     {"lora", "LoRA"}})
      if (all.find(word) != std::string::npos) refuse_here(noun, "model", "converters");
    const Json old = look({"training"}, "fp8_linear");
    const bool is_on = look({"float8"}, "enable_float8_linear") == true ||
                       look({"float8"}, "enable_fp8_linear") == true || old == true || (old.is_string() && old != "");
    if (is_on || all.find("float8") != std::string::npos) take_float8();
    if (degree("expert_parallel_degree") > 1)
      refuse_here("expert parallelism", "parallelism", "expert_parallel_degree");
    if (look({"training"}, "enable_cpu_offload") == true)
      near("training", "enable_cpu_offload", "parameters and the optimizer stay on the GPU");
    if (look({"training"}, "dtype") == "bfloat16")
      near("training", "dtype", "masters, gradients and moments are in f32");
    if (look({"fault_tolerance"}, "enable") == true)
      near("fault_tolerance", "enable", "what groups of replicas exchange outside the step is left out");
  }

  // torchao's float8: products of layers have codes with one scale a tensor, from the tensor itself; gradients are in
  // e5m2 (torchao/float8/config.py, Float8LinearConfig).
  void take_float8() {
    Json section = root_.contains("float8") ? root_["float8"] : Json::object();
    for (const char* at : {"/quantize/dense/float8", "/quantize/linear/float8"})
      if (const Json::json_pointer path(at); root_.contains(path)) section = root_[path];
    if (root_.contains("quantize")) settings_.taken.emplace_back("quantize.linear");
    const auto word = [&](const char* key) {
      return section.contains(key) && section[key].is_string() ? section[key].get<std::string>() : std::string();
    };
    if (word("recipe_name").starts_with("rowwise")) refuse_here("fp8 with a scale for each row", "model", "converters");
    is_float8_ = true;
    settings_.values["training.fp8_format"] = "hybrid";
    settings_.values["training.fp8_recipe"] = "tensorwise";
    gathers_codes_ =
        section.contains("enable_fsdp_float8_all_gather") && section["enable_fsdp_float8_all_gather"] == true;
    const Json filtered = section.contains("filter_fqns") ? section["filter_fqns"] : Json::array();
    bool has_output = false;
    for (const Json& name : filtered)
      if (name == "output")
        has_output = true;
      else if (name != "router.gate")
        near("model", "converters", "all products of layers have codes, those of filter_fqns too");
    if (!has_output) near("model", "converters", "the head's products are in bf16");
  }

  // ---- settings that are taken ----

  std::string model_key(const char* key, const char* otherwise) {
    const Json value = look({"model"}, key);
    return value.is_string() ? value.get<std::string>() : otherwise;
  }

  void refuse_models() {
    const std::string name = model_key("name", "llama3"), size = model_key("flavor", "debugmodel");
    for (const char* with_experts : {"deepseek", "llama4", "gpt_oss", "mixtral", "kimi"})
      if (name.find(with_experts) != std::string::npos) refuse_here("experts of torchtitan's models", "model", "name");
    if (name == "qwen3" && (size.find("moe") != std::string::npos || size.find("-A") != std::string::npos))
      refuse_here("experts of torchtitan's models", "model", "flavor");
    for (const char* of_images : {"flux", "vlm", "siglip", "_vl"})
      if (name.find(of_images) != std::string::npos) refuse_here("image encoders", "model", "name");
  }

  void take_model() {
    const std::string name = model_key("name", "llama3"), size = model_key("flavor", "debugmodel");
    const std::string plain = name.substr(0, 6) == "llama3" ? "llama3" : name == "llama" ? "llama2" : name;
    if (name == "transformers_modeling_backend" && (size == "full" || size == "debugmodel"))
      if (const Json model = look({"hf_transformers"}, "model");
          model.is_string() && add_shape_by_name(model.get<std::string>(), settings_))
        return take_transformers(size == "full");
    if (!add_shape_by_flavor(plain, size, settings_))
      throw input_error(name_ +
                        ": [model] flavor: expected a model that is known here, as \"llama3\" with \"8B\" or \"qwen3\" "
                        "with \"1.7B\", got " +
                        in_quotes(name) + " with " + in_quotes(size));
    // Until 0.1 the tokenizer gave the vocabulary: 2,000 words and 256 special ones.
    constexpr int kTestVocabulary = 2256;
    if (const Json tokenizer = look({"model"}, "tokenizer_path");
        tokenizer.is_string() && tokenizer.get<std::string>().ends_with("test_tiktoken.model"))
      settings_.values["model.vocab_size"] = kTestVocabulary;
    if (size.find("flex") != std::string::npos || size.find("varlen") != std::string::npos)
      near("model", "flavor", "attention is causal over the whole sequence, not inside documents");
  }

  // Sets the sizes of TitanDenseModelArgs, which win over those of Hugging Face's model
  // (experiments/transformers_modeling_backend/model/args.py:20, 150-201).
  void take_transformers(bool is_full) {
    auto& values = settings_.values;
    values["model.num_layers"] = is_full ? 32 : 2;
    values["model.hidden_size"] = is_full ? 4096 : 256;
    values["model.ffn_hidden_size"] = is_full ? 11008 : 768;
    values["model.num_attention_heads"] = is_full ? 32 : 16;
    values["model.kv_channels"] = is_full ? 128 : 16;
    if (!is_full) values["model.num_query_groups"] = 16;
    values["model.rotary_base"] = 10'000;
  }

  void take_training() {
    auto& values = settings_.values;
    const auto take = [&](const char* key, const char* ours,
                          std::initializer_list<const char*> sections = {"training"}) {
      if (const Json value = look(sections, key); value.is_number()) {
        values[ours] = value;
        is_from(ours, sections, key);
      }
    };
    values["model.seq_length"] = 2048;  // default of job_config.py
    values["training.micro_batch_size"] = 8;
    take("seq_len", "model.seq_length");
    take("batch_size", "training.micro_batch_size");
    take("local_batch_size", "training.micro_batch_size");
    take("steps", "training.train_iters");
    take("max_norm", "training.clip_grad");
    take("lr", "training.lr", {"optimizer"});
    take("weight_decay", "training.weight_decay", {"optimizer"});
    if (const Json seed = look({"training", "debug"}, "seed"); seed.is_number_integer() && seed >= 0)
      values["training.seed"] = seed;
    if (const Json batch = look({"training"}, "global_batch_size"); batch.is_number_integer() && batch > 0)
      values["training.global_batch_size"] = batch;
    is_from("training.global_batch_size", {"training"}, "global_batch_size");
    if (const Json type = look({"training"}, "mixed_precision_param"); type == "float32")
      values["training.precision"] = "fp32";
    if (const Json optimizer = look({"optimizer"}, "name");
        optimizer.is_string() && optimizer != "AdamW" && optimizer != "Adam")
      near("optimizer", "name", "predicted with Adam's traffic and state");
    const Json enable = look({"compile"}, "enable"), old = look({"training"}, "compile");
    is_compiled_ = enable == true || old == true;
    if (const Json parts = look({"compile"}, "components"); is_compiled_ && parts.is_array())
      is_compiled_ = std::find(parts.begin(), parts.end(), "model") != parts.end();
    const Json warmup = look({"lr_scheduler", "training"}, "warmup_steps");
    const std::int64_t steps = settings_.whole("training.train_iters", 10'000);
    if (warmup.is_number_integer() && warmup >= 0 && warmup.get<std::int64_t>() < steps)
      values["training.lr_warmup_iters"] = warmup;
  }

  void take_parallelism() {
    auto& values = settings_.values;
    const std::int64_t tp = degree("tensor_parallel_degree"), cp = degree("context_parallel_degree");
    pp_ = degree("pipeline_parallel_degree");
    const std::int64_t replicas = degree("data_parallel_replicate_degree");
    std::int64_t shards = degree("data_parallel_shard_degree", -1);
    if (const std::int64_t old = degree("data_parallel_degree", 0); old != 0) shards = old;
    for (const auto& [key, value] : {std::pair{"tensor_parallel_degree", tp},
                                     {"context_parallel_degree", cp},
                                     {"pipeline_parallel_degree", pp_},
                                     {"data_parallel_replicate_degree", replicas}})
      if (value < 1 || value > (1 << 20))
        throw input_error(name_ + ": [parallelism] " + key + ": expected a whole number of at least 1, got " +
                          std::to_string(value));
    values["parallel.tensor_model_parallel_size"] = tp;
    values["parallel.context_parallel_size"] = cp;
    values["parallel.pipeline_model_parallel_size"] = pp_;
    for (const auto& [ours, key] : {std::pair{"parallel.tensor_model_parallel_size", "tensor_parallel_degree"},
                                    {"parallel.context_parallel_size", "context_parallel_degree"},
                                    {"parallel.pipeline_model_parallel_size", "pipeline_parallel_degree"},
                                    {"parallel.num_distributed_optimizer_instances", "data_parallel_replicate_degree"}})
      is_from(ours, {"parallelism", "training", "experimental"}, key);
    values["parallel.sequence_parallel"] = tp > 1;
    const std::int64_t of_model = tp * cp * pp_;
    if (shards > 0) {
      settings_.ranks = of_model * replicas * shards;
      settings_.ranks_from = "the degrees of [parallelism]";
    } else if (started_) {
      settings_.ranks = *started_;
      settings_.ranks_from = "processes of a node and nodes";
    } else if (const auto gpus = gpus_in_comment(text_)) {
      settings_.ranks = *gpus;
      settings_.ranks_from = "the comment \"preset for … GPUs\"";
      settings_.assumptions.emplace_back(
          "parallel.data_parallel_size",
          "there are " + std::to_string(*gpus) + " GPUs, as the file's comment says; --gpus N says otherwise");
    } else {
      settings_.ranks = std::max(kGpusOfLauncher, of_model * replicas);
      settings_.ranks_from = "run_train.sh's NGPU";
      settings_.assumptions.emplace_back("parallel.data_parallel_size",
                                         "there are " + std::to_string(*settings_.ranks) +
                                             " GPUs, as run_train.sh's NGPU is 8; --gpus N says otherwise");
    }
    const bool is_sharded = shards != 1 || cp > 1;
    values["parallel.data_parallel_sharding_strategy"] = is_sharded ? "optim_grads_params" : "no_shard";
    values["overlap.fsdp_comm_overlap"] = is_sharded;
    if (!is_sharded) values["overlap.overlap_grad_reduce"] = true;  // DDP's buckets
    if (is_sharded && gathers_codes_) values["overlap.fp8_param_gather"] = true;
    if (is_sharded && replicas > 1) values["parallel.num_distributed_optimizer_instances"] = replicas;
    const Json reshard = look({"parallelism", "training"}, "fsdp_reshard_after_forward");
    // "default" reshards, but not with pipeline stages, where every micro-batch would gather again (parallelize.py).
    const bool keeps = reshard == "never" || (pp_ > 1 && reshard != "always");
    if (is_sharded && keeps) values["parallel.reshard_after_forward"] = false;
    if (look({"parallelism", "experimental", "training"}, "enable_async_tensor_parallel") == true)
      values["overlap.tp_comm_overlap"] = tp > 1;
    if (cp > 1) {
      const Json rotate = look({"parallelism", "experimental"}, "context_parallel_rotate_method");
      values["parallel.cp_comm_type"] = rotate == "alltoall" ? "p2p" : "all_gather";
    }
    if (look({"parallelism", "training"}, "disable_loss_parallel") == true ||
        look({"parallelism", "training"}, "enable_loss_parallel") == false)
      near("parallelism", "disable_loss_parallel", "the loss is computed on shards of the vocabulary");
  }

  void take_recompute() {
    auto& values = settings_.values;
    const Json mode = look({"activation_checkpoint"}, "mode"),
               option = look({"activation_checkpoint"}, "selective_ac_option");
    if (mode == "full") {
      values["training.recompute_granularity"] = "full";
    } else if (mode == "selective" || mode.is_null()) {
      // job_config.py's default is "selective", of every second layer.
      const std::string which = option.is_string() ? option.get<std::string>() : "2";
      if (which == "op" && is_float8_) {
        // torch._scaled_mm is not among the operations whose results are kept (activation_checkpoint.py, _save_list).
        values["training.recompute_granularity"] = "full";
        near("activation_checkpoint", "selective_ac_option",
             "attention is computed again too, as products of codes are");
      } else if (which == "op") {
        values["training.recompute_granularity"] = "selective_op";
      } else if (which != "none" && which != "0") {
        values["training.recompute_granularity"] = "full";
        if (which != "1") {
          const std::int64_t every =
              which.size() < 5 && which.find_first_not_of("0123456789") == std::string::npos ? std::stoll(which) : 1;
          values["training.recompute_method"] = "block";
          const std::int64_t chunk = settings_.whole("model.num_layers", 1) / std::max<std::int64_t>(1, pp_);
          values["training.recompute_num_layers"] = std::max<std::int64_t>(1, chunk / std::max<std::int64_t>(1, every));
          near("activation_checkpoint", "selective_ac_option",
               "the same number of layers is recomputed, the first ones of a stage and not every " + which + "th");
        }
      }
    } else if (mode == "memory_budget") {
      near("activation_checkpoint", "mode", "nothing is recomputed");
    } else if (mode.is_string() && mode != "none") {
      throw input_error(name_ + ": [activation_checkpoint] mode: expected none, selective or full, got " + mode.dump());
    }
  }

  // Layers of a chunk say how many chunks a stage has (pipeline_parallel.py); without them it has two.
  std::int64_t chunks_of_stage() {
    const Json each = look({"parallelism"}, "pipeline_parallel_layers_per_stage");
    const std::int64_t layers = settings_.whole("model.num_layers", 1);
    if (!each.is_number_integer() || each < 1 || each > layers) return 2;
    const std::int64_t chunk = pp_ * each.get<std::int64_t>();
    if (layers % chunk == 0 && layers / chunk > 1) return layers / chunk;
    near("parallelism", "pipeline_parallel_layers_per_stage", "stages of an interleaved pipeline have two chunks");
    return 2;
  }

  void take_pipeline() {
    if (pp_ <= 1) return;
    auto& values = settings_.values;
    const Json schedule = look({"parallelism", "experimental"}, "pipeline_parallel_schedule");
    const std::string kind = schedule.is_string() ? schedule.get<std::string>() : "1F1B";
    for (const char* key : {"pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"})
      if (const Json less = look({"parallelism"}, key); less.is_number() && less > 0)
        near("parallelism", key, "stages have equally many layers");
    const Json size = look({"parallelism", "experimental"}, "pipeline_parallel_microbatch_size");
    const std::int64_t micro = size.is_number_integer() && size > 0 ? size.get<std::int64_t>() : 1;
    // A rank's batch is cut into micro-batches (pipeline_parallel.py).
    const std::int64_t of_rank = settings_.whole("training.micro_batch_size", 1);
    values["training.micro_batch_size"] = micro;
    batch_of_rank_ = of_rank;
    if (kind == "Interleaved1F1B")
      values["parallel.virtual_pipeline_model_parallel_size"] = chunks_of_stage();
    else if (kind == "ZBVZeroBubble")
      values["parallel.pipeline_schedule"] = "zb-v";
    else if (kind == "DualPipeV")
      values["parallel.pipeline_schedule"] = "dualpipev";
    else if (kind != "1F1B")
      near("parallelism", "pipeline_parallel_schedule", "predicted as 1F1B");
    if (settings_.ranks && !values.contains("training.global_batch_size")) {
      const std::int64_t of_model = settings_.whole("parallel.tensor_model_parallel_size", 1) *
                                    settings_.whole("parallel.context_parallel_size", 1) * pp_;
      values["training.global_batch_size"] = of_rank * std::max<std::int64_t>(1, *settings_.ranks / of_model);
    }
  }

  const ImportOptions& options_;
  std::string_view text_;
  const std::string& name_;
  std::optional<std::int64_t> started_;
  TomlNode nodes_;
  Json root_;
  Settings settings_;
  std::int64_t pp_ = 1, batch_of_rank_ = 1;
  bool is_compiled_ = false, is_float8_ = false, gathers_codes_ = false;
};

}  // namespace

Translation from_torchtitan(std::string_view text, const std::string& name, const ImportOptions& options,
                            const TitanOverrides& overrides) {
  return scenario_of(Config(text, name, options, overrides).run(), options);
}

}  // namespace stretto
