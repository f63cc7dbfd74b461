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
  FrameworkHost& host = f.host;
  constants.insert(constants.end(), {{"host.issue_us", &host.issue_us},
                                     {"host.collective_issue_us", &host.collective_issue_us},
                                     {"host.cpp_us", &host.cpp_us}});
  // A factor of 1 that no file states is no number of the prediction.
  if (!host.python.source.origin.empty()) constants.push_back({"host.python", &host.python});
  // Kinds without an interval are measured against each other; what is not known of them is the factor of Python.
  for (int i = 0; i < kHostKinds; ++i) {
    const std::string name = std::string("host.us.") + name_of(static_cast<HostKind>(i));
    HostTime& time = host.us[static_cast<std::size_t>(i)];
    if (time.forward && time.forward->high > 0) constants.push_back({name, &*time.forward});
    if (time.backward && time.backward->high > 0) constants.push_back({name + "_backward", &*time.backward});
  }
  return constants;
}

}  // namespace stretto::predict
