#include "diagnose/lanes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "diagnose/alignment.hpp"
#include "diagnose/groups.hpp"

namespace stretto::diagnose {
namespace {

using trace::Kernel;
using trace::KernelClass;
using trace::RankTrace;

class Placer {
 public:
  Placer(const Schedule& schedule, const PredictedRank& predicted, const RankTrace& trace, const Period& period)
      : schedule_(schedule), predicted_(predicted), program_(*predicted.program), trace_(trace), period_(period) {
    for (std::size_t i = 0; i < period.kernels.size(); ++i) {
      placed_.kernels.push_back({period.kernels[i]});
      index_of_[period.kernels[i]] = i;
    }
  }

  PlacedStep by_label() {
    std::unordered_map<std::string, std::uint32_t> op_of;
    for (std::uint32_t op = 0; op < program_.ops.size(); ++op) op_of[label(schedule_, program_.ops[op])] = op;
    std::vector<LaneId> lane_of(trace_.streams.size(), kNoLane);
    for (std::size_t s = 0; s < trace_.streams.size(); ++s)
      for (LaneId lane = 0; lane < schedule_.lanes.size(); ++lane)
        if (schedule_.lanes[lane].name == trace_.streams[s].name) lane_of[s] = lane;
    for (PlacedKernel& placed : placed_.kernels) {
      const Kernel& kernel = trace_.kernels[placed.kernel];
      placed.lane = lane_of[kernel.stream];
      const std::string& name = trace_.name_of(kernel);
      const auto found = op_of.find(name.substr(0, name.find('\n')));
      if (found != op_of.end() &&
          is_communication(program_.work_of(found->second)) == trace::is_communication(kernel.cls)) {
        placed.op = found->second;
        placed.lane = program_.ops[found->second].lane;
      }
      if (trace::is_communication(kernel.cls)) placed.communicator = communicator_of_kernel(placed, kernel);
    }
    return std::move(placed_);
  }

  PlacedStep by_kind() {
    place_communication();
    place_compute();
    return std::move(placed_);
  }

 private:
  const Kernel& kernel(std::uint32_t index) const { return trace_.kernels[index]; }
  const TimelineRow* row(std::uint32_t op) const { return predicted_.rows[op]; }

  // For an operation of Stretto's that the schedule does not have: the communicator of its lane.
  std::uint32_t communicator_of_kernel(const PlacedKernel& placed, const Kernel& kernel) const {
    if (placed.op != kNoOperation) return communicator_of(program_.work_of(static_cast<std::uint32_t>(placed.op)));
    if (placed.lane != kNoLane)
      for (const std::uint32_t op : program_.lanes[placed.lane])
        if (is_communication(program_.work_of(op))) return communicator_of(program_.work_of(op));
    for (std::uint32_t c = 0; c < schedule_.communicators.size(); ++c)
      if (schedule_.communicators[c].name == trace_.streams[kernel.stream].name) return c;
    return kNoCommunicator;
  }

  // Makes the items of operations; with `joins`, messages of one group are one item.
  std::vector<Item> items_of(const std::vector<std::uint32_t>& ops, bool joins) const {
    std::vector<Item> items;
    double place = 0;
    for (const std::uint32_t op : ops) {
      const TimelineRow* at = row(op);
      if (joins && program_.ops[op].joined && !items.empty()) {
        items.back().ops.push_back(op);
        continue;
      }
      Item item;
      item.ops = {op};
      item.operation = &schedule_.operations[program_.ops[op].op];
      if (at != nullptr) {
        item.us = to_us(at->moved() - at->transfer);
        place =
            std::max(place, double(at->start - predicted_.begin) / double(std::max<Picoseconds>(1, predicted_.period)));
      }
      item.place = place;
      if (joins) item.bytes = communicated_bytes(schedule_, *item.operation);
      items.push_back(std::move(item));
    }
    return items;
  }

  std::vector<Piece> pieces_of(const std::vector<std::uint32_t>& kernels) const {
    std::vector<Piece> pieces;
    const double length = double(std::max<Picoseconds>(1, period_.end - period_.begin));
    for (const std::uint32_t index : kernels) {
      const Kernel& of = kernel(index);
      pieces.push_back({index, of.cls, of.side, to_us(of.length()), double(of.start - period_.begin) / length,
                        communicated_bytes(trace_, of)});
    }
    return pieces;
  }

  void align_lane(const std::vector<std::uint32_t>& ops, const std::vector<std::uint32_t>& kernels, bool joins) {
    const std::vector<Item> items = items_of(ops, joins);
    const std::vector<Piece> pieces = pieces_of(kernels);
    const std::vector<std::int32_t> matched = align(items, pieces);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (matched[i] == kNoItem) continue;
      const Item& item = items[static_cast<std::size_t>(matched[i])];
      PlacedKernel& placed = placed_.kernels[index_of_.at(pieces[i].kernel)];
      placed.op = item.ops.front();
      placed.group = static_cast<std::uint32_t>(item.ops.size());
      placed.lane = program_.ops[item.ops.front()].lane;
    }
  }

