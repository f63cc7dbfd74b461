#include "model/overlap/block_editor.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace stretto {
namespace {

constexpr std::size_t kAbsent = ~std::size_t{0};

// The elements that an operation touches. A strided view counts as its whole range from end to end, which may add a
// wait but never misses one.
struct Range {
  StorageId storage = 0;
  std::int64_t begin = 0, end = 0;
  bool writes = false;
};
using Ranges = std::vector<std::vector<Range>>;  // [coordinates at which ranges are evaluated]

// The coordinates at which views are compared. Those of the first layer come first, then as many of the last.
struct Points {
  std::vector<Coordinates> all;
  std::vector<Coord> axes;  // on which they differ besides
};

// Returns the coordinates that show which views of a block's operations share storage. Operations of one call share
// layer, slot and buffer, so a few points are enough: the first and the last layer for which the block is called, at
// every place on the axes that one of the views depends on.
Points points_of(const Schedule& schedule, BlockId block, const std::vector<OpId>& ops) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  for (const Program& program : schedule.programs)
    for (const Call& call : program.order) {
      if (call.block != block) continue;
      first = std::min(first, call.layer);
      last = std::max(last, call.layer);
    }
  Points result;
  std::vector<Coordinates>& points = result.all;
  points.resize(2);
  points[0][Coord::layer] = std::min(first, last);
  points[1][Coord::layer] = last;
  for (const MeshAxis& axis : schedule.mesh.axes()) {
    const bool depends = std::any_of(ops.begin(), ops.end(), [&](OpId op) {
      const std::vector<Access>& accesses = schedule.operations[op].accesses;
      return std::any_of(accesses.begin(), accesses.end(),
                         [&](const Access& access) { return access.view.offset.depends_on(axis.coord); });
    });
    if (!depends) continue;
    result.axes.push_back(axis.coord);
    std::vector<Coordinates> extended;
    for (const Coordinates& point : points)
      for (std::int64_t i = 0; i < axis.size; ++i) {
        extended.push_back(point);
        extended.back()[axis.coord] = i;
      }
    points = std::move(extended);
  }
  return result;
}

// Returns the ranges at all points, or at the first point of both layers where they are equal at the others.
Ranges ranges_of(const Schedule& schedule, const Operation& operation, const Points& points) {
  const bool differs = std::any_of(operation.accesses.begin(), operation.accesses.end(), [&](const Access& access) {
    return std::any_of(points.axes.begin(), points.axes.end(), [&](Coord axis) {
      return access.view.offset.depends_on(axis) || access.view.layer.depends_on(axis);
    });
  });
  Ranges ranges;
  const std::size_t step = differs ? 1 : points.all.size() / 2;
  for (std::size_t point = 0; point < points.all.size(); point += step) {
    const Coordinates& at = points.all[point];
    std::vector<Range>& here = ranges.emplace_back();
    for (const Access& access : operation.accesses) {
      const View& view = access.view;
      const Tensor& tensor = schedule.tensors[view.tensor];
      const std::int64_t slot = view.slot.is_constant() ? view.slot.value() : 0;
      const TensorPlace& place = tensor.places[static_cast<std::size_t>(view.layer.eval(at) * tensor.slots + slot)];
      const std::int64_t begin = place.offset + view.offset.eval(at);
      here.push_back(
          {place.storage, begin, begin + (view.rows - 1) * view.ld + view.cols, access.mode != AccessMode::read});
    }
  }
  return ranges;
}

bool conflict(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (const Range& x : a)
    for (const Range& y : b)
      if (x.storage == y.storage && (x.writes || y.writes) && x.begin < y.end && y.begin < x.end) return true;
  return false;
}

