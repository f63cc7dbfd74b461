#include "model/overlap/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace stretto {

std::vector<Gate> gates_of(const Scenario& s) {
  const Parallel& p = s.parallel;
  const Overlap& o = s.overlap;
  std::vector<Gate> gates;
  const auto off = [&](const char* knob, bool asked, const std::string& needs, bool open, const std::string& why) {
    gates.push_back({knob, needs, false, asked, open, why});
  };
  const auto error = [&](const char* knob, bool asked, const std::string& needs, bool open) {
    gates.push_back({knob, needs, true, asked, open, ""});
  };
  const auto above_one = [&](const char* knob, bool asked, const std::string& key, std::int64_t size) {
    off(knob, asked, key + " above 1", size > 1, key + " is 1; it acts from 2 on");
  };
  const std::int64_t dp = p.data_parallel_size, tp = p.tensor_model_parallel_size, pp = p.pipeline_model_parallel_size,
                     vp = p.virtual_pipeline_model_parallel_size;
  above_one("overlap_grad_reduce", o.overlap_grad_reduce, "data_parallel_size", dp);
  above_one("overlap_param_gather", o.overlap_param_gather, "data_parallel_size", dp);
  error("overlap_param_gather", o.overlap_param_gather, "overlap_grad_reduce", o.overlap_grad_reduce);
  off("bucket_size", o.bucket_size > 0, "overlap_grad_reduce", o.overlap_grad_reduce,
      "it needs overlap_grad_reduce = true; the gradients of a model chunk are one bucket");
  off("align_param_gather", o.align_param_gather, "overlap_param_gather", o.overlap_param_gather,
      "it needs overlap_param_gather = true");
  above_one("align_param_gather", o.align_param_gather, "data_parallel_size", dp);
  above_one("align_param_gather", o.align_param_gather, "virtual_pipeline_model_parallel_size", vp);
  error("fp8_param_gather", false, "a precision of fp8, which there is not yet", false);
  above_one("sequence_parallel", p.sequence_parallel, "tensor_model_parallel_size", tp);
  constexpr const char* kAsync = "async_tensor_model_parallel_allreduce";
  above_one(kAsync, o.async_tensor_model_parallel_allreduce, "tensor_model_parallel_size", tp);
  off(kAsync, o.async_tensor_model_parallel_allreduce, "sequence_parallel off", !p.sequence_parallel,
      "sequence_parallel is on, which has no all-reduce; tp_comm_overlap acts");
  above_one("tp_comm_overlap", o.tp_comm_overlap, "tensor_model_parallel_size", tp);
  off("tp_comm_overlap", o.tp_comm_overlap, "sequence_parallel", p.sequence_parallel,
      "it needs sequence_parallel = true");
  for (const auto& [knob, asked] : {std::pair{"tp_comm_overlap_rs_dgrad", o.tp_comm_overlap_rs_dgrad},
                                    std::pair{"tp_comm_overlap_disable_qkv", o.tp_comm_overlap_disable_qkv},
                                    std::pair{"tp_comm_overlap_disable_fc1", o.tp_comm_overlap_disable_fc1},
                                    std::pair{"tp_comm_overlap_compute_lanes", o.tp_comm_overlap_compute_lanes > 1},
                                    std::pair{"tp_comm_overlap_cfg", !o.tp_comm_overlap_cfg.empty()}})
    off(knob, asked, "tp_comm_overlap", o.tp_comm_overlap, "it needs tp_comm_overlap = true");
  // As TransformerEngine: the pieces of a reduce-scatter beside dgrad leave nothing for bulk.
  for (const auto& [knob, asked] :
       {std::pair{"tp_comm_bulk_dgrad", o.tp_comm_bulk_dgrad}, std::pair{"tp_comm_bulk_wgrad", o.tp_comm_bulk_wgrad}})
    off(knob, asked && o.tp_comm_overlap, "tp_comm_overlap_rs_dgrad off", !o.tp_comm_overlap_rs_dgrad,
        "tp_comm_overlap_rs_dgrad is on, which reduces and scatters beside dgrad already");
  above_one("overlap_p2p_comm", o.overlap_p2p_comm, "pipeline_model_parallel_size", pp);
  error("overlap_p2p_comm", o.overlap_p2p_comm, "batch_p2p_comm not asked for", true);
  error("overlap_p2p_comm_warmup_flush", o.overlap_p2p_comm_warmup_flush, "overlap_p2p_comm", o.overlap_p2p_comm);
  above_one("overlap_p2p_comm_warmup_flush", o.overlap_p2p_comm_warmup_flush, "virtual_pipeline_model_parallel_size",
            vp);
  error("defer_embedding_wgrad_compute", o.defer_embedding_wgrad_compute, "pipeline_model_parallel_size above 1",
        pp > 1);
  error("wgrad_deferral_limit", o.wgrad_deferral_limit > 0, "defer_embedding_wgrad_compute",
        o.defer_embedding_wgrad_compute);
  off("gelu_fusion", s.training.gelu_fusion, "swiglu off", !s.model.swiglu,
      "the model has swiglu, which no product has as an epilogue");
  off("bias_gradient_fusion", s.training.bias_gradient_fusion, "add_bias_linear on", s.model.add_bias_linear,
      "the linear layers have no biases");
  off("residual_fusion", s.training.residual_fusion, "hidden_dropout 0", s.model.hidden_dropout == 0,
      "hidden_dropout is above 0 and comes between the product and the addition");
  off("residual_fusion", s.training.residual_fusion, "tensor_model_parallel_size 1", tp == 1,
      "tensor_model_parallel_size is above 1, and products are summed over ranks before the addition");
  off("channel_GBps", s.cluster.channel_GBps > 0, "max_ctas of a group", !s.cluster.max_ctas.empty(),
      "no group has channels; nccl_communicator_config.dp.max_ctas gives dp some");
  for (const auto& [group, key, size] :
       {std::tuple{"dp", "data_parallel_size", dp}, std::tuple{"tp", "tensor_model_parallel_size", tp},
        std::tuple{"pp", "pipeline_model_parallel_size", pp}, std::tuple{"embd", "pipeline_model_parallel_size", pp}}) {
    const std::string config = "nccl_communicator_config." + std::string(group);
    if (s.cluster.max_ctas.contains(group)) above_one(config.c_str(), true, key, size);
    const auto& first = s.cluster.high_priority_stream_groups;
    const std::string priority = "high_priority_stream_groups " + std::string(group);
    if (std::find(first.begin(), first.end(), group) != first.end()) above_one(priority.c_str(), true, key, size);
  }
  if (s.cluster.max_ctas.contains("embd"))
    off("nccl_communicator_config.embd", true, "tied embeddings", !s.model.untie_embeddings_and_output_weights,
        "untie_embeddings_and_output_weights is on, and nothing is summed");
  above_one("account_for_embedding_in_pipeline_split", p.account_for_embedding_in_pipeline_split,
            "pipeline_model_parallel_size", pp);
  above_one("account_for_loss_in_pipeline_split", p.account_for_loss_in_pipeline_split, "pipeline_model_parallel_size",
            pp);
  above_one("microbatch_group_size_per_vp_stage", p.microbatch_group_size_per_vp_stage > 0,
            "virtual_pipeline_model_parallel_size", vp);
  error("virtual_pipeline_model_parallel_size", vp > 1, "pipeline_model_parallel_size above 1", pp > 1);
  error("virtual_pipeline_model_parallel_size", vp > 1,
        "micro-batches in groups of at least pipeline_model_parallel_size, none or as many left over", true);
  return gates;
}

