// overlap_moe_expert_parallel_comm (Megatron-LM's combined 1F1B): a forward and a backward pass of different
// micro-batches run concurrently, layer by layer, each in a sequence of its own, so that rows of experts of one are on
// the way while the other computes. model/order/pipeline_order has one forward pass more ahead, and
// model/lower/stage_writer writes the pairs. Two knobs change their order:
//
// delay_wgrad_compute: weight gradients are blocks of their own; those of experts come while their rows' gradients are
// on the way, the others while the next layer's are. ep_overlap_early_attn_memory_release: the backward pass's
// attention comes before the forward pass's experts, so that its activations are free earlier.
//
// Edges:   backward pass  ->  forward pass that takes its slot;  forward pass of a micro-batch  ->  its backward pass
// Exposed: of a pair of layers, with a_f, m_f the forward pass's computation around its experts and of them, d_f, c_f
//          its dispatch and combine, b for backward, w the weight gradients of experts and v the others:
//          max(a_f, c_b) + max(d_f, m_b) + max(m_f, d_b) + max(c_f, a_b);  tests/closed_forms_experts_test.cpp has the
//          forms of the other two
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

constexpr const char* kPriority = "high_priority_a2a_comm_stream";

std::string word_of(bool value) { return value ? "true" : "false"; }

void add_gate_of_priority(const Scenario& scenario, Gates& gates) {
  const bool pairs = scenario.overlap.overlap_moe_expert_parallel_comm;
  gates.add(
      {.knob = kPriority,
       .needs = "overlap_moe_expert_parallel_comm = true",
       .source = megatron("core/pipeline_parallel/combined_1f1b.py:67 and 203, which make the stream"),
       .asked = scenario.overlap.high_priority_a2a_comm_stream,
       .open = pairs,
       .why = "overlap_moe_expert_parallel_comm is off, and only its stream for exchanges of rows has a priority"});
}

// Asserts and warnings of Megatron-LM that a schedule does not need.
void add_wider_gates(bool asked, Gates& gates) {
  const auto add = [&](const char* needs, const char* place, const char* wider) {
    gates.add({.knob = "overlap_moe_expert_parallel_comm",
               .needs = needs,
               .kind = GateKind::acts,
               .source = megatron(place),
               .wider = wider,
               .asked = asked});
  };
  add("PyTorch 2.6 or later", "core/transformer/transformer_config.py:3004, where older ones hang",
      "a schedule knows no version of the library");
  add("precision = bf16", "core/transformer/transformer_config.py:3036, or fp16", "pairs have any precision");
  add("cuda_device_max_connections other than 1",
      "arguments.py:1468, a warning with tensor or context parallelism before Blackwell",
      "any number is predicted, because the order of launches is in the schedule");
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& p = scenario.parallel;
  const Training& t = scenario.training;
  const bool asked = scenario.overlap.overlap_moe_expert_parallel_comm;
  const char* knob = "overlap_moe_expert_parallel_comm";
  const std::string config = "core/transformer/transformer_config.py:";
  const auto require = [&](const std::string& needs, const GateSource& source, bool open, const std::string& got,
                           const std::string& why = "") {
    gates.add({.knob = knob,
               .needs = needs,
               .kind = GateKind::error,
               .source = source,
               .asked = asked,
               .open = open,
               .got = got,
               .why = why});
  };
  gates.add({.knob = knob,
             .needs = "expert_model_parallel_size above 1",
             .kind = GateKind::error,
             .source = megatron(config + "3013"),
             .asked = asked,
             .open = p.expert_model_parallel_size > 1 && scenario.model.experts.any(),
             .got = std::to_string(p.expert_model_parallel_size)});
  require("moe_token_dispatcher_type alltoall or flex", megatron(config + "3016"),
          p.moe_token_dispatcher_type != TokenDispatcher::allgather,
          std::string("\"") + name_of(p.moe_token_dispatcher_type) + "\"");
  require("recompute_granularity none", megatron(config + "3021"), !t.recompute.repeats_layers(), "another",
          "a recomputed layer would send its rows again");
  const bool repeats = t.recompute.repeats(Recompute::Module::moe);
  require("recompute_modules without moe", megatron(config + "3030"), !repeats, repeats ? "it" : "",
          "a recomputed layer would send its rows again");
  require("virtual_pipeline_model_parallel_size above 1 with several stages", megatron(config + "3010"),
          p.pipeline_model_parallel_size == 1 || p.virtual_pipeline_model_parallel_size > 1,
          std::to_string(p.virtual_pipeline_model_parallel_size));
  require("overlap_p2p_comm = true with several stages", kOwnGate,
          p.pipeline_model_parallel_size == 1 || scenario.overlap.overlap_p2p_comm,
          word_of(scenario.overlap.overlap_p2p_comm), "messages of two concurrent passes wait for their data alone");
  require("cuda_graph_modules without mlp", megatron(config + "3066"), !t.captures(GraphModule::mlp), "it",
          "a graph of a whole MLP leaves no gap for the other pass");
  require("moe_shared_expert_overlap = false", megatron(config + "3040"), !scenario.overlap.moe_shared_expert_overlap,
          word_of(scenario.overlap.moe_shared_expert_overlap));
  require("no overlap of tensor or context parallelism", kOwnGate,
          (!scenario.overlap.tp_comm_overlap || p.tensor_model_parallel_size == 1) && p.context_parallel_size == 1,
          "tp_comm_overlap = " + word_of(scenario.overlap.tp_comm_overlap) +
              " and context_parallel_size = " + std::to_string(p.context_parallel_size),
          "not modelled together yet");
  // Megatron-LM allows both together where stages are not interleaved (core/distributed/fsdp/mcore_fsdp_adapter.py:177
  // at d98e8a64).
  require("data_parallel_sharding_strategy no_shard or optim", kOwnGate, !p.shards_gradients(),
          std::string("\"") + name_of(p.data_parallel_sharding_strategy) + "\"", "not modelled together yet");
  add_wider_gates(asked, gates);
  add_gate_of_priority(scenario, gates);
}

