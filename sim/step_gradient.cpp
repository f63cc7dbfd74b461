#include "sim/step_gradient.hpp"

#include <cmath>
#include <utility>

#include "sim/step_causes.hpp"

namespace stretto::sim {
namespace {

// A steady step depends on steps before it only by when they ended: two ends of steps soon have equal causes. A walk
// that has not come so far in as many steps is given up.
constexpr std::int32_t kMostStepsAgo = 3, kMostStepsAhead = 2;
constexpr double kNothing = 1e-9;

// The walk back. Each time that is reached has a weight, by which the result changes with it.
class Walk {
 public:
  Walk(const SimInputs& inputs, const StepCauses& causes) : causes_(causes) {
    const std::size_t operations = inputs.schedule.operations.size();
    gradient_.computes.resize(operations);
    gradient_.moves.resize(operations);
    gradient_.slows.resize(operations);
    gradient_.slowed.resize(operations);
    for (const BoundProgram& program : inputs.programs) {
      gradient_.issued.emplace_back(program.ops.size());
      gradient_.awaited.emplace_back(program.ops.size());
    }
    steps_.resize(kMostStepsAgo + kMostStepsAhead + 1);
  }

  struct At {
    TimeId time = 0;
    std::int32_t steps_ago = 0;
  };
  void add(const At& at, double weight) { node(at).weight += weight; }

  // Walks from the times that have a weight. Returns false where a time has no cause.
  bool run(const std::vector<At>& from) {
    for (const At& at : from)
      if (!list(at)) return false;
    // After the last time that follows from a time, the weight of that time is complete.
    Explanation why;
    for (std::size_t i = order_.size(); i-- > 0;) {
      const At at = order_[i];
      Node& mine = node(at);
      mine.is_done = true;
      const double weight = mine.weight;
      if (weight == 0 || !causes_.explain(at.time, why)) continue;
      for (const Explanation::Time& cause : why.times) {
        const At other{cause.time, at.steps_ago + cause.steps_ago};
        if (!is_inside(other)) {
          far_ += std::abs(weight * cause.weight);
          continue;
        }
        if (node(other).is_done) return false;
        node(other).weight += weight * cause.weight;
      }
      for (const Explanation::Part& part : why.parts) count(part, weight * part.weight);
    }
    return true;
  }
  double far() const { return far_; }  // weight that came to no rest
  StepGradient take() { return std::move(gradient_); }

 private:
  struct Node {
    double weight = 0;
    bool is_listed = false, is_open = false, is_done = false;
  };
  static bool is_inside(const At& at) { return at.steps_ago >= -kMostStepsAhead && at.steps_ago <= kMostStepsAgo; }
  Node& node(const At& at) {
    std::vector<Node>& step = steps_[static_cast<std::size_t>(at.steps_ago + kMostStepsAhead)];
    if (step.empty()) step.resize(causes_.times());
    return step[at.time];
  }

  // Lists a time after all times that it follows from.
  bool list(const At& from) {
    Explanation why;
    std::vector<At> open = {from};
    while (!open.empty()) {
      const At at = open.back();
      Node& mine = node(at);
      if (mine.is_listed || mine.is_open) {
        open.pop_back();
        if (!mine.is_listed) mine.is_listed = true, order_.push_back(at);
        continue;
      }
      mine.is_open = true;
      if (!causes_.explain(at.time, why)) return false;
      for (const Explanation::Time& cause : why.times) {
        const At other{cause.time, at.steps_ago + cause.steps_ago};
        if (is_inside(other) && !node(other).is_open) open.push_back(other);
      }
    }
    return true;
  }

