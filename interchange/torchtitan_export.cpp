#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "interchange/model_shapes.hpp"
#include "interchange/torchtitan.hpp"

namespace stretto {
namespace {

// Keys are those of torchtitan/config/job_config.py of release 0.2 (October 2025).
// Writes [section] by [section], in the order in which keys are put.
class TitanFile {
 public:
  explicit TitanFile(const Scenario& scenario) : s_(scenario) {}

  Translation write() {
    require_layout();
    put_model();
    put_training();
    put_parallelism();
    put_pipeline();
    put_recompute();
    put_compile();
    return {text_, std::move(notes_)};
  }

 private:
  void section(const char* name) { text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name); }
  void put(const char* key, std::int64_t value) { text_ += fmt::format("{} = {}\n", key, value); }
  void put(const char* key, double value) {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    text_ += fmt::format("{} = {}\n", key, text);
  }
  void put(const char* key, const char* word) { text_ += fmt::format("{} = {}\n", key, in_quotes(word)); }
  void put(const char* key, bool value) { text_ += fmt::format("{} = {}\n", key, value); }
  [[noreturn]] void refuse(const std::string& key, const std::string& expected, const std::string& got) const {
    throw input_error(fmt::format("{}: {}: expected {}, which torchtitan has, got {}", s_.name, key, expected, got));
  }

  void require_layout() const {
    const Parallel& p = s_.parallel;
    if (s_.model.experts.num_moe_experts > 0)
      refuse("[model] num_moe_experts", "a dense model", std::to_string(s_.model.experts.num_moe_experts));
    if (p.context_parallel_size > 1 && (p.has_cp_comm_type(CpCommType::a2a) || p.has_cp_comm_type(CpCommType::a2a_p2p)))
      refuse("[parallel] cp_comm_type", "\"p2p\" or \"all_gather\"", names_of(p.cp_comm_type));
    if (p.pipeline_schedule == PipelineSchedule::zb_h1)
      refuse("[parallel] pipeline_schedule", "\"1f1b\", \"zb-v\" or \"dualpipev\"", "\"zb-h1\"");
    const LowPrecision& codes = s_.training.low_precision;
    if (codes.is_on() &&
        (codes.fp8_format == LowPrecision::Fp8Format::none || codes.fp8_recipe != LowPrecision::Fp8Recipe::tensorwise))
      refuse("[training] fp8_recipe", "\"tensorwise\"", in_quotes(name_of(codes.fp8_recipe)));
    const std::int64_t chunks = p.pipeline_model_parallel_size * virtual_stages();
    if (s_.model.num_layers % chunks != 0)
      refuse("[model] num_layers", fmt::format("a multiple of the {} chunks of stages", chunks),
             std::to_string(s_.model.num_layers));
  }
  std::int64_t virtual_stages() const {
    return lies_in_v(s_.parallel.pipeline_schedule) ? 2 : s_.parallel.virtual_pipeline_model_parallel_size;
  }

  void put_model() {
    const auto flavor = flavor_of(s_.model);
    if (!flavor)
      refuse("[model]", "the sizes of a flavor of llama3 or qwen3",
             fmt::format("{} layers of {} with {} heads and an MLP of {}", s_.model.num_layers, s_.model.hidden_size,
                         s_.model.num_attention_heads, s_.model.ffn_hidden_size));
    section("model");
    put("name", flavor->first.c_str());
    put("flavor", flavor->second.c_str());
    if (!s_.training.low_precision.is_on()) return;
    text_ += "converters = [\"quantize.linear.float8\"]\n";
    section("quantize.linear.float8");
    put("enable_fsdp_float8_all_gather", s_.overlap.fp8_param_gather);
    text_ += "filter_fqns = [\"output\"]\n";
  }

  void put_training() {
    const Training& t = s_.training;
    section("optimizer");
    put("name", "AdamW");
    put("lr", t.lr);
    put("weight_decay", t.weight_decay);
    section("lr_scheduler");
    put("warmup_steps", t.lr_warmup_iters);
    section("training");
    // A pipeline cuts the batch of a rank into micro-batches; without one a rank accumulates over batches.
    const bool has_pipeline = s_.parallel.pipeline_model_parallel_size > 1;
    put("local_batch_size", has_pipeline ? t.global_batch_size / s_.parallel.data_parallel_size : t.micro_batch_size);
    put("global_batch_size", t.global_batch_size);
    put("seq_len", s_.model.seq_length);
    put("steps", t.train_iters);
    if (t.precision == "fp64") refuse("[training] precision", "\"bf16\" or \"fp32\"", "\"fp64\"");
    put("mixed_precision_param", t.precision == "bf16" ? "bfloat16" : "float32");
    put("mixed_precision_reduce", "float32");
    if (!s_.overlap.grad_reduce_in_fp32)
      notes_.push_back("grad_reduce_in_fp32: torchtitan reduces gradients in float32 alone");
  }

