#include <algorithm>

#include "base/error.hpp"
#include "model/overlap/overlap.hpp"

namespace stretto {

const std::vector<OverlapMode>& overlap_modes() {
  static const std::vector<OverlapMode> kModes = {
      {"plain", "nothing overlaps: backward, reduce-scatter, optimizer, all-gather one after the other",
       [](Overlap& o) { o.overlap_grad_reduce = o.overlap_param_gather = false; }},
      {"overlap_grad_reduce", "gradient buckets are reduced while backward goes on",
       [](Overlap& o) { o.overlap_grad_reduce = true, o.overlap_param_gather = false; }},
      {"overlap_param_gather",
       "also: parameter buckets are gathered while the next forward goes on (needs overlap_grad_reduce)",
       [](Overlap& o) { o.overlap_grad_reduce = o.overlap_param_gather = true; }},
  };
  return kModes;
}

const OverlapMode& find_overlap_mode(const std::string& name) {
  std::vector<std::string> names;
  for (const OverlapMode& mode : overlap_modes()) {
    if (mode.name == name) return mode;
    names.push_back(mode.name);
  }
  std::string message = "mode \"" + name + "\" is unknown; expected one of";
  for (const std::string& known : names) message += " " + known;
  if (const std::string nearest = nearest_spelling(name, names); !nearest.empty())
    message += "; did you mean \"" + nearest + "\"?";
  throw input_error(message);
}

std::string mode_name(const Overlap& overlap) {
  if (overlap.overlap_param_gather) return "overlap_param_gather";
  return overlap.overlap_grad_reduce ? "overlap_grad_reduce" : "plain";
}

Schedule build_schedule(const Scenario& scenario) {
  Lowered lowered = lower_plain(scenario);
  const bool communicates = scenario.parallel.data_parallel_size > 1;
  auto gated = [&](const char* knob) {
    if (!communicates)
      lowered.schedule.notes.push_back(std::string(knob) + " is off: data_parallel_size is 1; it acts from 2 on");
    return communicates;
  };
  if (scenario.overlap.overlap_grad_reduce && gated("overlap_grad_reduce")) rewrite_overlap_grad_reduce(lowered);
  if (scenario.overlap.overlap_param_gather && gated("overlap_param_gather")) rewrite_overlap_param_gather(lowered);
  lowered.schedule.name = mode_name(scenario.overlap);
  return std::move(lowered.schedule);
}

Scenario with_mode(Scenario scenario, const std::string& mode, std::int64_t data_parallel_size) {
  const std::int64_t micro_batches = scenario.num_microbatches();
  find_overlap_mode(mode).configure(scenario.overlap);
  scenario.parallel.data_parallel_size = data_parallel_size;
  scenario.training.global_batch_size = micro_batches * scenario.training.micro_batch_size * data_parallel_size;
  return scenario;
}

}  // namespace stretto
