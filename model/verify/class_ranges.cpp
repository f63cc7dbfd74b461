#include "model/verify/class_ranges.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace stretto {
namespace {

using AxisSet = std::uint32_t;  // bit i: BoundProgram::represents[i]

// A view whose offset depends on the rank. Accesses whose bytes agree on every rank share one.
struct Moving {
  const View* view = nullptr;
  StorageId storage = 0;
  std::uint64_t hash = 0;  // hash of the offset
  std::int64_t base = 0;   // offset of the tensor instance in the storage
  Coordinates call;        // coordinates of the call; the rank's are the representative's
  AxisSet axes = 0;
  std::vector<std::uint32_t> accesses;
};

void sort_and_merge(std::vector<ByteRange>& ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::size_t kept = 0;
  for (const ByteRange& range : ranges) {
    if (kept > 0 && range.begin <= ranges[kept - 1].end)
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    else
      ranges[kept++] = range;
  }
  ranges.resize(kept);
}

// Returns how much an expression grows with each of the coordinates, where that growth is constant. A polynomial in
// which each coordinate occurs at most once is a sum, over sets of coordinates, of a constant times their product. So
// the growth is constant when the values at the corners of a cube of side 1 add up.
std::optional<std::vector<std::int64_t>> steps_of(const Expr& expr, const Coordinates& at,
                                                  const std::vector<const BoundProgram::ClassAxis*>& moved) {
  const std::string text = expr.text();
  if (text.find("mod") != std::string::npos || text.find("select") != std::string::npos) return std::nullopt;
  for (const BoundProgram::ClassAxis* of : moved) {
    const std::string name = name_of(of->axis);
    std::size_t count = 0;
    for (std::size_t i = text.find(name); i != std::string::npos; i = text.find(name, i + 1))
      count += text[i + name.size()] != '_';  // the name is not the beginning of a longer one: dp_instance
    if (count > 1) return std::nullopt;
  }
  const std::int64_t origin = expr.eval(at);
  std::vector<std::int64_t> steps;
  for (std::size_t corner = 1; corner < std::size_t{1} << moved.size(); ++corner) {
    Coordinates there = at;
    std::int64_t sum = origin;
    for (std::size_t a = 0; a < moved.size(); ++a) {
      if ((corner >> a & 1) == 0) continue;
      ++there[moved[a]->axis];
      if (a < steps.size()) sum += steps[a];
    }
    if (std::has_single_bit(corner))
      steps.push_back(expr.eval(there) - origin);
    else if (expr.eval(there) != sum)
      return std::nullopt;
  }
  return steps;
}

class Finder {
 public:
  Finder(const Schedule& schedule, const BoundProgram& program)
      : schedule_(schedule),
        program_(program),
        templates_(schedule.operations.size()),
        by_storage_(schedule.storages.size()) {}

  void add(std::uint32_t number, const BoundOp& op, std::size_t access, const BoundView& bound) {
    const Template& known = template_of(op.op)[access];
    if (known.axes == 0) return;
    const View& view = schedule_.operations[op.op].accesses[access].view;
    Moving moving{&view, bound.storage, known.hash, 0, coordinates_of(program_, op), known.axes, {number}};
    moving.base = bound.offset - view.offset.eval(moving.call);
    for (Moving& other : by_storage_[bound.storage])
      if (other.hash == moving.hash && have_equal_offsets(moving, other)) return other.accesses.push_back(number);
    by_storage_[bound.storage].push_back(std::move(moving));
  }

  std::vector<ClassRanges> run() {
    for (StorageId storage = 0; storage < by_storage_.size(); ++storage)
      for (std::vector<Moving>& movings = by_storage_[storage]; !movings.empty();) {
        // Takes the accesses that depend on an axis of the first one, or on an axis of another taken one.
        std::vector<Moving> group = {std::move(movings.back())};
        movings.pop_back();
        AxisSet axes = group[0].axes;
        for (std::size_t i = 0; i < movings.size();) {
          if ((movings[i].axes & axes) == 0) {
            ++i;
            continue;
          }
          axes |= movings[i].axes;
          group.push_back(std::move(movings[i]));
          movings.erase(movings.begin() + static_cast<std::ptrdiff_t>(i));
          i = 0;
        }
        result_.push_back(patterns_of(storage, group, axes));
      }
    return std::move(result_);
  }

 private:
  // The data that all calls of an operation share.
  struct Template {
    AxisSet axes = 0;        // axes on which the offset depends
    std::uint64_t hash = 0;  // equal for views whose bytes may agree
  };
  const std::vector<Template>& template_of(OpId op) {
    const std::vector<Access>& accesses = schedule_.operations[op].accesses;
    std::vector<Template>& result = templates_[op];
    if (result.empty())
      for (const Access& access : accesses) {
        Template& of = result.emplace_back();
        for (std::size_t i = 0; i < program_.represents.size(); ++i)
          if (schedule_.mesh.depends_on(access.view.offset, program_.represents[i].axis)) of.axes |= AxisSet{1} << i;
        if (of.axes != 0) of.hash = std::hash<std::string>()(access.view.offset.text());
      }
    return result;
  }

