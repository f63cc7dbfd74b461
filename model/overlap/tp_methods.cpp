#include "model/overlap/tp_methods.hpp"

namespace stretto {

TpMethods tp_methods(const Overlap& overlap, const Transformer& model, std::int64_t tp,
                     std::vector<std::string>& notes) {
  const auto resolved = [&](const std::string& name, bool is_on, TpMethod by_default) {
    TpGemm gemm{is_on ? by_default : TpMethod::none};
    if (const auto given = overlap.tp_comm_overlap_cfg.find(name); given != overlap.tp_comm_overlap_cfg.end())
      gemm = given->second;
    const auto close = [&](const std::string& why) {
      notes.push_back("tp_comm_overlap of " + name + " is off: " + why);
      gemm.method = TpMethod::none;
    };
    if (gemm.method == TpMethod::pipeline && model.hidden_size % gemm.num_splits != 0)
      close("hidden_size " + std::to_string(model.hidden_size) + " does not divide into num_splits " +
            std::to_string(gemm.num_splits));
    if (gemm.method == TpMethod::ring_exchange && gemm.aggregate && tp % 2 != 0)
      close("aggregate pairs ranks, and tensor_model_parallel_size is " + std::to_string(tp));
    return gemm;
  };
  const bool ag = overlap.tp_comm_overlap_ag, rs = overlap.tp_comm_overlap_rs,
             rs_dgrad = overlap.tp_comm_overlap_rs_dgrad;
  const bool qkv = !overlap.tp_comm_overlap_disable_qkv, fc1 = !overlap.tp_comm_overlap_disable_fc1;
  TpMethods m;
  m.qkv_fprop = resolved("qkv_fprop", ag && qkv, TpMethod::ring_exchange);
  m.fc1_fprop = resolved("fc1_fprop", ag && fc1, TpMethod::ring_exchange);
  m.proj_dgrad = resolved("proj_dgrad", ag, TpMethod::ring_exchange);
  m.fc2_dgrad = resolved("fc2_dgrad", ag, TpMethod::ring_exchange);
  m.proj_fprop = resolved("proj_fprop", rs, TpMethod::pipeline);
  m.fc2_fprop = resolved("fc2_fprop", rs, TpMethod::pipeline);
  const TpMethod dgrad = rs_dgrad ? TpMethod::pipeline : TpMethod::bulk;
  m.qkv_dgrad = resolved("qkv_dgrad", qkv && (rs_dgrad || overlap.tp_comm_bulk_dgrad), dgrad);
  m.fc1_dgrad = resolved("fc1_dgrad", fc1 && (rs_dgrad || overlap.tp_comm_bulk_dgrad), dgrad);
  // Where the reduce-scatter is in pieces beside dgrad, nothing of it is left for wgrad.
  const auto is_split = [](const TpGemm& gemm) {
    return gemm.method == TpMethod::ring_exchange || gemm.method == TpMethod::pipeline;
  };
  m.qkv_wgrad = resolved("qkv_wgrad", qkv && overlap.tp_comm_bulk_wgrad && !is_split(m.qkv_dgrad), TpMethod::bulk);
  m.fc1_wgrad = resolved("fc1_wgrad", fc1 && overlap.tp_comm_bulk_wgrad && !is_split(m.fc1_dgrad), TpMethod::bulk);
  return m;
}

}  // namespace stretto
