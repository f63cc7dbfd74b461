#include "predict/constants.hpp"

#include <map>
#include <optional>

#include "sim/accelerator/numbers.hpp"

namespace stretto::predict {

std::vector<Constant> constants_of(sim::Accelerator& a, Framework& f) {
  const std::map<std::string, std::optional<Quantity>*> own = {{"gemm_sustained", &f.gemm_sustained},
                                                               {"hbm_share", &f.hbm_share},
                                                               {"kernel_us", &f.kernel_us},
                                                               {"bmm_share", &f.bmm_share},
                                                               {"collective_in_step_us", &f.collective_in_step_us}};
  std::vector<Constant> constants;
  for (const sim::AcceleratorNumber& number : numbers_of(a)) {
    if (number.quantity == &a.reserved_bytes) continue;  // a number of memory, not of time
    const auto found = own.find(number.name());
    if (found != own.end() && *found->second)
      constants.push_back({"kernels." + number.name(), &**found->second});
    else
      constants.push_back({"accelerator." + number.name(), number.quantity});
  }
  const std::string used = a.attention_named(f.attention_kernel).name;
  for (sim::AttentionKernel& kernel : a.attention) {
    if (kernel.name != used) continue;
    constants.push_back({"accelerator.attention." + used + ".forward_TFLOPs", &kernel.forward_TFLOPs});
    constants.push_back({"accelerator.attention." + used + ".backward_TFLOPs", &kernel.backward_TFLOPs});
  }
  for (auto& [kind, bytes] : f.element_bytes) constants.push_back({"element_bytes." + kind, &bytes});
  constants.insert(constants.end(), {{"host.issue_us", &f.issue_us},
                                     {"host.collective_issue_us", &f.collective_issue_us},
                                     {"host.micro_batch_us", &f.micro_batch_us},
                                     {"host.part_us", &f.part_us},
                                     {"host.recompute_us", &f.recompute_us},
                                     {"host.step_us", &f.step_us}});
  return constants;
}

}  // namespace stretto::predict
