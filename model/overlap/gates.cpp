#include "model/overlap/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/overlap/overlap.hpp"

namespace stretto {

void Gates::off(const std::string& knob, bool asked, const std::string& needs, bool open, const std::string& why) {
  gates_.push_back({knob, needs, false, asked, open, why});
}

void Gates::above_one(const std::string& knob, bool asked, const std::string& key, std::int64_t size) {
  off(knob, asked, key + " above 1", size > 1, key + " is 1; it acts from 2 on");
}

void Gates::trains(const std::string& knob, bool asked, const Scenario& scenario) {
  off(knob, asked, "frozen_base off", !scenario.training.frozen_base, "frozen_base is on, and nothing is trained");
}

void Gates::off_with_units(const std::string& knob, bool asked, const Scenario& scenario) {
  const std::string key = "data_parallel_sharding_strategy";
  off(knob, asked, key + " no_shard or optim", !scenario.parallel.shards_gradients(),
      key + " is \"" + name_of(scenario.parallel.data_parallel_sharding_strategy) +
          "\", whose units are no buckets; fsdp_comm_overlap overlaps their communication");
}

void Gates::error(const std::string& knob, bool asked, const std::string& needs, bool open) {
  gates_.push_back({knob, needs, true, asked, open, ""});
}

Gates gates_of(const Scenario& s) {
  Gates gates;
  for (const OverlapMode& mode : overlap_modes())
    if (mode.gates) mode.gates(s, gates);
  const Parallel& p = s.parallel;
  const Overlap& o = s.overlap;
  const std::int64_t tp = p.tensor_model_parallel_size, pp = p.pipeline_model_parallel_size,
                     vp = p.virtual_pipeline_model_parallel_size;
  gates.error("defer_embedding_wgrad_compute", o.defer_embedding_wgrad_compute, "pipeline_model_parallel_size above 1",
              pp > 1);
  gates.trains("defer_embedding_wgrad_compute", o.defer_embedding_wgrad_compute, s);
  const bool zero_bubble = is_zero_bubble(p.pipeline_schedule);
  const std::string is_on = std::string("pipeline_schedule is \"") + name_of(p.pipeline_schedule) + "\", ";
  gates.off("defer_embedding_wgrad_compute", o.defer_embedding_wgrad_compute, "pipeline_schedule 1f1b", !zero_bubble,
            is_on + "which puts off all weight gradients");
  gates.error("wgrad_deferral_limit", o.wgrad_deferral_limit > 0, "defer_embedding_wgrad_compute",
              o.defer_embedding_wgrad_compute);
  gates.off("gelu_fusion", s.training.gelu_fusion, "swiglu off", !s.model.swiglu,
            "the model has swiglu, which no product has as an epilogue");
  gates.off("bias_gradient_fusion", s.training.bias_gradient_fusion, "add_bias_linear on", s.model.add_bias_linear,
            "the linear layers have no biases");
  const bool sums_gelu = s.training.gelu_bias_gradient_fusion;
  gates.off("gelu_bias_gradient_fusion", sums_gelu, "gelu_fusion on", s.training.gelu_fusion && !s.model.swiglu,
            "gelu_fusion is off or has no GELU, and it sums what that epilogue makes");
  gates.off("gelu_bias_gradient_fusion", sums_gelu, "add_bias_linear on", s.model.add_bias_linear,
            "the linear layers have no biases");
  gates.off("gelu_bias_gradient_fusion", sums_gelu, "tp_comm_overlap off", !o.tp_comm_overlap,
            "tp_comm_overlap is on, which may cut the product into pieces that would all add to the sums");
  gates.trains("gelu_bias_gradient_fusion", sums_gelu, s);
  gates.off("residual_fusion", s.training.residual_fusion, "hidden_dropout 0", s.model.hidden_dropout == 0,
            "hidden_dropout is above 0 and comes between the product and the addition");
  gates.off("residual_fusion", s.training.residual_fusion, "tensor_model_parallel_size 1", tp == 1,
            "tensor_model_parallel_size is above 1, and products are summed over ranks before the addition");
  gates.off("channel_GBps", s.cluster.channel_GBps > 0, "max_ctas of a group", !s.cluster.max_ctas.empty(),
            "no group has channels; nccl_communicator_config.dp.max_ctas gives dp some");
  for (const RankGroup& group : rank_groups(p)) {
    const std::string config = "nccl_communicator_config." + group.name;
    const bool is_zero = s.cluster.zero_cta_groups.contains(group.name);
    if (is_zero || s.cluster.max_ctas.contains(group.name)) gates.above_one(config, true, group.size_key, group.size);
    gates.error(config + ".cta_policy", is_zero, "nccl_ub", s.cluster.nccl_ub);
    const auto& first = s.cluster.high_priority_stream_groups;
    const std::string priority = "high_priority_stream_groups " + group.name;
    if (std::find(first.begin(), first.end(), group.name) != first.end())
      gates.above_one(priority, true, group.size_key, group.size);
  }
  if (s.cluster.max_ctas.contains("embd"))
    gates.off("nccl_communicator_config.embd", true, "tied embeddings", !s.model.untie_embeddings_and_output_weights,
              "untie_embeddings_and_output_weights is on, and nothing is summed");
  gates.off("nccl_ub", s.cluster.nccl_ub, "more ranks than one", p.ranks() > 1, "a rank alone has no collectives");
  gates.above_one("account_for_embedding_in_pipeline_split", p.account_for_embedding_in_pipeline_split,
                  "pipeline_model_parallel_size", pp);
  gates.above_one("account_for_loss_in_pipeline_split", p.account_for_loss_in_pipeline_split,
                  "pipeline_model_parallel_size", pp);
  gates.above_one("microbatch_group_size_per_vp_stage", p.microbatch_group_size_per_vp_stage > 0,
                  "virtual_pipeline_model_parallel_size", vp);
  gates.off("microbatch_group_size_per_vp_stage", p.microbatch_group_size_per_vp_stage > 0, "pipeline_schedule 1f1b",
            !zero_bubble, is_on + "which has no groups");
  gates.error("pipeline_schedule", zero_bubble, "pipeline_model_parallel_size above 1", pp > 1);
  gates.error("pipeline_schedule", zero_bubble, "frozen_base off", !s.training.frozen_base);
  gates.error("pipeline_schedule", zero_bubble, "recompute_granularity none or selective",
              !s.training.recompute.repeats_layers());
  const char* scatter = "scatter_gather_tensors_in_pipeline";
  gates.above_one(scatter, p.scatter_gather_tensors_in_pipeline, "pipeline_model_parallel_size", pp);
  gates.above_one(scatter, p.scatter_gather_tensors_in_pipeline, "tensor_model_parallel_size", tp);
  gates.off(scatter, p.scatter_gather_tensors_in_pipeline, "sequence_parallel off", !p.sequence_parallel,
            "sequence_parallel is on, and ranks have no more than their part of the tokens");
  gates.error("num_distributed_optimizer_instances", p.num_distributed_optimizer_instances > 1,
              "use_distributed_optimizer", p.shards_optimizer());
  gates.error("num_distributed_optimizer_instances", p.num_distributed_optimizer_instances > 1,
              "at least 2 ranks in each instance", p.num_distributed_optimizer_instances == 1 || p.shards() > 1);
  gates.error("virtual_pipeline_model_parallel_size", vp > 1, "pipeline_model_parallel_size above 1", pp > 1);
  gates.error("virtual_pipeline_model_parallel_size", vp > 1,
              "micro-batches in groups of at least pipeline_model_parallel_size, none or as many left over", true);
  return gates;
}

bool Gates::acts(const std::string& knob) const {
  return std::all_of(gates_.begin(), gates_.end(),
                     [&](const Gate& gate) { return gate.knob != knob || (gate.asked && gate.open); });
}

std::vector<std::string> Gates::notes(std::span<const std::string> silent) const {
  std::vector<std::string> notes;
  for (const Gate& gate : gates_) {
    const std::string start = gate.knob + " is off: ";
    const bool is_said = !notes.empty() && notes.back().starts_with(start);
    const bool is_silent = std::find(silent.begin(), silent.end(), gate.knob) != silent.end();
    if (gate.asked && !gate.open && !is_said && !is_silent) notes.push_back(start + gate.why);
  }
  return notes;
}

std::string print_gates(const Gates& gates) {
  std::size_t knob_width = 4, needs_width = 5;
  for (const Gate& gate : gates.all()) {
    knob_width = std::max(knob_width, gate.knob.size());
    needs_width = std::max(needs_width, gate.needs.size());
  }
  std::string out = fmt::format("{:<{}}  {:<9}  {:<{}}  {:<6}  {}\n", "knob", knob_width, "asked for", "needs",
                                needs_width, "gate", "because");
  for (const Gate& gate : gates.all())
    out += fmt::format("{:<{}}  {:<9}  {:<{}}  {}\n", gate.knob, knob_width, gate.asked ? "yes" : "no", gate.needs,
                       needs_width,
                       gate.open       ? std::string("open")
                       : gate.is_error ? "closed  an error when asked for"
                                       : "closed  " + gate.why);
  return out;
}

nlohmann::json gates_json(const Gates& gates) {
  nlohmann::json list = nlohmann::json::array();
  for (const Gate& gate : gates.all())
    list.push_back({{"knob", gate.knob},
                    {"needs", gate.needs},
                    {"asked", gate.asked},
                    {"open", gate.open},
                    {"when_closed", gate.is_error ? "error" : "off"},
                    {"why", gate.why}});
  return {{"gates", std::move(list)}};
}

Gates all_gates() {
  Scenario scenario;
  for (const RankGroup& group : rank_groups(scenario.parallel)) {
    scenario.cluster.max_ctas[group.name] = 1;
    if (group.has_lanes) scenario.cluster.high_priority_stream_groups.push_back(group.name);
  }
  return gates_of(scenario);
}

std::string gates_reference() {
  std::string out = "| mode | knob | meaning | more memory |\n|---|---|---|---|\n";
  for (const OverlapMode& mode : overlap_modes())
    out += fmt::format("| `{}` | {} | {} | {} |\n", mode.name, mode.knob.empty() ? "" : "`" + mode.knob + "`",
                       mode.meaning, mode.memory);
  out += "\n| knob | needs | where it is not so |\n|---|---|---|\n";
  const Gates gates = all_gates();
  for (const Gate& gate : gates.all())
    out += fmt::format("| `{}` | {} | {} |\n", gate.knob, gate.needs, gate.is_error ? "an error" : "off, with a note");
  return out;
}

}  // namespace stretto
