#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "interchange/megatron.hpp"

namespace stretto {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kGpusOfNode = 8;

// Megatron-LM always does it, so a command line does not say it.
constexpr const char* kAsync = "overlap.async_tensor_model_parallel_allreduce";

// Flags for what Stretto always does, but Megatron-LM would do otherwise.
constexpr const char* kAlways[] = {"--optimizer adam", "--norm-epsilon 1e-5", "--tokenizer-type NullTokenizer",
                                   "--mock-data"};

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  // Some of Megatron-LM's numbers must be whole: 500000, and not 500000.0.
  if (value.is_number_float() && std::trunc(value.get<double>()) == value && std::abs(value.get<double>()) < 1e15)
    return std::to_string(value.get<std::int64_t>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : " ") + text_of(one);
  return text;
}

// Quotes a word for the shell.
std::string quoted(const std::string& word) {
  return word.find_first_of(" |*()$&;<>[]?") == std::string::npos ? word : "'" + word + "'";
}

Json theirs(const MegatronRow& row, const Json& ours) {
  if (ours.is_array()) {
    Json all = Json::array();
    for (const Json& one : ours) all.push_back(theirs(row, one));
    return all;
  }
  for (const auto& [word, key] : row.words)
    if (key == ours) return word;
  return ours;
}

const Scenario& defaults() {
  static const Scenario scenario;
  return scenario;
}

// Returns the keys of the scenario that do not have their default and that the program cannot express.
std::vector<std::string> left_out(const Scenario& scenario, const char* program,
                                  const std::function<bool(const MegatronRow&)>& is_asked) {
  std::vector<std::string> notes;
  for (const MegatronRow& row : megatron_rows())
    if (is_asked(row) && row.get(scenario) != row.get(defaults()))
      notes.push_back(fmt::format("{} has no {}", program, row.name()));
  return notes;
}

// Returns how many processes torchrun starts on each node, equally many: as many as there are GPUs, if possible in
// whole tensor-parallel groups.
std::int64_t processes_of_node(std::int64_t ranks, std::int64_t tensor_parallel) {
  std::int64_t any = 1, whole = 0;
  for (std::int64_t processes = 1; processes <= std::min(ranks, kGpusOfNode); ++processes) {
    if (ranks % processes != 0) continue;
    any = processes;
    if (processes % tensor_parallel == 0) whole = processes;
  }
  return whole > 0 ? whole : any;
}

// Switches on which Megatron-LM has an assertion; they are left out where the assertion does not hold.
struct Asserted {
  const char* key;
  bool (*given)(const Scenario&);
  const char* needs;
  int line;  // of megatron/training/arguments.py at d98e8a64
};
constexpr Asserted kAsserted[] = {
    {"overlap.overlap_param_gather",
     [](const Scenario& s) { return s.overlap.overlap_param_gather && !s.parallel.shards_gradients(); },
     "use_distributed_optimizer and overlap_grad_reduce", 1025},
    {"overlap.overlap_param_gather_with_optimizer_step",
     [](const Scenario& s) { return s.overlap.overlap_param_gather_with_optimizer_step; },
     "overlap_param_gather and virtual stages", 1069},
    {"overlap.tp_comm_overlap",
     [](const Scenario& s) { return s.overlap.tp_comm_overlap && s.parallel.tensor_model_parallel_size > 1; },
     "sequence_parallel", 1442},
};

// Returns the variable that Megatron-LM asserts (arguments.py:1163, 1477), as a line of a script.
std::string environment_of(const Scenario& scenario, std::vector<std::string>& notes) {
  constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
  const std::int64_t given = scenario.cluster.cuda_device_max_connections;
  const bool is_fsdp = scenario.parallel.shards_gradients();
  const bool needs_one =
      !is_fsdp && (scenario.parallel.tensor_model_parallel_size > 1 || scenario.parallel.context_parallel_size > 1);
  if (needs_one && given == 0)
    notes.push_back(
        fmt::format("{} is 1, which Megatron-LM asserts with tensor or context parallelism before Blackwell; the "
                    "scenario leaves it open",
                    kName));
  if (needs_one && given > 1)
    notes.push_back(fmt::format("{} is {}: Megatron-LM asserts 1 with tensor or context parallelism before Blackwell",
                                kName, given));
  if (is_fsdp && given == 1) {
    notes.push_back(
        fmt::format("{} is left out: Megatron-LM asserts that it is not 1 with FSDP (arguments.py:1166)", kName));
    return "";
  }
  if (!needs_one && given == 0) return "";
  return fmt::format("export {}={}\n", kName, given == 0 ? 1 : given);
}

}  // namespace