// Returns one range of each storage, which covers the ranges of all points: most operations do not even meet there.
std::vector<Range> extent_of(const Ranges& ranges) {
  std::vector<Range> extent;
  for (const std::vector<Range>& here : ranges)
    for (const Range& range : here) {
      const auto known = std::find_if(extent.begin(), extent.end(),
                                      [&](const Range& other) { return other.storage == range.storage; });
      if (known == extent.end()) {
        extent.push_back(range);
        continue;
      }
      known->begin = std::min(known->begin, range.begin);
      known->end = std::max(known->end, range.end);
      known->writes = known->writes || range.writes;
    }
  return extent;
}

bool conflict(const Ranges& a, const Ranges& b) {
  const std::size_t points = std::max(a.size(), b.size());
  for (std::size_t point = 0; point < points; ++point)
    if (conflict(a[point * a.size() / points], b[point * b.size() / points])) return true;
  return false;
}

}  // namespace

BlockEditor::BlockEditor(Lowered& lowered, BlockId block)
    : lowered_(lowered), schedule_(lowered.schedule), block_(block) {
  const Block& edited = schedule_.blocks[block];
  for (std::uint32_t i = 0; i < edited.ops.size(); ++i) {
    const auto waits_for_last = [&](const BlockWait& wait) { return wait.op == i && wait.on + 1 == i; };
    const auto message = [&](std::uint32_t at) {
      return std::holds_alternative<PointToPoint>(schedule_.operations[edited.ops[at]].work);
    };
    const bool is_concurrent =
        i > 0 && message(i) && message(i - 1) &&
        schedule_.operations[edited.ops[i]].lane != schedule_.operations[edited.ops[i - 1]].lane &&
        std::none_of(edited.waits.begin(), edited.waits.end(), waits_for_last);
    add_entry({edited.ops[i], i, lowered.free_in_block.contains(edited.ops[i]), is_concurrent});
  }
}

void BlockEditor::add_entry(const Entry& entry) {
  const auto made = lowered_.replaced.find(entry.op);
  if (made == lowered_.replaced.end()) return entries_.push_back(entry);
  for (const OpId op : made->second) add_entry({op, entry.old, true, false});
}

std::size_t BlockEditor::find(const std::string& name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (schedule_.operations[entries_[i].op].name == name) return i;
  return kAbsent;
}

bool BlockEditor::has(const std::string& name) const { return find(name) != kAbsent; }

const Operation& BlockEditor::operation(const std::string& name) const {
  const std::size_t i = find(name);
  if (i == kAbsent) throw std::logic_error("block " + schedule_.blocks[block_].name + " has no operation " + name);
  return schedule_.operations[entries_[i].op];
}

void BlockEditor::set_free(const std::string& name) {
  operation(name);
  entries_[find(name)].is_free = true;
}

void BlockEditor::start_after(const std::string& name, const std::string& other) {
  lowered_.starts_after[entries_[find(name)].op] = entries_[find(other)].op;
}

void BlockEditor::wait_for_all(const std::string& name) { lowered_.waits_for_all.insert(entries_[find(name)].op); }

void BlockEditor::remove(const std::string& name) {
  operation(name);
  const auto at = entries_.begin() + static_cast<std::ptrdiff_t>(find(name));
  lowered_.replaced[at->op] = {};
  entries_.erase(at);
}

void BlockEditor::replace(const std::string& name, std::vector<Operation> operations) {
  const Operation replaced = operation(name);
  const std::size_t at = find(name);
  const std::uint32_t old = entries_[at].old;
  std::vector<OpId>& made = lowered_.replaced[entries_[at].op];
  std::vector<Entry> fresh;
  for (Operation& operation : operations) {
    if (operation.module == Module::none) {
      operation.module = replaced.module;
      operation.recomputed = replaced.recomputed;
    }
    schedule_.operations.push_back(std::move(operation));
    made.push_back(static_cast<OpId>(schedule_.operations.size() - 1));
    fresh.push_back({made.back(), old, true, false});
  }
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(at), fresh.begin(), fresh.end());
}