  void put_parallelism() {
    const Parallel& p = s_.parallel;
    section("parallelism");
    const bool shards = p.data_parallel_sharding_strategy != Sharding::no_shard;
    const std::int64_t replicas = shards ? p.num_distributed_optimizer_instances : p.data_parallel_size;
    put("data_parallel_replicate_degree", replicas);
    put("data_parallel_shard_degree", p.data_parallel_size / replicas);
    if (shards && !p.shards_parameters())
      notes_.push_back(
          fmt::format("data_parallel_sharding_strategy = \"{}\": torchtitan shards gradients and parameters "
                      "too; they are not given back after the forward pass",
                      name_of(p.data_parallel_sharding_strategy)));
    put("fsdp_reshard_after_forward", p.shards_parameters() && p.reshard_after_forward ? "always" : "never");
    put("tensor_parallel_degree", p.tensor_model_parallel_size);
    if (p.tensor_model_parallel_size > 1 && !p.sequence_parallel)
      notes_.push_back("sequence_parallel = false: torchtitan cuts tokens wherever it cuts layers");
    put("enable_async_tensor_parallel", p.tensor_model_parallel_size > 1 && s_.overlap.tp_comm_overlap);
    put("context_parallel_degree", p.context_parallel_size);
    if (p.context_parallel_size > 1)
      put("context_parallel_rotate_method", p.has_cp_comm_type(CpCommType::p2p) ? "alltoall" : "allgather");
    put("pipeline_parallel_degree", p.pipeline_model_parallel_size);
  }

  void put_pipeline() {
    const Parallel& p = s_.parallel;
    if (p.pipeline_model_parallel_size < 2) return;
    const char* schedule = p.pipeline_schedule == PipelineSchedule::zb_v         ? "ZBVZeroBubble"
                           : p.pipeline_schedule == PipelineSchedule::dualpipe_v ? "DualPipeV"
                           : virtual_stages() > 1                                ? "Interleaved1F1B"
                                                                                 : "1F1B";
    put("pipeline_parallel_schedule", schedule);
    put("pipeline_parallel_microbatch_size", s_.training.micro_batch_size);
    // The embedding and the head count as a layer each where this key is absent (pipeline_parallel.py).
    put("pipeline_parallel_first_stage_less_layers", std::int64_t{0});
    put("pipeline_parallel_last_stage_less_layers", std::int64_t{0});
    put("pipeline_parallel_layers_per_stage",
        s_.model.num_layers / (p.pipeline_model_parallel_size * virtual_stages()));
  }

  void put_recompute() {
    const Recompute& r = s_.training.recompute;
    section("activation_checkpoint");
    using Granularity = Recompute::Granularity;
    if (r.granularity == Granularity::none) return put("mode", "none");
    if (r.granularity == Granularity::full && r.method == Recompute::Method::uniform) return put("mode", "full");
    put("mode", "selective");
    if (r.granularity == Granularity::full) {
      const std::int64_t chunk = s_.model.num_layers / (s_.parallel.pipeline_model_parallel_size * virtual_stages());
      const std::int64_t every = std::max<std::int64_t>(1, chunk / std::max<std::int64_t>(1, r.num_layers));
      put("selective_ac_option", std::to_string(every).c_str());
      notes_.push_back(fmt::format("recompute_num_layers = {}: every {}th layer is recomputed, not the first ones",
                                   r.num_layers, every));
      return;
    }
    put("selective_ac_option", "op");
    if (r.granularity == Granularity::selective)
      notes_.push_back("recompute_granularity = \"selective\": torchtitan recomputes by operation, which saves more");
  }

  void put_compile() {
    section("compile");
    put("enable", s_.framework.name == "torchtitan-compile" || s_.overlap.tp_comm_overlap);
    text_ += "components = [\"model\", \"loss\"]\n";
  }

  const Scenario& s_;
  std::string text_;
  std::vector<std::string> notes_;
};

}  // namespace

Translation to_torchtitan(const Scenario& scenario) { return TitanFile(scenario).write(); }

}  // namespace stretto