Translation to_megatron(const Scenario& scenario) {
  if (const PipelineSchedule schedule = scenario.parallel.pipeline_schedule; is_zero_bubble(schedule))
    throw input_error(std::string("[parallel] pipeline_schedule: expected \"1f1b\", got \"") + name_of(schedule) +
                      "\", which Megatron-LM does not have");
  const double factor = scenario.model.rope_scaling.interpolation_factor;
  if (factor != std::floor(factor))
    throw input_error(fmt::format(
        "[model] rotary_seq_len_interpolation_factor: expected a whole number for Megatron-LM, got {}", factor));
  Translation result;
  // The release that has every flag (megatron_flag_names.txt; a test checks each).
  result.text = "# flags of Megatron-LM's main at d98e8a64 (August 2026)\n" + environment_of(scenario, result.notes);
  const std::int64_t ranks = scenario.parallel.ranks(),
                     of_node = processes_of_node(ranks, scenario.parallel.tensor_model_parallel_size);
  const bool is_hybrid = !scenario.model.mamba.hybrid_layer_pattern.empty();
  result.text += fmt::format("torchrun --nnodes {} --nproc_per_node {} {}.py", ranks / of_node, of_node,
                             is_hybrid ? "pretrain_hybrid" : "pretrain_gpt");
  const auto line = [&](const std::string& text) { result.text += " \\\n    " + text; };
  for (const MegatronRow& row : megatron_rows()) {
    const Json value = row.get(scenario);
    if (row.flag.empty() || value.is_null()) continue;
    if (!row.given.is_null()) {
      if (value == row.given) line(row.flag);
      // The order of axes is the only switch that expresses only one of many values.
      if (value != row.given && value != row.absent)
        result.notes.push_back(fmt::format("Megatron-LM has no {} = {}", row.name(), value.dump()));
      continue;
    }
    if (!row.with.empty()) line(row.with);
    // The values of a list are separate words.
    const std::string text = text_of(theirs(row, value));
    line(row.flag + " " + (row.is_list && text.find('[') == std::string::npos ? text : quoted(text)));
  }
  if (scenario.model.gated_delta.any()) line("--experimental-attention-variant gdn");
  for (const Asserted& one : kAsserted)
    for (const MegatronRow& row : megatron_rows())
      if (row.key == one.key && one.given(scenario) && row.get(scenario) == false)
        result.notes.push_back(fmt::format("{} is left out: Megatron-LM asserts {} with it (arguments.py:{})",
                                           row.name(), one.needs, one.line));
  const Parallel& parallel = scenario.parallel;
  const bool is_interleaved = parallel.virtual_pipeline_model_parallel_size > 1;
  if (is_interleaved && parallel.pipeline_model_parallel_size == 2 && !scenario.overlap.overlap_p2p_comm)
    result.notes.push_back(
        "Megatron-LM asserts more than 2 stages with virtual ones and without overlap_p2p_comm (arguments.py:1006)");
  // With distributed checkpoints the first bucket's gather cannot overlap with the optimizer's step
  // (arguments.py:1073). Megatron-FSDP asserts its own format of checkpoints (arguments.py:1172).
  if (parallel.shards_gradients()) line("--ckpt-format fsdp_dtensor");
  // Megatron-FSDP keeps gradients in the type of parameters by default.
  if (parallel.shards_gradients() && scenario.overlap.grad_reduce_in_fp32)
    line("--megatron-fsdp-main-grads-dtype fp32");
  if (!parallel.shards_gradients() && is_interleaved && scenario.overlap.overlap_param_gather_with_optimizer_step)
    line("--ckpt-format torch");
  const bool has_epsilon = scenario.model.norm_epsilon != Transformer{}.norm_epsilon;  // its row has written it
  for (const std::string_view always : kAlways)
    if (!has_epsilon || !always.starts_with("--norm-epsilon")) line(std::string(always));
  result.text += "\n";
  for (std::string& note : left_out(scenario, "Megatron-LM", [&](const MegatronRow& row) {
         // batch_p2p_comm is the contrary of overlap_p2p_comm in Megatron-LM; torchrun has the ranks, and the
         // environment the connections.
         return row.flag.empty() && row.name() != "data_parallel_size" && row.name() != "cuda_device_max_connections" &&
                row.key != kAsync &&
                (row.name() != "batch_p2p_comm" ||
                 scenario.overlap.overlap_p2p_comm == scenario.overlap.batch_p2p_comm);
       }))
    result.notes.push_back(std::move(note));
  if (parallel.tensor_model_parallel_size > 1 && !parallel.sequence_parallel &&
      !scenario.overlap.async_tensor_model_parallel_allreduce)
    result.notes.push_back(
        "Megatron-LM always has async_tensor_model_parallel_allreduce (core/tensor_parallel/layers.py:1144)");
  if (scenario.overlap.overlap_p2p_comm && scenario.parallel.virtual_pipeline_model_parallel_size == 1)
    result.notes.push_back("Megatron-LM has overlap_p2p_comm only with virtual stages");
  if (scenario.training.recompute.granularity == Recompute::Granularity::selective_op)
    result.notes.push_back("Megatron-LM has no recompute_granularity = \"selective_op\"");
  return result;
}

std::string megatron_reference() {
  std::string text = "| key | Megatron-LM | CommOverlapConfig |\n|---|---|---|\n";
  for (const MegatronRow& row : megatron_rows()) {
    std::string flag = row.flag.empty() ? "" : "`" + (row.with.empty() ? "" : row.with + " ") + row.flag + "`";
    if (row.flag.empty() && !row.aliases.empty())
      flag = "none today; read, but not written, `" + row.aliases.front() + "`";
    if (!row.given.is_null()) flag += " is `" + text_of(row.given) + "`";
    if (!row.absent.is_null()) flag += ", absent `" + text_of(row.absent) + "`";
    text += fmt::format("| `{}` | {} | {} |\n", row.key, flag.empty() ? "–" : flag,
                        row.in_bridge ? "`" + row.name() + "`" : "");
  }
  return text;
}

}  // namespace stretto