void add_gate_of_pairs(const char* knob, bool asked, const Scenario& scenario, const char* line, Gates& gates) {
  const bool pairs = scenario.overlap.overlap_moe_expert_parallel_comm;
  gates.add({.knob = knob,
             .needs = "overlap_moe_expert_parallel_comm = true",
             .kind = GateKind::error,
             .source = megatron(std::string("core/transformer/transformer_config.py:") + line),
             .asked = asked,
             .open = pairs,
             .got = word_of(pairs)});
}

void add_gates_of_delay(const Scenario& scenario, Gates& gates) {
  const char* knob = "delay_wgrad_compute";
  const bool asked = scenario.overlap.delay_wgrad_compute;
  add_gate_of_pairs(knob, asked, scenario, "3074", gates);
  gates.trains(knob, asked, scenario);
  gates.add({.knob = knob,
             .needs = "enable_cuda_graph = false",
             .kind = GateKind::acts,
             .source = megatron("arguments.py:1914, of attention and the router before TransformerEngine 2.12"),
             .wider = "gradients have places of their own, which a graph needs",
             .asked = asked});
  gates.add({.knob = knob,
             .needs = "TransformerEngine 2.8 or later",
             .kind = GateKind::acts,
             .source = megatron("arguments.py:1907, with overlap_grad_reduce"),
             .wider = "a schedule knows no version of the library",
             .asked = asked});
}

void add_gates_of_early_release(const Scenario& scenario, Gates& gates) {
  add_gate_of_pairs("ep_overlap_early_attn_memory_release", scenario.overlap.ep_overlap_early_attn_memory_release,
                    scenario, "3097", gates);
}

// Where operations wait for SMs, exchanges of rows come first. Exchanges that hold none never wait for one.
void prioritise(Lowered& lowered, const Scenario& scenario, const Gates& gates) {
  if (!gates.acts(kPriority)) return;
  lowered.schedule.lanes[lowered.ep.lane].priority = kHighPriority;
  if (!scenario.cluster.max_ctas.contains("ep"))
    lowered.schedule.notes.push_back(std::string(kPriority) +
                                     " changes no prediction: exchanges of rows hold no SM in it "
                                     "(nccl_communicator_config.ep.max_ctas is not given), and wait for none");
}

bool can_pair(const Parallel& p) {
  return p.expert_model_parallel_size > 1 && !p.gathers_tokens_for_experts() && p.context_parallel_size == 1 &&
         !p.shards_gradients() && (p.pipeline_model_parallel_size == 1 || p.virtual_pipeline_model_parallel_size > 1);
}

// Pairs need messages between stages that overlap; with_mode() leaves these off where there is one stage.
void turn_pairs_on(Overlap& overlap) { overlap.overlap_moe_expert_parallel_comm = overlap.overlap_p2p_comm = true; }

}  // namespace

OverlapMode overlap_moe_expert_parallel_comm_mode() {
  return {
      .name = "overlap_moe_expert_parallel_comm",
      .meaning =
          "rows of experts of one micro-batch are on the way while another micro-batch computes (several stages "
          "need overlap_p2p_comm)",
      .memory = "activations of one more micro-batch",
      .knob = "overlap_moe_expert_parallel_comm",
      .on = &Overlap::overlap_moe_expert_parallel_comm,
      .applies = can_pair,
      .configure = turn_pairs_on,
      .is_meant = [](const Overlap& o) { return !o.delay_wgrad_compute && !o.ep_overlap_early_attn_memory_release; },
      .gates = add_gates,
      .rewrite = prioritise};
}

OverlapMode delay_wgrad_compute_mode() {
  return {.name = "delay_wgrad_compute",
          .meaning = "weight gradients too are computed while rows of experts are on the way, of either micro-batch",
          .memory = "activations of one more micro-batch, and gradients of a layer's products",
          .knob = "delay_wgrad_compute",
          .on = &Overlap::delay_wgrad_compute,
          .applies = can_pair,
          .configure = turn_pairs_on,
          .gates = add_gates_of_delay,
          .rewrite = prioritise};
}

OverlapMode ep_overlap_early_attn_memory_release_mode() {
  return {.name = "ep_overlap_early_attn_memory_release",
          .meaning =
              "as overlap_moe_expert_parallel_comm, with the gradient of attention before the experts of the "
              "other micro-batch",
          .memory = "activations of one more micro-batch",
          .knob = "ep_overlap_early_attn_memory_release",
          .on = &Overlap::ep_overlap_early_attn_memory_release,
          .applies = can_pair,
          .configure = turn_pairs_on,
          .gates = add_gates_of_early_release,
          .rewrite = prioritise};
}

}  // namespace stretto