bool acts(const std::vector<Gate>& gates, const std::string& knob) {
  return std::all_of(gates.begin(), gates.end(),
                     [&](const Gate& gate) { return gate.knob != knob || (gate.asked && gate.open); });
}

std::vector<std::string> notes_of(const std::vector<Gate>& gates) {
  std::vector<std::string> notes;
  for (const Gate& gate : gates) {
    const std::string start = gate.knob + " is off: ";
    const bool is_said = !notes.empty() && notes.back().starts_with(start);
    if (gate.asked && !gate.open && !is_said) notes.push_back(start + gate.why);
  }
  return notes;
}

std::string print_gates(const std::vector<Gate>& gates) {
  std::size_t knob_width = 4, needs_width = 5;
  for (const Gate& gate : gates) {
    knob_width = std::max(knob_width, gate.knob.size());
    needs_width = std::max(needs_width, gate.needs.size());
  }
  std::string out = fmt::format("{:<{}}  {:<9}  {:<{}}  {:<6}  {}\n", "knob", knob_width, "asked for", "needs",
                                needs_width, "gate", "when closed");
  for (const Gate& gate : gates)
    out += fmt::format("{:<{}}  {:<9}  {:<{}}  {:<6}  {}\n", gate.knob, knob_width, gate.asked ? "yes" : "no",
                       gate.needs, needs_width, gate.open ? "open" : "closed",
                       gate.is_error ? "an error"
                       : gate.open   ? "off"
                                     : "off: " + gate.why);
  return out;
}

}  // namespace stretto