  static bool have_equal_offsets(const Moving& a, const Moving& b) {
    const View &x = *a.view, &y = *b.view;
    if (x.tensor != y.tensor || a.base != b.base || x.rows != y.rows || x.cols != y.cols || x.ld != y.ld ||
        !(x.offset == y.offset))
      return false;
    return std::all_of(kCallCoords.begin(), kCallCoords.end(),
                       [&](Coord c) { return a.call[c] == b.call[c] || !x.offset.depends_on(c); });
  }

  // Indices into a group → the bytes that exactly these accesses of the group cover.
  using Found = std::map<std::vector<std::uint32_t>, std::vector<ByteRange>>;
  // This key determines the patterns of a group; instances of a family in storages of their own have equal keys.
  using Likeness = std::vector<std::pair<const View*, std::int64_t>>;

  ClassRanges patterns_of(StorageId storage, std::vector<Moving>& group, AxisSet axes) {
    Likeness likeness = {{nullptr, schedule_.storages[storage].bytes()}};
    bool names_call = false;
    for (const Moving& moving : group) {
      likeness.emplace_back(moving.view, moving.base);
      for (const Coord coord : kCallCoords) names_call = names_call || moving.view->offset.depends_on(coord);
    }
    Found local;
    Found& found = names_call ? local : known_[std::move(likeness)];
    if (found.empty()) find_patterns(storage, group, axes, found);
    ClassRanges result{storage, {}};
    for (const auto& [covering, where] : found) {
      Pattern pattern{{}, where};
      for (const std::uint32_t moving : covering)
        pattern.accesses.insert(pattern.accesses.end(), group[moving].accesses.begin(), group[moving].accesses.end());
      std::sort(pattern.accesses.begin(), pattern.accesses.end());
      result.patterns.push_back(std::move(pattern));
    }
    return result;
  }

  void find_patterns(StorageId storage, std::vector<Moving>& group, AxisSet axes, Found& found) {
    const bool is_done = find_by_shifts(storage, group, axes, found);
    if (!is_done) {
      found.clear();
      find_one_by_one(storage, group, axes, found);
    }
    for (auto& [covering, where] : found) sort_and_merge(where);
    std::erase_if(found, [](const auto& pattern) { return pattern.second.empty(); });
  }

  void find_one_by_one(StorageId storage, std::vector<Moving>& group, AxisSet axes, Found& found) {
    Coordinates rank = program_.coordinates;
    const auto visit_ranks = [&](auto&& self, std::size_t axis) -> void {
      if (axis == program_.represents.size()) {
        schedule_.mesh.complete(rank);
        return sweep(storage, group, rank, found);
      }
      const BoundProgram::ClassAxis& of = program_.represents[axis];
      if ((axes >> axis & 1) == 0) return self(self, axis + 1);
      of.coordinates.visit([&](std::int64_t coordinate) {
        rank[of.axis] = coordinate;
        self(self, axis + 1);
      });
    };
    visit_ranks(visit_ranks, 0);
  }

  // From one rank to the next along an axis every access moves by this many bytes.
  struct Shift {
    std::int64_t bytes = 0, ranks = 1;
    bool operator==(const Shift&) const = default;
  };

  // Finds the patterns from one rank. Nearly always the accesses move together, by equally many bytes from rank to rank
  // (shards of a bucket), and the bytes of one rank determine those of all. Returns false, with nothing certain in
  // `found`, where they do not, or where the union of a range over all ranks is not a range.
  bool find_by_shifts(StorageId storage, std::vector<Moving>& group, AxisSet axes, Found& found) {
    if (schedule_.mesh.decompositions().size() > 1) return false;
    std::vector<const BoundProgram::ClassAxis*> moved;
    Coordinates first = program_.coordinates;
    for (std::size_t i = 0; i < program_.represents.size(); ++i) {
      if ((axes >> i & 1) == 0) continue;
      const BoundProgram::ClassAxis& of = program_.represents[i];
      moved.push_back(&of);
      first[of.axis] = of.coordinates.begin;
    }
    const std::int64_t size = bytes_of(schedule_.storages[storage].dtype);
    std::vector<Shift> shifts;
    for (const Moving& moving : group) {
      Coordinates at = first, last = first;
      for (const Coord coord : kCallCoords) last[coord] = at[coord] = moving.call[coord];
      for (const BoundProgram::ClassAxis* of : moved) last[of->axis] = of->coordinates.last();
      const std::optional<std::vector<std::int64_t>> steps = steps_of(moving.view->offset, at, moved);
      if (!steps) return false;
      std::vector<Shift> own;
      for (std::size_t a = 0; a < moved.size(); ++a) {
        const ClassCoordinates& of = moved[a]->coordinates;
        own.push_back({(*steps)[a] * of.step * size, of.places});
        if (own.back().bytes < 0) return false;
      }
      if (shifts.empty()) shifts = own;
      if (own != shifts) return false;
      const View& view = *moving.view;
      if (view.offset.eval(last) + (view.rows - 1) * view.ld + view.cols > schedule_.tensors[view.tensor].elements())
        return false;  // each rank is then checked, to name the first one
    }
    std::sort(shifts.begin(), shifts.end(), [](const Shift& a, const Shift& b) { return a.bytes < b.bytes; });
    std::int64_t all = 0;  // bytes from the first rank's accesses to the last rank's
    for (const Shift& shift : shifts) all += shift.bytes * (shift.ranks - 1);
    sweep(storage, group, first, found);
    const std::int64_t begin = ends_.front().byte, end = ends_.back().byte;  // bounds of all accesses on that rank
    for (auto& [covering, where] : found) {
      if (covering.empty())
        std::erase_if(where, [&](const ByteRange& range) { return range.end <= begin || range.begin >= end; });
      for (ByteRange& range : where)
        for (const Shift& shift : shifts) {
          if (range.end - range.begin < shift.bytes) return false;
          range.end += shift.bytes * (shift.ranks - 1);
        }
    }
    // The bytes before all accesses are most on the last rank, the bytes after them on the first.
    if (begin + all > 0) found[{}].push_back({0, begin + all});
    if (const std::int64_t size_of = schedule_.storages[storage].bytes(); end < size_of)
      found[{}].push_back({end, size_of});
    return true;
  }

