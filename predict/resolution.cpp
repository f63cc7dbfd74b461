#include "predict/resolution.hpp"

#include <fmt/format.h>

#include <cmath>

#include "predict/quick_step.hpp"
#include "report/units.hpp"

namespace stretto::predict {

bool is_resolved(double saved_ms, double step_ms) { return std::abs(saved_ms) >= kResolved * step_ms; }

std::optional<std::string> unresolved_graphs(const Scenario& scenario, const sim::Platform& platform,
                                             const sim::SimOptions& options, double step_ms) {
  if (!platform.accelerator || scenario.training.cuda_graph_modules.empty()) return std::nullopt;
  Scenario without = scenario;
  without.training.cuda_graph_modules.clear();
  const double saved_ms = 1e3 * QuickStep(without).step_s(platform, without.framework, options) - step_ms;
  if (is_resolved(saved_ms, step_ms)) return std::nullopt;
  return fmt::format(
      "cuda_graph_modules changes the step by {}, less than predictions resolve ({}): graphs act on the host's time "
      "alone here, and gaps between kernels, which they shorten too, are not modelled; benchmark them",
      percent_text(std::abs(saved_ms) / step_ms), percent_text(kResolved));
}

}  // namespace stretto::predict
