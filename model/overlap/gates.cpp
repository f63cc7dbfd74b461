#include "model/overlap/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/values_of.hpp"
#include "model/overlap/low_precision_gates.hpp"
#include "model/overlap/optimizer_gates.hpp"
#include "model/overlap/overlap.hpp"

namespace stretto {

std::string Gate::reason() const {
  if (kind != GateKind::error) return why;
  return "it needs " + needs + ", got " + got + (why.empty() ? "" : ": " + why);
}

std::string Gate::refusal() const {
  return "expected " + needs + " as well, got " + got + (why.empty() ? "" : ": " + why) + " (" + source.remark() + ")";
}

const char* name_of(GateOwner owner) {
  return name_in({"Stretto", "nobody", "Megatron-LM", "Megatron-Bridge", "TransformerEngine", "NCCL"}, owner);
}

std::string GateSource::text() const { return place.empty() ? name_of(owner) : name_of(owner) + (" " + place); }

std::string GateSource::remark() const {
  if (owner == GateOwner::stretto) return "a limit of Stretto's own";
  if (owner == GateOwner::nobody) return "there is nothing else that it could act on";
  return std::string(name_of(owner)) + "'s condition, " + place.substr(place.find(' ') + 1);
}

GateSource megatron(const std::string& place) { return {GateOwner::megatron_lm, "d98e8a64 " + place}; }
GateSource bridge(const std::string& place) { return {GateOwner::megatron_bridge, "067f987d " + place}; }
GateSource transformer_engine(const std::string& place) { return {GateOwner::transformer_engine, "d0067d0d " + place}; }

void Gates::add(Gate gate) {
  if (gate.key.empty()) gate.key = gate.knob;
  if (gate.kind == GateKind::acts) gate.open = true;
  constexpr std::size_t kAll = 256;  // somewhat more than there are; a search makes them for every scenario
  if (gates_.empty()) gates_.reserve(kAll);
  gates_.push_back(std::move(gate));
}

void Gates::above_one(const std::string& knob, bool asked, const std::string& key, std::int64_t size,
                      const GateSource& source) {
  add({.knob = knob,
       .needs = key + " above 1",
       .source = source,
       .asked = asked,
       .open = size > 1,
       .why = key + " is 1; it acts from 2 on",
       .of_size = true});
}

void Gates::of_training(const std::string& knob, bool asked, const std::string& needs, bool open,
                        const std::string& got, const GateSource& source, const std::string& why) {
  add({.knob = knob,
       .needs = needs,
       .kind = GateKind::error,
       .source = source,
       .asked = asked,
       .open = open,
       .got = got,
       .why = why,
       .section = "training",
       .key = knob.substr(0, knob.find(' '))});
}

void Gates::trains(const std::string& knob, bool asked, const Scenario& scenario, const GateSource& source) {
  add({.knob = knob,
       .needs = "frozen_base = false",
       .source = source,
       .asked = asked,
       .open = !scenario.training.frozen_base,
       .why = "frozen_base is on, and nothing is trained"});
}

void Gates::off_with_units(const std::string& knob, bool asked, const Scenario& scenario) {
  const std::string key = "data_parallel_sharding_strategy";
  add({.knob = knob,
       .needs = key + " no_shard or optim",
       .source = kNothingToActOn,
       .asked = asked,
       .open = !scenario.parallel.shards_gradients(),
       .why = key + " is \"" + name_of(scenario.parallel.data_parallel_sharding_strategy) +
              "\", whose units are no buckets; fsdp_comm_overlap overlaps their communication"});
}

namespace {

std::string shown(bool value) { return value ? "true" : "false"; }

void add_deferral(const Scenario& s, Gates& gates) {
  const Overlap& o = s.overlap;
  const char* knob = "defer_embedding_wgrad_compute";
  const PipelineSchedule schedule = s.parallel.pipeline_schedule;
  const std::int64_t pp = s.parallel.pipeline_model_parallel_size;
  gates.add({.knob = knob,
             .needs = "pipeline_model_parallel_size above 1",
             .kind = GateKind::error,
             .source = megatron("core/model_parallel_config.py:545"),
             .asked = o.defer_embedding_wgrad_compute,
             .open = pp > 1,
             .got = std::to_string(pp)});
  gates.trains(knob, o.defer_embedding_wgrad_compute, s);
  gates.add(
      {.knob = knob,
       .needs = "pipeline_schedule = 1f1b",
       .source = kNothingToActOn,
       .asked = o.defer_embedding_wgrad_compute,
       .open = !is_zero_bubble(schedule),
       .why = std::string("pipeline_schedule is \"") + name_of(schedule) + "\", which puts off all weight gradients"});
  gates.add({.knob = "wgrad_deferral_limit",
             .needs = "defer_embedding_wgrad_compute = true",
             .source = megatron("core/pipeline_parallel/schedules.py:897, nothing else reads it"),
             .asked = o.wgrad_deferral_limit > 0,
             .open = o.defer_embedding_wgrad_compute,
             .why = "it needs defer_embedding_wgrad_compute = true"});
}

// Adds the gates of cuBLASLt's epilogues and of operations joined by hand: no framework has these knobs.
void add_fusions(const Scenario& s, Gates& gates) {
  const Training& t = s.training;
  const auto off = [&](const char* knob, bool asked, const char* needs, bool open, const char* why,
                       const GateSource& source = kNothingToActOn) {
    gates.add({.knob = knob, .needs = needs, .source = source, .asked = asked, .open = open, .why = why});
  };
  const char* no_biases = "the linear layers have no biases";
  off("gelu_fusion", t.gelu_fusion, "swiglu = false", !s.model.swiglu,
      "the model has swiglu, which no product has as an epilogue");
  off("bias_gradient_fusion", t.bias_gradient_fusion, "add_bias_linear = true", s.model.add_bias_linear, no_biases);
  const char* sums_gelu = "gelu_bias_gradient_fusion";
  const bool asked = t.gelu_bias_gradient_fusion;
  off(sums_gelu, asked, "gelu_fusion = true", t.gelu_fusion && !s.model.swiglu,
      "gelu_fusion is off or has no GELU, and it sums what that epilogue makes");
  off(sums_gelu, asked, "add_bias_linear = true", s.model.add_bias_linear, no_biases);
  off(sums_gelu, asked, "tp_comm_overlap = false", !s.overlap.tp_comm_overlap,
      "tp_comm_overlap is on, which may cut the product into pieces that would all add to the sums", kOwnGate);
  gates.trains(sums_gelu, asked, s);
  off("residual_fusion", t.residual_fusion, "hidden_dropout = 0", s.model.hidden_dropout == 0,
      "hidden_dropout is above 0 and comes between the product and the addition", kOwnGate);
  off("residual_fusion", t.residual_fusion, "tensor_model_parallel_size = 1",
      s.parallel.tensor_model_parallel_size == 1,
      "tensor_model_parallel_size is above 1, and products are summed over ranks before the addition", kOwnGate);
}

// A graph holds sizes: the host cannot wait for numbers of rows in it.
void add_graphs(const Scenario& s, Gates& gates) {
  gates.add({.knob = "enable_cuda_graph",
             .needs = "moe_pad_expert_input_to_capacity = true with num_moe_experts",
             .source = megatron("core/transformer/transformer_config.py:2835, an assert of graphs of experts"),
             .asked = s.training.enable_cuda_graph,
             .open = !s.model.experts.any() || s.parallel.moe_pad_expert_input_to_capacity,
             .why = "data says how many rows experts have, and the host waits for the numbers",
             .of_gpus = true});
}

// Libraries that exchange rows of experts: where frameworks take another transport than the one that is asked for.
void add_transports(const Scenario& s, Gates& gates) {
  const Parallel& p = s.parallel;
  const bool shares = s.model.experts.any() && p.expert_model_parallel_size > 1,
             is_flex = p.moe_token_dispatcher_type == TokenDispatcher::flex;
  const char* backend = "moe_flex_dispatcher_backend";
  const bool asked = shares && (is_flex || p.moe_flex_dispatcher_backend != FlexBackend::deepep);
  gates.add({.knob = backend,
             .needs = "moe_token_dispatcher_type flex",
             .source = megatron("core/transformer/moe/token_dispatcher.py:1835, and nothing else reads it"),
             .asked = asked,
             .open = is_flex,
             .why = std::string("moe_token_dispatcher_type is \"") + name_of(p.moe_token_dispatcher_type) +
                    "\", and only \"flex\" reads it",
             .section = "parallel"});
  const auto acts = [&](const char* knob, bool is_asked, const char* needs, const char* place, const char* wider) {
    gates.add({.knob = knob,
               .needs = needs,
               .kind = GateKind::acts,
               .source = bridge(place),
               .wider = wider,
               .asked = is_asked,
               .section = "parallel"});
  };
  acts(backend, asked, "with deepep an Ampere or Hopper GPU, B200 or B300",
       "training/flex_dispatcher_backend.py:62, which takes alltoall on others with a warning",
       "its costs are predicted on every GPU");
  acts(backend, asked, "cuda_device_max_connections other than 1", "perf_recipes/deepseek/b200/deepseek_v3.py:55: 32",
       "any number is predicted, because the order of launches is in the schedule");
  acts("moe_token_dispatcher_type", shares && is_flex, "with flex a moe_flex_dispatcher_backend",
       "training/flex_dispatcher_backend.py:92, which takes alltoall without a word",
       "none is deepep, Megatron-LM's default");
}

void add_communicators(const Scenario& s, Gates& gates) {
  const Cluster& c = s.cluster;
  gates.add({.knob = "channel_GBps",
             .needs = "max_ctas of a group",
             .source = kNothingToActOn,
             .asked = c.channel_GBps > 0,
             .open = !c.max_ctas.empty(),
             .why = "no group has channels; nccl_communicator_config.dp.max_ctas gives dp some"});
  for (const RankGroup& group : rank_groups(s.parallel)) {
    const std::string config = "nccl_communicator_config." + group.name;
    const bool is_zero = c.zero_cta_groups.contains(group.name);
    if (is_zero || c.max_ctas.contains(group.name))
      gates.above_one(config, true, group.size_key, group.size, megatron("core/parallel_state.py:176"));
    gates.add({.knob = config + ".cta_policy",
               .needs = "nccl_ub = true",
               .kind = GateKind::error,
               .source = {GateOwner::nccl, "2.28 ncclConfig_t.CTAPolicy, which takes kernels there without a word"},
               .asked = is_zero,
               .open = c.nccl_ub,
               .got = shown(c.nccl_ub),
               .why = "copy engines go between registered buffers",
               .section = "cluster"});
    const auto& first = c.high_priority_stream_groups;
    const std::string priority = "high_priority_stream_groups " + group.name;
    if (std::find(first.begin(), first.end(), group.name) != first.end())
      gates.above_one(priority, true, group.size_key, group.size, megatron("core/parallel_state.py:182"));
  }
  if (c.max_ctas.contains("embd"))
    gates.add({.knob = "nccl_communicator_config.embd",
               .needs = "untie_embeddings_and_output_weights = false",
               .source = megatron("core/distributed/finalize_model_grads.py:146"),
               .asked = true,
               .open = !s.model.untie_embeddings_and_output_weights,
               .why = "untie_embeddings_and_output_weights is on, and nothing is summed"});
  gates.add({.knob = "nccl_ub",
             .needs = "more ranks than one",
             .source = kNothingToActOn,
             .asked = c.nccl_ub,
             .open = s.parallel.ranks() > 1,
             .why = "a rank alone has no collectives"});
  gates.add({.knob = "tensor_model_parallel_size or context_parallel_size above 1",
             .needs = "cuda_device_max_connections = 1 before Blackwell",
             .kind = GateKind::acts,
             .source = megatron("arguments.py:1477"),
             .wider =
                 "1 is the default there of profiles that say so (docs/profiles.md); any number is predicted, because "
                 "the order of launches is in the schedule",
             .asked = s.parallel.tensor_model_parallel_size > 1 || s.parallel.context_parallel_size > 1});
}

void add_pipeline(const Scenario& s, Gates& gates) {
  const Parallel& p = s.parallel;
  const std::int64_t tp = p.tensor_model_parallel_size, pp = p.pipeline_model_parallel_size,
                     vp = p.virtual_pipeline_model_parallel_size;
  const bool zero_bubble = is_zero_bubble(p.pipeline_schedule);
  const std::string schedule = std::string("\"") + name_of(p.pipeline_schedule) + "\"";
  // Adds a requirement of [parallel] on the layout. model/scenario/parallel.cpp reads that section and refuses the
  // layout before a schedule could be requested.
  const auto refused = [&](const char* knob, bool asked, const char* needs, bool open, const std::string& got,
                           const GateSource& source) {
    gates.add({.knob = knob,
               .needs = needs,
               .kind = GateKind::error,
               .source = source,
               .asked = asked,
               .open = open,
               .got = got,
               .section = "parallel"});
  };
  const std::string pp_key = "pipeline_model_parallel_size", pp_above_1 = pp_key + " above 1";
  for (const auto& [knob, asked] :
       {std::pair{"account_for_embedding_in_pipeline_split", p.account_for_embedding_in_pipeline_split},
        std::pair{"account_for_loss_in_pipeline_split", p.account_for_loss_in_pipeline_split}}) {
    gates.above_one(knob, asked, pp_key, pp, megatron("core/transformer/transformer_block.py:109"));
    refused(knob, asked, "no num_layers_in_first_pipeline_stage or num_layers_in_last_pipeline_stage",
            p.num_layers_in_first_pipeline_stage == 0 && p.num_layers_in_last_pipeline_stage == 0, "both",
            megatron("core/transformer/transformer_config.py:2235"));
    refused(knob, asked, "no pipeline_model_parallel_layout", p.pipeline_model_parallel_layout.empty(), "both",
            megatron("core/transformer/transformer_config.py:2252"));
  }
  const char* group = "microbatch_group_size_per_vp_stage";
  const bool has_group = p.microbatch_group_size_per_vp_stage > 0;
  gates.above_one(group, has_group, "virtual_pipeline_model_parallel_size", vp,
                  megatron("core/pipeline_parallel/schedules.py:1161, nothing else reads it"));
  gates.add({.knob = group,
             .needs = "pipeline_schedule = 1f1b",
             .source = kNothingToActOn,
             .asked = has_group,
             .open = !zero_bubble,
             .why = "pipeline_schedule is " + schedule + ", which has no groups"});
  refused("pipeline_schedule", zero_bubble, "pipeline_model_parallel_size above 1", pp > 1, std::to_string(pp),
          kNothingToActOn);
  refused("pipeline_schedule", zero_bubble, "frozen_base = false", !s.training.frozen_base, "true", kOwnGate);
  refused("pipeline_schedule", zero_bubble, "recompute_granularity none or selective",
          !s.training.recompute.repeats_layers(), "layers that are repeated", kOwnGate);
  refused("pipeline_schedule", zero_bubble, "no gradients sharded after each micro-batch",
          !p.shards_gradients() || !p.reshard_after_forward || p.replicas() == 1, "sharded ones", kOwnGate);
  const char* scatter = "scatter_gather_tensors_in_pipeline";
  const bool scatters = p.scatter_gather_tensors_in_pipeline;
  const GateSource of_2021 = {GateOwner::megatron_lm,
                              "v3.0 megatron/p2p_communication.py, scatter_gather_tensors_in_pipeline"};
  gates.above_one(scatter, scatters, pp_key, pp, of_2021);
  gates.above_one(scatter, scatters, "tensor_model_parallel_size", tp, of_2021);
  gates.add({.knob = scatter,
             .needs = "sequence_parallel = false",
             .source = of_2021,
             .asked = scatters,
             .open = !p.sequence_parallel,
             .why = "sequence_parallel is on, and ranks have no more than their part of the tokens"});
  const char* instances = "num_distributed_optimizer_instances";
  const std::int64_t count = p.num_distributed_optimizer_instances;
  refused(instances, count > 1, "use_distributed_optimizer = true", p.shards_optimizer(), "false",
          megatron("core/distributed/distributed_data_parallel.py:358"));
  refused(instances, count > 1, "at least 2 ranks in each instance", count == 1 || p.shards() > 1, "1",
          kNothingToActOn);
  const char* virtual_size = "virtual_pipeline_model_parallel_size";
  refused(virtual_size, vp > 1, "pipeline_model_parallel_size above 1", pp > 1, std::to_string(pp),
          megatron("arguments.py:1002"));
  const std::int64_t in_group = has_group ? p.microbatch_group_size_per_vp_stage : pp, all = s.num_microbatches();
  const std::int64_t rest = all % std::max<std::int64_t>(1, in_group);
  refused(virtual_size, vp > 1 && !zero_bubble,
          "micro-batches in groups of at least pipeline_model_parallel_size, none or as many left over",
          in_group >= pp && in_group <= all && (rest == 0 || rest >= pp),
          std::to_string(all) + " in groups of " + std::to_string(in_group),
          megatron("core/pipeline_parallel/schedules.py:1161 and 1173"));
  gates.add({.knob = virtual_size,
             .needs = "pipeline_model_parallel_size above 2 or overlap_p2p_comm = true",
             .kind = GateKind::error,
             .source = megatron("arguments.py:1006"),
             .wider = "modes without overlap_p2p_comm are compared there too",
             .asked = vp > 1 && !zero_bubble,
             .open = pp > 2 || s.overlap.overlap_p2p_comm,
             .got = std::to_string(pp) + " and false",
             .why = "messages in groups would have several of one pair of stages in one group",
             .section = "parallel"});
}

}  // namespace

Gates gates_of(const Scenario& s) {
  Gates gates;
  for (const OverlapMode& mode : overlap_modes())
    if (mode.gates) mode.gates(s, gates);
  add_deferral(s, gates);
  add_fusions(s, gates);
  add_graphs(s, gates);
  add_transports(s, gates);
  add_communicators(s, gates);
  add_pipeline(s, gates);
  add_low_precision_gates(s, gates);
  add_optimizer_gates(s, gates);
  return gates;
}

bool Gates::acts(const std::string& knob) const {
  return std::all_of(gates_.begin(), gates_.end(),
                     [&](const Gate& gate) { return gate.knob != knob || (gate.asked && gate.open); });
}

const Gate* Gates::refused(std::span<const std::string> by_profile) const {
  for (const Gate& gate : gates_) {
    if (gate.kind != GateKind::error || !gate.asked || gate.open) continue;
    const bool is_of_profile = std::find(by_profile.begin(), by_profile.end(), gate.key) != by_profile.end();
    if (gate.section != "overlap" || !is_of_profile) return &gate;
  }
  return nullptr;
}

std::vector<std::string> Gates::notes(std::span<const std::string> silent) const {
  std::vector<std::string> notes;
  for (const Gate& gate : gates_) {
    const std::string start = gate.knob + " is off: ";
    const bool is_said = !notes.empty() && notes.back().starts_with(start);
    const bool is_silent = gate.of_gpus || std::find(silent.begin(), silent.end(), gate.knob) != silent.end();
    // A refused layout is not a knob: modes that its scenario may not have are still compared.
    const bool is_knob = gate.kind == GateKind::off || gate.section != "parallel";
    if (gate.asked && !gate.open && is_knob && !is_said && !is_silent) notes.push_back(start + gate.reason());
  }
  return notes;
}

namespace {

const char* name_of(GateKind kind) {
  return kind == GateKind::error ? "error" : kind == GateKind::off ? "off" : "acts";
}

const char* in_words(GateKind kind) {
  return kind == GateKind::error ? "an error" : kind == GateKind::off ? "off, with a note" : "acts all the same";
}

}  // namespace

std::string print_gates(const Gates& gates) {
  std::size_t knob_width = 4, needs_width = 5, owner_width = 5;
  for (const Gate& gate : gates.all()) {
    knob_width = std::max(knob_width, gate.knob.size());
    needs_width = std::max(needs_width, gate.needs.size());
    owner_width = std::max(owner_width, std::string_view(name_of(gate.source.owner)).size());
  }
  std::string out = fmt::format("{:<{}}  {:<9}  {:<{}}  {:<{}}  {:<6}  {}\n", "knob", knob_width, "asked for", "needs",
                                needs_width, "whose", owner_width, "gate", "because");
  for (const Gate& gate : gates.all())
    out += fmt::format("{:<{}}  {:<9}  {:<{}}  {:<{}}  {}\n", gate.knob, knob_width, gate.asked ? "yes" : "no",
                       gate.needs, needs_width, name_of(gate.source.owner), owner_width,
                       gate.open                      ? std::string("open")
                       : gate.kind == GateKind::error ? "closed  an error when asked for: " + gate.reason()
                                                      : "closed  " + gate.reason());
  return out;
}

nlohmann::json gates_json(const Gates& gates) {
  nlohmann::json list = nlohmann::json::array();
  for (const Gate& gate : gates.all())
    list.push_back({{"knob", gate.knob},
                    {"needs", gate.needs},
                    {"asked", gate.asked},
                    {"open", gate.open},
                    {"when_closed", name_of(gate.kind)},
                    {"why", gate.open ? "" : gate.reason()},
                    {"owner", name_of(gate.source.owner)},
                    {"source", gate.source.text()},
                    {"wider", gate.wider}});
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
  out +=
      "\n| knob | needs | where it is not so | whose gate, and where | where Stretto is wider "
      "|\n|---|---|---|---|---|\n";
  const Gates gates = all_gates();
  for (const Gate& gate : gates.all())
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", gate.knob, gate.needs, in_words(gate.kind), gate.source.text(),
                       gate.wider);
  return out;
}

}  // namespace stretto