  // Visits the bytes of the storage from beginning to end, on one rank.
  void sweep(StorageId storage, std::vector<Moving>& group, const Coordinates& rank, Found& found) {
    const std::int64_t size = bytes_of(schedule_.storages[storage].dtype);
    ends_.clear();
    for (std::uint32_t i = 0; i < group.size(); ++i) {
      Moving& moving = group[i];
      const View& view = *moving.view;
      Coordinates at = rank;
      for (const Coord coord : kCallCoords) at[coord] = moving.call[coord];
      const std::int64_t offset = view.offset.eval(at);
      const std::int64_t last = offset + (view.rows - 1) * view.ld + view.cols;
      const Tensor& tensor = schedule_.tensors[view.tensor];
      if (offset < 0 || last > tensor.elements())
        throw input_error("schedule: on rank " + std::to_string(schedule_.mesh.rank_of(rank)) +
                          ", an access to elements [" + std::to_string(offset) + ", " + std::to_string(last) + ") of " +
                          tensor.name + ", which has " + std::to_string(tensor.elements()));
      const bool is_contiguous = view.rows == 1 || view.ld == view.cols;
      const std::int64_t rows = is_contiguous ? 1 : view.rows, cols = is_contiguous ? view.rows * view.cols : view.cols;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t begin = (moving.base + offset + row * view.ld) * size;
        ends_.push_back({begin, i, true});
        ends_.push_back({begin + cols * size, i, false});
      }
    }
    std::sort(ends_.begin(), ends_.end(), [](const End& a, const End& b) { return a.byte < b.byte; });
    covering_.clear();
    std::int64_t begin = 0;
    const auto cover_until = [&](std::int64_t end) {
      if (begin < end) {
        std::vector<ByteRange>& where = found[covering_];
        // The ranges of many ranks often form one range: they are merged before their memory grows.
        if (where.size() == where.capacity()) sort_and_merge(where);
        where.push_back({begin, end});
      }
      begin = end;
    };
    for (const End& end : ends_) {
      cover_until(end.byte);
      const auto at = std::lower_bound(covering_.begin(), covering_.end(), end.moving);
      if (end.is_begin)
        covering_.insert(at, end.moving);
      else
        covering_.erase(at);
    }
    cover_until(schedule_.storages[storage].bytes());
  }

  struct End {
    std::int64_t byte = 0;
    std::uint32_t moving = 0;
    bool is_begin = false;
  };
  const Schedule& schedule_;
  const BoundProgram& program_;
  std::vector<std::vector<Template>> templates_;  // [OpId][access]; empty: not yet computed
  std::vector<std::vector<Moving>> by_storage_;
  std::vector<ClassRanges> result_;
  std::map<Likeness, Found> known_;
  std::vector<End> ends_;
  std::vector<std::uint32_t> covering_;  // indices into the group, ascending
};

}  // namespace

std::vector<ClassRanges> find_class_ranges(const Schedule& schedule, const BoundProgram& program,
                                           Footprints& footprints) {
  if (program.represents.empty()) return {};
  Finder finder(schedule, program);
  std::uint32_t number = 0;
  for (std::uint32_t footprint = 0; footprint < footprints.count(); ++footprint) {
    const std::span<const BoundView> views = footprints.views(footprint);
    for (std::size_t a = 0; a < views.size(); ++a)
      finder.add(number++, program.ops[footprints.first_op(footprint)], a, views[a]);
  }
  return finder.run();
}

}  // namespace stretto
