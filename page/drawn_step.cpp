#include "page/drawn_step.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "page/scenario_toml.hpp"
#include "sim/accelerator/group_span.hpp"

namespace stretto::page {

DrawnStep::DrawnStep(const ask::Asked& asked)
    : platform_(asked.platform), step_(predict::predict_step(asked.scenario, *asked.platform)) {}

std::size_t DrawnStep::program_of(std::int64_t rank) const {
  if (rank < 0 || rank >= step_.schedule.mesh.ranks())
    throw input_error("gpu: expected 0 to " + std::to_string(step_.schedule.mesh.ranks() - 1) + ", got " +
                      std::to_string(rank));
  return step_.result.folding.index_of(rank);
}

DrawnStep::Rows DrawnStep::rows_of(std::size_t program) const {
  const std::vector<TimelineRow>& all = step_.result.timeline.rows;
  const std::int64_t rank = step_.result.programs[program].rank;
  const auto begin =
      std::partition_point(all.begin(), all.end(), [&](const TimelineRow& row) { return row.rank < rank; });
  const auto end = std::partition_point(begin, all.end(), [&](const TimelineRow& row) { return row.rank <= rank; });
  return {all.data() + (begin - all.begin()), all.data() + (end - all.begin())};
}

const std::vector<LostTime>& DrawnStep::lost(std::size_t program) {
  const auto found = lost_.find(program);
  if (found != lost_.end()) return found->second;
  return lost_[program] = lost_times(step_.schedule, step_.result.programs[program], step_.result.timeline);
}

DrawnStep& drawn_step(const ask::Asked& asked) {
  static std::optional<DrawnStep> last;
  static std::string last_text;
  static std::shared_ptr<const sim::Platform> last_platform;
  // The text has the contents of dropped files, whose names may be used again.
  const std::string text = scenario_toml(asked.request.scenario, asked.request.set, asked.request.platform);
  if (last && text == last_text && asked.platform == last_platform) return *last;
  last.reset();  // before the next one takes its memory
  last.emplace(asked);
  last_text = text;
  last_platform = asked.platform;
  return *last;
}

nlohmann::json link_json(const DrawnStep& drawn, const Communicator& communicator) {
  const auto& accelerator = drawn.platform().accelerator;
  if (!accelerator) return {{"link", nullptr}, {"link_GBps", nullptr}};
  const sim::GroupSpan span = sim::span_of(drawn.step().schedule, communicator, accelerator->domain, accelerator->pod);
  const bool leaves = span.nodes > 1;
  return {{"link", name_of(leaves ? LinkKind::network : LinkKind::nvlink)},
          {"link_GBps", leaves ? accelerator->card_GBps(span.leaving) : accelerator->nvlink.GBps.value}};
}

}  // namespace stretto::page
