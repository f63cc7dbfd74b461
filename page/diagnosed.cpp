#include "page/diagnosed.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "diagnose/diagnose.hpp"
#include "diagnose/page.hpp"
#include "page/drawn_step.hpp"
#include "report/prediction.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;
using diagnose::MeasuredRank;
using diagnose::PlacedKernel;

constexpr std::size_t kMostSlices = 3000;  // of a side
// Operations over which the measured step is looked at for where it loses time: about a layer's, forward.
constexpr std::size_t kStretch = 24;

struct Slice {
  std::size_t kind = 0;
  Picoseconds start = 0, end = 0;
};

// An operation that computes and was matched, on both sides.
struct Pair {
  std::uint32_t op = 0;
  Picoseconds predicted = 0, measured = 0;  // starts
};

class TwoTimelines {
 public:
  TwoTimelines(const Schedule& schedule, const MeasuredRank& rank) : schedule_(schedule), rank_(rank) {}

  // Adds `kinds`, `predicted`, `measured` and `anchor`.
  void add_to(Json& answer) {
    const std::vector<Pair> pairs = this->pairs();
    std::vector<Slice> predicted = predicted_slices(), measured = measured_slices();
    const Pair* anchor = anchor_of(pairs);
    answer["anchor"] = nullptr;
    if (anchor)
      answer["anchor"] = {
          {"name", name_of_op(anchor->op)}, {"predicted", anchor->predicted}, {"measured", anchor->measured}};
    answer["predicted"] = around(predicted, anchor ? anchor->predicted : 0);
    answer["measured"] = around(measured, anchor ? anchor->measured : 0);
    answer["kinds"] = std::move(kinds_);
  }

 private:
  const Operation& operation_of(std::uint32_t op) const {
    return schedule_.operations[rank_.predicted.program->ops[op].op];
  }
  std::string name_of_op(std::uint32_t op) const { return operation_of(op).name; }

  std::size_t kind_of(std::string name, Json phase, Json axis) {
    const auto [found, is_new] = kind_index_.try_emplace({name, phase.dump() + axis.dump()}, kinds_.size());
    if (is_new) kinds_.push_back({{"name", std::move(name)}, {"phase", std::move(phase)}, {"axis", std::move(axis)}});
    return found->second;
  }
  std::size_t kind_of_op(std::uint32_t op) {
    const Operation& operation = operation_of(op);
    if (!is_communication(operation.work))
      return kind_of(operation.name, operation.is_recomputed() ? "recompute" : name_of(operation.phase), nullptr);
    const Communicator& communicator = schedule_.communicators[communicator_of(operation.work)];
    return kind_of(operation.name, name_of(operation.phase), name_of(axis_of(communicator.axes)));
  }

  std::vector<Slice> predicted_slices() {
    std::vector<Slice> slices;
    for (std::uint32_t op = 0; op < rank_.predicted.rows.size(); ++op)
      if (const TimelineRow* row = rank_.predicted.rows[op])
        slices.push_back({kind_of_op(op), row->transfer - rank_.predicted.begin, row->moved() - rank_.predicted.begin});
    return slices;
  }

  std::vector<Slice> measured_slices() {
    std::vector<Slice> slices;
    for (const PlacedKernel& placed : rank_.placed.kernels) {
      const trace::Kernel& kernel = rank_.kernel(placed);
      const bool moves = trace::is_communication(kernel.cls);
      const Picoseconds start = moves ? std::max(placed.transfer, kernel.start) : kernel.start;
      std::size_t kind = 0;
      if (placed.op != diagnose::kNoOperation)
        kind = kind_of_op(static_cast<std::uint32_t>(placed.op));
      else
        kind = kind_of(diagnose::short_name(rank_.trace->name_of(kernel)), nullptr, moves ? Json("") : Json(nullptr));
      slices.push_back({kind, start - rank_.period.begin, kernel.end - rank_.period.begin});
    }
    return slices;
  }

  std::vector<Pair> pairs() const {
    std::vector<Pair> pairs;
    for (const PlacedKernel& placed : rank_.placed.kernels) {
      if (placed.op == diagnose::kNoOperation) continue;
      const auto op = static_cast<std::uint32_t>(placed.op);
      if (op >= rank_.predicted.rows.size() || !rank_.predicted.rows[op]) continue;
      if (is_communication(operation_of(op).work)) continue;
      if (!pairs.empty() && pairs.back().op == op) continue;  // a further kernel of it
      pairs.push_back({op, rank_.predicted.rows[op]->start - rank_.predicted.begin,
                       rank_.kernel(placed).start - rank_.period.begin});
    }
    return pairs;
  }

  // Returns null where there are no pairs.
  static const Pair* anchor_of(const std::vector<Pair>& pairs) {
    const Pair* found = nullptr;
    Picoseconds most = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const Pair &from = pairs[i], &to = pairs[std::min(i + kStretch, pairs.size() - 1)];
      const Picoseconds lost = (to.measured - to.predicted) - (from.measured - from.predicted);
      if (found && lost <= most) continue;
      found = &from;
      most = lost;
    }
    return found;
  }

  static Json around(std::vector<Slice>& slices, Picoseconds middle) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.start < b.start; });
    const auto at = static_cast<std::size_t>(
        std::find_if(slices.begin(), slices.end(), [&](const Slice& one) { return one.start >= middle; }) -
        slices.begin());
    const std::size_t first = std::min(at - std::min(at, kMostSlices / 2), slices.size());
    const std::size_t past = std::min(first + kMostSlices, slices.size());
    Json list = Json::array();
    for (std::size_t i = first; i < past; ++i) list.push_back({slices[i].kind, slices[i].start, slices[i].end});
    return list;
  }

  const Schedule& schedule_;
  const MeasuredRank& rank_;
  std::map<std::pair<std::string, std::string>, std::size_t> kind_index_;
  Json kinds_ = Json::array();
};

}  // namespace

Json diagnosed_json(const ask::Asked& asked, const std::string& file) {
  const diagnose::Traces traces = diagnose::read_traces({file}, -1, "");
  diagnose::require_same_gpu(traces, *asked.platform);
  const predict::PredictedStep& step = drawn_step(asked).step();
  const bool on_gpu = asked.platform->gpu.has_value() || asked.platform->accelerator.has_value();
  const diagnose::Diagnosed diagnosed = diagnose::diagnose(step, traces, asked.scenario.name, on_gpu);
  const diagnose::Diagnosis& d = diagnosed.diagnosis;
  const MeasuredRank& rank = *std::find_if(diagnosed.ranks.begin(), diagnosed.ranks.end(),
                                           [&](const MeasuredRank& one) { return one.rank() == d.rank; });
  Json axes = Json::array();
  for (const diagnose::Gap& gap : d.gaps)
    axes.push_back(gap.communicator == diagnose::kNoCommunicator
                       ? Json(nullptr)
                       : Json(name_of(axis_of(step.schedule.communicators[gap.communicator].axes))));
  Json answer = {{"diagnosis", diagnosis_json(diagnosed, traces, step.prediction)},
                 {"text", diagnosis_text(diagnosed, traces, step.prediction)},
                 {"axes", std::move(axes)},
                 {"step_ps", {{"predicted", rank.predicted.period}, {"measured", rank.length()}}}};
  TwoTimelines(step.schedule, rank).add_to(answer);
  return answer;
}

}  // namespace stretto::page
