#include "sim/components.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

namespace stretto::sim {
namespace {

// Sets of programs that are joined.
class Joined {
 public:
  explicit Joined(std::size_t programs) : parent_(programs) { std::iota(parent_.begin(), parent_.end(), 0u); }
  std::uint32_t find(std::uint32_t program) {
    while (parent_[program] != program) program = parent_[program] = parent_[parent_[program]];
    return program;
  }
  void join(std::uint32_t a, std::uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<std::uint32_t> parent_;
};

// Calls `meets(other)` for each program that takes part in the communication of the program's operation.
template <class Meets>
void each_partner(const SimInputs& inputs, std::uint32_t program, OpId id, Meets meets) {
  const Work& work = inputs.schedule.operations[id].work;
  if (!is_communication(work)) return;
  const Partners& partners = inputs.partners;
  if (std::holds_alternative<PointToPoint>(work)) {
    const std::uint32_t route = partners.route_of[program][id];
    if (route == Partners::kNone) return;
    meets(partners.routes[route].from);
    meets(partners.routes[route].to);
    return;
  }
  const std::uint32_t instance = partners.instance_of[program][communicator_of(work)];
  if (instance == Partners::kNone) return;
  for (const std::uint32_t member : partners.instances[instance].members) meets(member);
}

// Returns the time at which the first communication that components share after their rounds begins to move bytes;
// kHorizon where there is none. `only_faster` becomes true when no slow component takes part in it.
Picoseconds first_shared(const SimInputs& inputs, const std::vector<Component>& components,
                         const std::vector<std::uint32_t>& component_of, const std::vector<bool>& is_slow,
                         std::vector<std::vector<bool>>& is_shared, bool& only_faster) {
  Picoseconds first = kHorizon;
  only_faster = false;
  for (const Component& component : components)
    for (const RankRows& part : component.parts) {
      std::vector<bool>& shared = is_shared[part.index];
      shared.assign(part.rows.size(), false);
      for (std::uint32_t i = 0; i < part.rows.size(); ++i) {
        bool leaves = false, meets_slow = false;
        each_partner(inputs, part.index, part.program->ops[i].op, [&](std::uint32_t other) {
          leaves = leaves || component_of[other] != component_of[part.index];
          meets_slow = meets_slow || is_slow[component_of[other]];
        });
        if (!leaves || part.rows[i].end <= component.round.begin) continue;
        shared[i] = true;
        if (part.rows[i].transfer < first || (part.rows[i].transfer == first && !meets_slow)) {
          first = part.rows[i].transfer;
          only_faster = !meets_slow;
        }
      }
    }
  return first;
}

// Returns whether nothing of the part is active at `moment` but communication that waits for others, and whether all
// that comes later follows from others.
bool is_at_rest(const RankRows& part, const std::vector<bool>& is_shared, Picoseconds moment, Picoseconds delay) {
  for (std::uint32_t i = 0; i < part.rows.size(); ++i) {
    const TimelineRow& row = part.rows[i];
    if (row.ready <= moment) {
      const bool has_ended = row.end + delay < moment, waits = is_shared[i] && row.start < moment;
      if (!has_ended && !waits) return false;
    }
    if (part.host.issued.empty()) continue;
    // The host of a step with more rounds has issued all that it issues on its own still earlier.
    const IssueTimes::Segment& segment = part.host.segments[part.host.segment_of[i]];
    if (row.ready > moment && segment.begin <= moment && part.host.issued[i] >= moment) return false;
  }
  for (std::size_t s = 1; s < part.host.segments.size(); ++s) {
    const IssueTimes::Segment& segment = part.host.segments[s];
    if (segment.begin > moment && part.host.segments[s - 1].begin <= moment && segment.begin <= segment.waits_from)
      return false;
  }
  return true;
}

}  // namespace

std::vector<Component> components_of(const SimInputs& inputs, std::vector<RankRows> parts) {
  Joined joined(parts.size());
  std::map<std::int64_t, std::uint32_t> on_device;
  const std::int64_t ranks_per_device = std::max<std::int64_t>(1, inputs.schedule.placement.ranks_per_device);
  for (const RankRows& part : parts) {
    joined.join(part.index, on_device.try_emplace(part.program->rank / ranks_per_device, part.index).first->second);
    std::vector<bool> seen(inputs.schedule.operations.size());
    for (std::uint32_t i = 0; i < part.rows.size(); ++i) {
      const OpId id = part.program->ops[i].op;
      const bool is_of_round = part.twins->twin[i] != kNoTwin;
      if (!is_of_round || seen[id]) continue;
      seen[id] = true;
      each_partner(inputs, part.index, id, [&](std::uint32_t other) { joined.join(part.index, other); });
    }
  }
  std::map<std::uint32_t, Component> components;
  for (RankRows& part : parts) {
    const std::uint32_t of = joined.find(part.index);
    components[of].parts.push_back(std::move(part));
  }
  std::vector<Component> result;
  for (auto& entry : components) result.push_back(std::move(entry.second));
  return result;
}

bool others_wait(const SimInputs& inputs, const std::vector<Component>& components, Picoseconds longest) {
  std::vector<std::uint32_t> component_of(inputs.programs.size());
  std::vector<bool> is_slow;
  for (std::uint32_t c = 0; c < components.size(); ++c) {
    is_slow.push_back(components[c].round.period == longest);
    for (const RankRows& part : components[c].parts) component_of[part.index] = c;
  }
  std::vector<std::vector<bool>> is_shared(inputs.programs.size());
  bool only_faster = false;
  const Picoseconds moment = first_shared(inputs, components, component_of, is_slow, is_shared, only_faster);
  // Components that share nothing would part further in each step, and have no steady period.
  if (moment == kHorizon || only_faster) return false;
  // A lane may begin so much later than what it waited for.
  const Picoseconds delay = inputs.costs.wake + inputs.costs.op_overhead;
  for (const Component& component : components) {
    if (moment < component.round.begin + component.round.period) return false;
    if (component.round.period == longest) continue;
    for (const RankRows& part : component.parts)
      if (!is_at_rest(part, is_shared[part.index], moment, delay)) return false;
  }
  return true;
}

}  // namespace stretto::sim
