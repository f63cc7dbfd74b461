#include "diagnose/lanes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "diagnose/alignment.hpp"
#include "diagnose/kinds.hpp"

namespace stretto::diagnose {
namespace {

using trace::Kernel;
using trace::KernelClass;
using trace::RankTrace;

// Kernels of one kind in one process group and stream.
using KindOfGroup = std::tuple<std::uint32_t, std::string, KernelClass>;  // stream, group, class
// Collectives of one kind of one communicator on one lane; or all messages of a communicator, on several lanes.
struct Target {
  std::vector<LaneId> lanes;
  std::uint32_t communicator = 0;
  const Operation* operation = nullptr;  // one of them
  double count = 0, bytes = 0;           // of all
  std::int64_t members = 0;
};

double closeness(double a, double b) { return a <= 0 || b <= 0 ? 0.5 : std::min(a, b) / std::max(a, b); }

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

  double bytes_of(const Operation& operation) const {
    const std::int64_t elements = std::visit(
        [](const auto& w) -> std::int64_t {
          using W = std::decay_t<decltype(w)>;
          if constexpr (std::is_same_v<W, Collective> || std::is_same_v<W, PointToPoint>)
            return w.elements;
          else
            return 0;
        },
        operation.work);
    if (elements == 0 || operation.accesses.empty()) return 0;
    return double(elements) * double(stretto::bytes_of(schedule_.dtype_of(operation.accesses.front().view)));
  }

  // Returns the bytes of the whole buffer, as operations count them.
  double bytes_of(const Kernel& kernel) const {
    if (kernel.message < 0) return 0;
    const trace::Message& message = trace_.messages[static_cast<std::size_t>(kernel.message)];
    return double(std::max(message.in_elements, message.out_elements)) * message.element_bytes;
  }

  // Of an operation of Stretto's that the schedule does not have: the communicator of its lane.
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
      if (joins) item.bytes = bytes_of(*item.operation);
      items.push_back(std::move(item));
    }
    return items;
  }

  std::vector<Piece> pieces_of(const std::vector<std::uint32_t>& kernels) const {
    std::vector<Piece> pieces;
    const double length = double(std::max<Picoseconds>(1, period_.end - period_.begin));
    for (const std::uint32_t index : kernels) {
      const Kernel& of = kernel(index);
      pieces.push_back(
          {index, of.cls, of.side, to_us(of.length()), double(of.start - period_.begin) / length, bytes_of(of)});
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

  std::vector<Target> targets() const {
    std::map<std::tuple<LaneId, std::uint32_t, std::size_t>, Target> by_kind;  // [lane, communicator, kind]
    for (LaneId lane = 0; lane < program_.lanes.size(); ++lane)
      for (const std::uint32_t op : program_.lanes[lane]) {
        const Operation& operation = schedule_.operations[program_.ops[op].op];
        if (!is_communication(operation.work) || program_.ops[op].joined) continue;
        const auto* collective = std::get_if<Collective>(&operation.work);
        const std::uint32_t communicator = communicator_of(operation.work);
        constexpr std::size_t kMessages = ~std::size_t{0};
        Target& target = by_kind[{collective ? lane : kNoLane, communicator,
                                  collective ? static_cast<std::size_t>(collective->kind) : kMessages}];
        if (target.lanes.empty() || target.lanes.back() != lane) target.lanes.push_back(lane);
        target.communicator = communicator;
        target.operation = &operation;
        target.count += 1;
        target.bytes += bytes_of(operation);
        target.members = schedule_.communicators[communicator].size;
      }
    std::vector<Target> all;
    for (const auto& [kind, target] : by_kind) all.push_back(target);
    return all;
  }

  void place_communication() {
    std::map<KindOfGroup, std::vector<std::uint32_t>> kinds;
    for (const PlacedKernel& placed : placed_.kernels) {
      const Kernel& of = kernel(placed.kernel);
      if (!trace::is_communication(of.cls)) continue;
      const std::string group = of.message < 0 ? "" : trace_.messages[static_cast<std::size_t>(of.message)].group;
      kinds[{of.stream, group, of.cls}].push_back(placed.kernel);
    }
    const std::vector<Target> all = targets();
    const auto score = [&](const KindOfGroup& kind, const std::vector<std::uint32_t>& kernels, const Target& target) {
      const Fit fit = fit_of(*target.operation, std::get<2>(kind));
      if (fit.first < 0 && fit.further < 0) return -1.0;
      double bytes = 0, members = 0;
      for (const std::uint32_t index : kernels) {
        bytes += bytes_of(kernel(index));
        if (const std::int32_t m = kernel(index).message; m >= 0)
          members = double(trace_.messages[static_cast<std::size_t>(m)].group_size);
      }
      if (members > 0 && members != double(target.members)) return -1.0;
      return std::max(0.1, fit.first) + 2 * closeness(double(kernels.size()), target.count) +
             2 * closeness(bytes, target.bytes);
    };
    struct Pair {
      double score;
      const KindOfGroup* kind;
      std::size_t target;
    };
    std::vector<Pair> pairs;
    for (const auto& [kind, kernels] : kinds)
      for (std::size_t t = 0; t < all.size(); ++t)
        if (const double s = score(kind, kernels, all[t]); s >= 0) pairs.push_back({s, &kind, t});
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.score > b.score; });
    // Each kind of kernels has a target of its own first; then those that are left share one.
    std::map<const KindOfGroup*, std::size_t> target_of;
    std::vector<bool> is_taken(all.size(), false);
    for (const bool may_share : {false, true})
      for (const Pair& pair : pairs) {
        if (target_of.contains(pair.kind) || (is_taken[pair.target] && !may_share)) continue;
        target_of[pair.kind] = pair.target;
        is_taken[pair.target] = true;
      }
    std::map<std::vector<LaneId>, std::vector<std::uint32_t>> of_lanes;
    std::map<std::uint32_t, std::map<std::string, bool>> named;  // [stream] lanes
    for (const auto& [kind, kernels] : kinds) {
      const auto found = target_of.find(&kind);
      if (found == target_of.end()) continue;
      const Target& target = all[found->second];
      for (const LaneId lane : target.lanes) named[std::get<0>(kind)][schedule_.lanes[lane].name] = true;
      for (const std::uint32_t index : kernels) {
        PlacedKernel& placed = placed_.kernels[index_of_.at(index)];
        placed.communicator = target.communicator;
        placed.lane = target.lanes.front();
        of_lanes[target.lanes].push_back(index);
      }
    }
    for (auto& [lanes, kernels] : of_lanes) {
      std::sort(kernels.begin(), kernels.end());
      align_lane(communication_of(lanes), kernels, true);
    }
    for (const auto& [stream, lanes] : named)
      for (const auto& [lane, unused] : lanes) placed_.streams.push_back(trace_.streams[stream].name + ": " + lane);
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
