#include "compare/constants.hpp"

namespace stretto::compare {

std::vector<Constant> constants_of(sim::Accelerator& a, Framework& f) {
  std::vector<Constant> constants = {{"accelerator.peak_TFLOPs", &a.peak_TFLOPs},
                                     {"accelerator.hbm_GBps", &a.hbm_GBps},
                                     {"accelerator.gemm_odd", &a.gemm_odd},
                                     {"accelerator.gemm_unaligned", &a.gemm_unaligned},
                                     {"accelerator.gemm_share", &a.gemm_share},
                                     {"accelerator.nvlink.GBps", &a.nvlink.GBps},
                                     {"accelerator.nvlink.latency_us", &a.nvlink.latency_us},
                                     {"accelerator.network.GBps", &a.network.GBps},
                                     {"accelerator.network.latency_us", &a.network.latency_us},
                                     {"accelerator.network_share", &a.network_share}};
  const auto add = [&](const char* key, std::optional<Quantity>& own, Quantity& platform) {
    constants.push_back(own ? Constant{std::string("kernels.") + key, &*own}
                            : Constant{std::string("accelerator.") + key, &platform});
  };
  add("gemm_sustained", f.gemm_sustained, a.gemm_sustained);
  add("hbm_share", f.hbm_share, a.hbm_share);
  add("kernel_us", f.kernel_us, a.kernel_us);
  add("bmm_share", f.bmm_share, a.bmm_share);
  add("collective_in_step_us", f.collective_in_step_us, a.collective_in_step_us);
  if (f.attention_kernel != sim::kUnfused) {
    const std::string used = a.attention_named(f.attention_kernel).name;
    for (sim::AttentionKernel& kernel : a.attention) {
      if (kernel.name != used) continue;
      constants.push_back({"accelerator.attention." + used + ".forward_TFLOPs", &kernel.forward_TFLOPs});
      constants.push_back({"accelerator.attention." + used + ".backward_TFLOPs", &kernel.backward_TFLOPs});
    }
  }
  for (auto& [kind, bytes] : f.element_bytes) constants.push_back({"element_bytes." + kind, &bytes});
  constants.insert(constants.end(), {{"host.issue_us", &f.issue_us},
                                     {"host.collective_issue_us", &f.collective_issue_us},
                                     {"host.micro_batch_us", &f.micro_batch_us},
                                     {"host.step_us", &f.step_us}});
  return constants;
}

}  // namespace stretto::compare
