#include "model/overlap/overlap.hpp"

namespace stretto {

// One mode for each file of this folder.
OverlapMode plain_mode();
OverlapMode overlap_grad_reduce_mode(), overlap_param_gather_mode();
OverlapMode async_allreduce_mode();
OverlapMode tp_comm_bulk_mode(), tp_comm_overlap_mode(), tp_comm_ring_exchange_mode();
OverlapMode tp_flash_overlap_mode();
OverlapMode overlap_p2p_comm_mode();
OverlapMode cp_comm_overlap_mode(), cp_flash_overlap_mode();
OverlapMode fsdp_comm_overlap_mode();
OverlapMode overlap_moe_expert_parallel_comm_mode(), delay_wgrad_compute_mode();
OverlapMode ep_overlap_early_attn_memory_release_mode();
OverlapMode overlap_dispatch_backward_with_experts_wgrad_mode(), moe_shared_expert_overlap_mode();
OverlapMode ep_flash_overlap_mode();

const std::vector<OverlapMode>& overlap_modes() {
  static const std::vector<OverlapMode> kModes = {
      plain_mode(),
      overlap_grad_reduce_mode(),
      overlap_param_gather_mode(),
      async_allreduce_mode(),
      tp_comm_bulk_mode(),
      tp_comm_overlap_mode(),
      tp_comm_ring_exchange_mode(),
      tp_flash_overlap_mode(),
      overlap_p2p_comm_mode(),
      cp_comm_overlap_mode(),
      cp_flash_overlap_mode(),
      fsdp_comm_overlap_mode(),
      overlap_moe_expert_parallel_comm_mode(),
      delay_wgrad_compute_mode(),
      ep_overlap_early_attn_memory_release_mode(),
      overlap_dispatch_backward_with_experts_wgrad_mode(),
      moe_shared_expert_overlap_mode(),
      ep_flash_overlap_mode(),
  };
  return kModes;
}

}  // namespace stretto