  void count(const Explanation::Part& part, double weight) {
    using Cost = Explanation::Cost;
    const auto cls = static_cast<std::size_t>(part.cls);
    switch (part.cost) {
      case Cost::computes:
        gradient_.computes[part.of] += weight;
        break;
      case Cost::moves:
        gradient_.moves[part.of] += weight;
        break;
      case Cost::slows:
        gradient_.slows[part.of][cls] += weight;
        break;
      case Cost::slowed:
        gradient_.slowed[part.of][cls] += weight;
        break;
      case Cost::issued:
      case Cost::awaited: {
        const StepCauses::Place place = causes_.place_of(part.of);
        (part.cost == Cost::issued ? gradient_.issued : gradient_.awaited)[place.program][place.op] += weight;
      }
    }
  }

  const StepCauses& causes_;
  std::vector<std::vector<Node>> steps_;  // [steps ago + kMostStepsAhead][TimeId]; empty: not reached
  std::vector<At> order_;
  double far_ = 0;
  StepGradient gradient_;
};

}  // namespace

double StepGradient::change(const OpCosts& from, const OpCosts& to) const {
  double longer = 0;
  for (std::size_t op = 0; op < computes.size(); ++op) {
    longer += computes[op] * static_cast<double>(to.compute[op].alone - from.compute[op].alone);
    const CollectiveCost &before = from.collective[op], &now = to.collective[op];
    longer += moves[op] * static_cast<double>(now.movement.alone - before.movement.alone);
    if (!before.interference || !now.interference) continue;
    for (std::size_t cls = 0; cls < kDemandClasses; ++cls)
      longer += slows[op][cls] * (now.interference->slows[cls] - before.interference->slows[cls]) +
                slowed[op][cls] * (now.interference->slowed[cls] - before.interference->slowed[cls]);
  }
  return longer;
}

double StepGradient::change(const SimInputs& inputs, const std::vector<std::shared_ptr<const FlatProgram>>& from,
                            const std::vector<std::shared_ptr<const FlatProgram>>& to) const {
  double longer = 0;
  for (std::size_t p = 0; p < issued.size(); ++p)
    for (std::uint32_t i = 0; i < issued[p].size(); ++i) {
      if (issued[p][i] == 0 && awaited[p][i] == 0) continue;
      const BoundOp& op = inputs.programs[p].ops[i];
      const std::uint32_t at = from[p]->lane_begin[op.lane] + op.position;
      const FlatOp &before = from[p]->ops[at], &now = to[p]->ops[at];
      longer += issued[p][i] * static_cast<double>(now.issued - before.issued) +
                awaited[p][i] * static_cast<double>(now.awaited - before.awaited);
    }
  return longer;
}

std::optional<StepGradient> gradient_of(const SimInputs& inputs, const Timeline& timeline,
                                        const std::optional<Round>& round, std::int64_t rounds, std::string* why_not) {
  const auto give_up = [&](const std::string& why) {
    if (why_not) *why_not = why;
    return std::nullopt;
  };
  const StepCauses causes(inputs, timeline);
  if (!causes.why_not().empty()) return give_up(causes.why_not());
  // A step is from one end to the next, and a round from an operation's end to that of its twin.
  Walk walk(inputs, causes);
  const TimeId end = causes.id(causes.last_row(), RowTime::end);
  std::vector<Walk::At> from = {{end, 0}, {end, 1}};
  walk.add({end, 0}, 1);
  walk.add({end, 1}, -1);
  if (rounds > 0) {
    if (!round || !round->is_of_all) return give_up("it has no round of all ranks");
    const std::optional<std::uint32_t> first = causes.last_row_before(round->begin);
    const std::optional<std::uint32_t> twin = first ? causes.twin_of(*first, round->period) : std::nullopt;
    if (!twin) return give_up("the last operation of its round has no twin");
    const auto times = static_cast<double>(rounds);
    for (const auto& [row, weight] : {std::pair(*twin, times), std::pair(*first, -times)}) {
      walk.add({causes.id(row, RowTime::end), 0}, weight);
      from.push_back({causes.id(row, RowTime::end), 0});
    }
  }
  if (!walk.run(from)) return give_up("a time has no cause");
  if (walk.far() > kNothing * static_cast<double>(1 + rounds)) return give_up("steps before do not cease to matter");
  return walk.take();
}

}  // namespace stretto::sim