// Uses clocks like the verifier, for one block: known[lane] is the number of the latest operation of a lane, plus one,
// that is known to have finished. A wait for a known operation is left out.
std::vector<BlockWait> BlockEditor::waits() const {
  const std::size_t lanes = schedule_.lanes.size(), count = entries_.size();
  std::vector<Ranges> ranges;
  std::vector<std::vector<Range>> extents;
  std::vector<OpId> ops;
  for (const Entry& entry : entries_) ops.push_back(entry.op);
  const Points points = points_of(schedule_, block_, ops);
  for (const Entry& entry : entries_) {
    ranges.push_back(ranges_of(schedule_, schedule_.operations[entry.op], points));
    extents.push_back(extent_of(ranges.back()));
  }
  std::vector<std::vector<std::uint32_t>> after(count);    // [op][lane] what is known when op has finished
  std::vector<std::vector<std::uint32_t>> on_lane(lanes);  // [lane] its operations so far
  std::vector<LaneId> lane_of;                             // [op]
  for (const Entry& entry : entries_) lane_of.push_back(schedule_.operations[entry.op].lane);
  std::vector<std::size_t> left(lanes);  // [lane] number of its operations that are still to be looked at
  std::vector<BlockWait> waits;
  for (std::uint32_t i = 0; i < count; ++i) {
    const LaneId lane = lane_of[i];
    const bool is_first_of_lane = on_lane[lane].empty();
    std::vector<std::uint32_t> known(lanes, 0);
    if (!is_first_of_lane) known = after[on_lane[lane].back()];
    for (LaneId l = 0; l < lanes; ++l) left[l] = l == lane ? 0 : on_lane[l].size();
    // The loop goes from the latest operation to the earliest, so that one wait makes others unnecessary.
    while (true) {
      std::uint32_t next = 0;  // index + 1
      for (LaneId l = 0; l < lanes; ++l)
        if (left[l] > 0 && on_lane[l][left[l] - 1] >= known[l]) next = std::max(next, on_lane[l][left[l] - 1] + 1);
      if (next == 0) break;
      const std::uint32_t j = next - 1;
      --left[lane_of[j]];
      const bool in_sequence =
          !entries_[i].is_free && !entries_[j].is_free && !(entries_[i].is_concurrent && j + 1 == i);
      if (!in_sequence && !lowered_.waits_for_all.contains(ops[i]) &&
          !(conflict(extents[i], extents[j]) && conflict(ranges[i], ranges[j])))
        continue;
      waits.push_back({i, EdgeKind::finish_start, j});
      for (std::size_t l = 0; l < lanes; ++l) known[l] = std::max(known[l], after[j][l]);
    }
    if (const auto after = lowered_.starts_after.find(ops[i]); after != lowered_.starts_after.end())
      waits.push_back(
          {i, EdgeKind::start_start, std::uint32_t(std::find(ops.begin(), ops.end(), after->second) - ops.begin())});
    if (is_first_of_lane && i > 0 && known[lane_of[0]] == 0) waits.push_back({i, EdgeKind::start_start, 0});
    after[i] = std::move(known);
    after[i][lane] = i + 1;
    on_lane[lane].push_back(i);
  }
  return waits;
}

// A call of a part of the block keeps calling that part.
void BlockEditor::update_calls() const {
  const auto new_index = [&](std::uint32_t old) {
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.old >= old; });
    return static_cast<std::uint32_t>(at - entries_.begin());
  };
  for (Program& program : schedule_.programs)
    for (Call& call : program.order) {
      if (call.block != block_) continue;
      const std::uint32_t end = new_index(call.first + call.count);
      call.first = new_index(call.first);
      call.count = end - call.first;
    }
}

void BlockEditor::commit() {
  update_calls();
  Block& block = schedule_.blocks[block_];
  block.ops.clear();
  for (const Entry& entry : entries_) {
    block.ops.push_back(entry.op);
    if (entry.is_free) lowered_.free_in_block.insert(entry.op);
  }
  block.waits = waits();
}

}  // namespace stretto