  void place_communication() {
    const std::vector<KernelKind> kernels = kernel_kinds(trace_, period_.kernels);
    const std::vector<OperationKind> operations = operation_kinds(schedule_, program_);
    const std::vector<std::size_t> matched = match_kinds(kernels, operations);
    std::map<std::vector<LaneId>, std::vector<std::uint32_t>> of_lanes;
    std::set<std::pair<std::uint32_t, std::string>> named;  // stream and lane
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      if (matched[k] == kNoKind) continue;
      const OperationKind& kind = operations[matched[k]];
      for (const LaneId lane : kind.lanes) named.insert({kernels[k].stream, schedule_.lanes[lane].name});
      for (const std::uint32_t index : kernels[k].kernels) {
        PlacedKernel& placed = placed_.kernels[index_of_.at(index)];
        placed.communicator = kind.communicator;
        placed.lane = kind.lanes.front();
        of_lanes[kind.lanes].push_back(index);
      }
    }
    for (auto& [lanes, indices] : of_lanes) {
      std::sort(indices.begin(), indices.end());
      align_lane(communication_of(lanes), indices, true);
    }
    for (const auto& [stream, lane] : named) placed_.streams.push_back(trace_.streams[stream].name + ": " + lane);
  }

  std::vector<std::uint32_t> communication_of(const std::vector<LaneId>& lanes) const {
    std::vector<std::uint32_t> ops;
    for (const LaneId lane : lanes)
      for (const std::uint32_t op : program_.lanes[lane])
        if (is_communication(program_.work_of(op))) ops.push_back(op);
    if (lanes.size() > 1) sort_by_start(ops);
    return ops;
  }

  // Joined messages start together and stay consecutive.
  void sort_by_start(std::vector<std::uint32_t>& ops) const {
    const auto start_of = [&](std::uint32_t op) { return row(op) ? row(op)->start : predicted_.begin; };
    std::stable_sort(ops.begin(), ops.end(), [&](auto a, auto b) { return start_of(a) < start_of(b); });
  }

  void place_compute() {
    std::map<std::uint32_t, std::vector<std::uint32_t>> of_stream;
    for (const PlacedKernel& placed : placed_.kernels)
      if (!trace::is_communication(kernel(placed.kernel).cls))
        of_stream[kernel(placed.kernel).stream].push_back(placed.kernel);
    std::vector<LaneId> lanes;
    for (LaneId lane = 0; lane < program_.lanes.size(); ++lane)
      if (schedule_.lanes[lane].kind == LaneKind::compute && !program_.lanes[lane].empty()) lanes.push_back(lane);
    if (of_stream.empty() || lanes.empty()) return;
    const std::uint32_t main = compute_stream(trace_);
    std::stable_sort(lanes.begin(), lanes.end(), [&](LaneId a, LaneId b) { return busy(a) > busy(b); });
    std::vector<std::uint32_t> ops = compute_of(lanes.front());
    placed_.streams.push_back(trace_.streams[main].name + ": " + schedule_.lanes[lanes.front()].name);
    // Other lanes of computation take the streams with most computation; lanes without a stream are on the main one.
    std::vector<std::uint32_t> others;
    for (const auto& [stream, kernels] : of_stream)
      if (stream != main && is_computing(kernels)) others.push_back(stream);
    std::stable_sort(others.begin(), others.end(),
                     [&](auto a, auto b) { return of_stream[a].size() > of_stream[b].size(); });
    for (std::size_t l = 1; l < lanes.size(); ++l) {
      const std::vector<std::uint32_t> of_lane = compute_of(lanes[l]);
      if (l - 1 < others.size()) {
        align_lane(of_lane, of_stream[others[l - 1]], false);
        placed_.streams.push_back(trace_.streams[others[l - 1]].name + ": " + schedule_.lanes[lanes[l]].name);
      } else {
        ops.insert(ops.end(), of_lane.begin(), of_lane.end());
      }
    }
    if (lanes.size() > 1) sort_by_start(ops);
    align_lane(ops, of_stream[main], false);
  }

  std::vector<std::uint32_t> compute_of(LaneId lane) const {
    std::vector<std::uint32_t> ops;
    for (const std::uint32_t op : program_.lanes[lane])
      if (!is_communication(program_.work_of(op))) ops.push_back(op);
    return ops;
  }
  Picoseconds busy(LaneId lane) const {
    Picoseconds sum = 0;
    for (const std::uint32_t op : program_.lanes[lane])
      if (row(op)) sum += row(op)->end - row(op)->start;
    return sum;
  }
  // More than copies.
  bool is_computing(const std::vector<std::uint32_t>& kernels) const {
    return std::any_of(kernels.begin(), kernels.end(), [&](std::uint32_t index) {
      const KernelClass cls = kernel(index).cls;
      return cls != KernelClass::copy && cls != KernelClass::fill;
    });
  }

  const Schedule& schedule_;
  const PredictedRank& predicted_;
  const BoundProgram& program_;
  const RankTrace& trace_;
  const Period& period_;
  PlacedStep placed_;
  std::unordered_map<std::uint32_t, std::size_t> index_of_;  // [kernel]: its place in placed_.kernels
};

}  // namespace

PlacedStep place_kernels(const Schedule& schedule, const PredictedRank& predicted, const trace::RankTrace& trace,
                         const Period& period, bool is_own) {
  Placer placer(schedule, predicted, trace, period);
  return is_own ? placer.by_label() : placer.by_kind();
}

}  // namespace stretto::diagnose
