#include "model/verify/cells.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <compare>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"
#include "model/verify/class_ranges.hpp"
#include "model/verify/pieces.hpp"

namespace stretto {
namespace {

// Ends of accesses within one storage. Few are distinct, so they are merged whenever their number has doubled.
struct Cuts {
  std::vector<std::int64_t> bytes;
  std::size_t merge_at = 32;

  void add(std::int64_t begin, std::int64_t end) {
    bytes.push_back(begin);
    bytes.push_back(end);
    if (bytes.size() < merge_at) return;
    merge();
    merge_at = std::max<std::size_t>(32, 2 * bytes.size());
  }
  void merge() {
    std::sort(bytes.begin(), bytes.end());
    bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  }
  std::size_t find(std::int64_t byte) const {
    return static_cast<std::size_t>(std::lower_bound(bytes.begin(), bytes.end(), byte) - bytes.begin());
  }
};

using Range = ByteRange;  // a range of bytes, then of pieces, then of cells

// A view that is not contiguous. Many operations have equal views, which are cut once.
struct Strided {
  StorageId storage = 0;
  Columns bytes;             // bytes of the storage
  std::vector<Range> where;  // pieces, then cells
};

class Strides {
 public:
  // Returns the number of a view; the ends of a new view become cuts.
  std::size_t find(const BoundView& view, std::int64_t size, Cuts& cuts) {
    const auto key = std::tuple(view.storage, view.offset, view.rows, view.cols, view.ld);
    const auto [found, is_new] = number_.try_emplace(key, all.size());
    if (!is_new) return found->second;
    const Columns bytes{view.offset * size, view.rows, view.cols * size, view.ld * size};
    all.push_back({view.storage, bytes, {}});
    cuts.add(bytes.begin, bytes.end());
    return found->second;
  }
  std::vector<Strided> all;

 private:
  std::map<std::tuple<StorageId, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, std::size_t> number_;
};

// A view that is contiguous. Nearly all accesses of a storage have few distinct ranges.
struct Contiguous {
  StorageId storage = 0;
  Range where;  // bytes of the storage, then pieces, then cells
};

class ContiguousRanges {
 public:
  explicit ContiguousRanges(std::size_t used = 0) : latest_(used, kNone) {}

  // Returns the number of a range of bytes of the `used`-th storage; the ends of a new one become cuts.
  std::uint32_t find(StorageId storage, std::uint32_t used, const Range& bytes, Cuts& cuts) {
    std::uint32_t& latest = latest_[used];
    if (latest != kNone && all[latest].where == bytes) return latest;
    const auto next = static_cast<std::uint32_t>(all.size());
    // Only storages with several ranges need the table.
    if (latest != kNone) {
      number_.try_emplace(Key{storage, all[latest].where.begin, all[latest].where.end}, latest);
      if (const auto [found, is_new] = number_.try_emplace(Key{storage, bytes.begin, bytes.end}, next); !is_new)
        return latest = found->second;
    }
    all.push_back({storage, bytes});
    cuts.add(bytes.begin, bytes.end);
    return latest = next;
  }
  std::vector<Contiguous> all;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  using Key = std::array<std::int64_t, 3>;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = 0;
      for (const std::int64_t part : key) hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
      return hash ^ hash >> 32;
    }
  };
  std::vector<std::uint32_t> latest_;  // [used] its range that was found last
  std::unordered_map<Key, std::uint32_t, Hash> number_;
};

// Sorts pieces by the accesses that cover them.
class Classes {
 public:
  explicit Classes(std::size_t pieces) : of_(pieces, 0), part_(1), split_by_(1, 0) {}

  // Splits the classes by one access, which covers the pieces of every range.
  void split(std::span<const Range> ranges) {
    ++access_;
    for (const Range& range : ranges)
      for (std::int64_t piece = range.begin; piece < range.end; ++piece) {
        std::uint32_t& cls = of_[static_cast<std::size_t>(piece)];
        if (split_by_[cls] != access_) {
          split_by_[cls] = access_;
          part_[cls] = static_cast<std::uint32_t>(part_.size());
          part_.push_back(0);
          split_by_.push_back(0);
        }
        cls = part_[cls];
      }
  }

  // Returns [piece] → classes that begin before it; one more entry at the end.
  std::vector<std::uint32_t> count() const {
    std::vector<std::uint32_t> result;
    std::vector<bool> seen(part_.size());
    std::uint32_t classes = 0;
    for (const std::uint32_t cls : of_) {
      result.push_back(classes);
      classes += !seen[cls];
      seen[cls] = true;
    }
    result.push_back(classes);
    return result;
  }

 private:
  std::vector<std::uint32_t> of_;        // [piece]
  std::vector<std::uint32_t> part_;      // [class] the class of its pieces that the access covers
  std::vector<std::uint32_t> split_by_;  // [class]
  std::uint32_t access_ = 0;
};

// Position of an access of a footprint.
struct AccessPlace {
  enum class Kind : std::uint8_t { contiguous, strided, moving } kind = Kind::moving;
  std::uint32_t number = 0;  // of a contiguous or a strided view
};

class Cutting {
 public:
  Cutting(const Schedule& schedule, const BoundProgram& program, Footprints& footprints, const RolePlan* plan)
      : schedule_(schedule),
        plan_(plan),
        number_(schedule.storages.size(), kStatic),
        moving_(find_class_ranges(schedule, program, footprints)) {
    std::uint32_t accesses = 0;
    for (std::uint32_t footprint = 0; footprint < footprints.count(); ++footprint) {
      const std::span<const BoundView> views = footprints.views(footprint);
      accesses += static_cast<std::uint32_t>(views.size());
      for (const BoundView& view : views) {
        if (number_[view.storage] != kStatic) continue;
        number_[view.storage] = static_cast<std::uint32_t>(used_.size());
        used_.push_back(view.storage);
      }
    }
    for (const ClassRanges& group : moving_) assert(number_[group.storage] != kStatic);
    cuts_.resize(used_.size());
    piece_at_.resize(used_.size());
    ranges_ = ContiguousRanges(used_.size());
    places_.reserve(accesses);
    moving_of_.assign(moving_.empty() ? 0 : accesses, kStatic);
    patterns_begin_.assign(moving_.empty() ? 0 : accesses + 1, 0);
    for (std::uint32_t group = 0; group < moving_.size(); ++group)
      for (const Pattern& pattern : moving_[group].patterns) {
        for (const std::uint32_t access : pattern.accesses) {
          moving_of_[access] = group;
          ++patterns_begin_[access + 1];
        }
        for (const Range& range : pattern.where) cuts_of(moving_[group].storage).add(range.begin, range.end);
      }
    list_patterns();
    for (std::uint32_t footprint = 0; footprint < footprints.count(); ++footprint)
      for (const BoundView& view : footprints.views(footprint)) place(view);
  }

  // Numbers the pieces between cuts. Without a plan the storages lie one after the other.
  void cut_into_pieces() {
    std::vector<std::int64_t> base, cuts;
    std::int64_t end = 0;
    for (std::size_t s = 0; s < cuts_.size(); ++s) {
      cuts_[s].merge();
      base.push_back(plan_ ? plan_->offset_bytes[used_[s]] : end);
      end += schedule_.storages[used_[s]].bytes();
      for (const std::int64_t byte : cuts_[s].bytes) cuts.push_back(base[s] + byte);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Columns> columns;
    for (const Strided& strided : strides_.all) {
      columns.push_back(strided.bytes);
      columns.back().begin += base[number_[strided.storage]];
    }
    const Pieces pieces(std::move(cuts), columns);
    count_ = pieces.count();
    for (std::size_t s = 0; s < cuts_.size(); ++s)
      for (const std::int64_t byte : cuts_[s].bytes) piece_at_[s].push_back(pieces.at(base[s] + byte));
    for (Contiguous& range : ranges_.all) to_pieces(range.storage, range.where);
    for (std::size_t i = 0; i < columns.size(); ++i) strides_.all[i].where = pieces.of(columns[i]);
    for (ClassRanges& group : moving_)
      for (Pattern& pattern : group.patterns)
        for (Range& range : pattern.where) to_pieces(group.storage, range);
  }

  // Makes one cell of the pieces that the same accesses cover. Without strided views there are few such pieces.
  void join_pieces() {
    constexpr std::size_t kScattered = 16;
    const bool is_scattered = std::any_of(moving_.begin(), moving_.end(), [](const ClassRanges& group) {
      return std::any_of(group.patterns.begin(), group.patterns.end(),
                         [](const Pattern& pattern) { return pattern.where.size() > kScattered; });
    });
    if (strides_.all.empty() && !is_scattered) return;
    Classes classes(count_);
    std::vector<Range> contiguous;
    for (const Contiguous& range : ranges_.all) contiguous.push_back(range.where);
    std::sort(contiguous.begin(), contiguous.end());
    contiguous.erase(std::unique(contiguous.begin(), contiguous.end()), contiguous.end());
    for (const Range& range : contiguous) classes.split({&range, 1});
    for (const Strided& strided : strides_.all) classes.split(strided.where);
    for (const ClassRanges& group : moving_)
      for (const Pattern& pattern : group.patterns) classes.split(pattern.where);
    const std::vector<std::uint32_t> cells = classes.count();
    // An access covers a cell whole or not at all. So the cells of an access are those whose first piece it covers.
    const auto to_cells = [&](const Range& range) { return Range{cells[range.begin], cells[range.end]}; };
    for (Contiguous& range : ranges_.all) range.where = to_cells(range.where);
    const auto all_to_cells = [&](std::vector<Range>& ranges) {
      for (Range& range : ranges) range = to_cells(range);
      std::erase_if(ranges, [](const Range& range) { return range.begin == range.end; });
    };
    for (Strided& strided : strides_.all) all_to_cells(strided.where);
    for (ClassRanges& group : moving_)
      for (Pattern& pattern : group.patterns) all_to_cells(pattern.where);
    count_ = cells.back();
  }

  // Replaces a cell by one cell for each pattern that it has on some rank; where several groups of moving accesses lie
  // on it, by one cell for each combination of their patterns.
  void multiply_by_patterns() {
    if (moving_.empty()) return;
    patterns_.resize(count_);
    for (std::uint32_t group = 0; group < moving_.size(); ++group)
      for (std::uint32_t p = 0; p < moving_[group].patterns.size(); ++p)
        for (const Range& range : moving_[group].patterns[p].where)
          for (std::int64_t cell = range.begin; cell < range.end; ++cell) add_pattern(patterns_[cell], group, p);
    std::uint32_t begin = 0;
    for (const std::vector<OnCell>& of_cell : patterns_) {
      variants_begin_.push_back(begin);
      std::uint32_t variants = 1;
      for (const OnCell& group : of_cell) variants *= static_cast<std::uint32_t>(group.patterns.size());
      begin += variants;
    }
    variants_begin_.push_back(begin);
    count_ = begin;
  }

  std::uint32_t count() const { return count_; }
  std::size_t accesses() const { return places_.size(); }
  // Calls visit(Range) for the cells of an access; accesses are numbered through all footprints.
  template <class Visit>
  void visit_cells(std::uint32_t access, Visit visit) const {
    const std::uint32_t group = moving_.empty() ? kStatic : moving_of_[access];
    if (group == kStatic) {
      const AccessPlace& place = places_[access];
      const auto ranges = place.kind == AccessPlace::Kind::contiguous
                              ? std::span(&ranges_.all[place.number].where, 1)
                              : std::span<const Range>(strides_.all[place.number].where);
      for (const Range& range : ranges)
        visit(moving_.empty() ? range : Range{variants_begin_[range.begin], variants_begin_[range.end]});
      return;
    }
    Range run;  // not yet visited
    for (std::uint32_t at = patterns_begin_[access]; at < patterns_begin_[access + 1]; ++at) {
      const std::uint32_t pattern = patterns_of_[at];
      for (const Range& range : moving_[group].patterns[pattern].where)
        for (std::int64_t cell = range.begin; cell < range.end; ++cell)
          visit_variants(static_cast<std::size_t>(cell), group, pattern, [&](std::uint32_t variant) {
            if (run.end != variant) {
              if (run.begin < run.end) visit(run);
              run.begin = variant;
            }
            run.end = variant + 1;
          });
    }
    if (run.begin < run.end) visit(run);
  }

 private:
  static constexpr std::uint32_t kStatic = ~std::uint32_t{0};  // also: no number

  // The patterns that a group has on one cell.
  struct OnCell {
    std::uint32_t group = 0;
    std::vector<std::uint32_t> patterns;
  };

  static void add_pattern(std::vector<OnCell>& of_cell, std::uint32_t group, std::uint32_t pattern) {
    if (of_cell.empty() || of_cell.back().group != group) of_cell.push_back({group, {}});
    of_cell.back().patterns.push_back(pattern);
  }

  // Fills in the patterns of each access, which are counted already.
  void list_patterns() {
    for (std::size_t access = 1; access < patterns_begin_.size(); ++access)
      patterns_begin_[access] += patterns_begin_[access - 1];
    if (patterns_begin_.empty()) return;
    patterns_of_.resize(patterns_begin_.back());
    std::vector<std::uint32_t> next(patterns_begin_.begin(), patterns_begin_.end() - 1);
    for (const ClassRanges& group : moving_)
      for (std::uint32_t p = 0; p < group.patterns.size(); ++p)
        for (const std::uint32_t access : group.patterns[p].accesses) patterns_of_[next[access]++] = p;
  }

  // Calls visit for the variants of a cell on which the group has the pattern: the group's pattern is one digit of a
  // variant's number.
  template <class Visit>
  void visit_variants(std::size_t cell, std::uint32_t group, std::uint32_t pattern, Visit visit) const {
    std::uint32_t below = 1, base = 0, digit = 0;
    for (const OnCell& of : patterns_[cell]) {
      base = static_cast<std::uint32_t>(of.patterns.size());
      if (of.group == group) {
        while (of.patterns[digit] != pattern) ++digit;
        break;
      }
      below *= base;
    }
    for (std::uint32_t v = variants_begin_[cell] + digit * below; v < variants_begin_[cell + 1]; v += base * below)
      for (std::uint32_t low = 0; low < below; ++low) visit(v + low);
  }

  void place(const BoundView& view) {
    if (plan_ && !plan_->has(view.storage))
      throw input_error("memory plan: " + schedule_.storages[view.storage].name + " is used but has no place");
    if (!moving_.empty() && moving_of_[places_.size()] != kStatic) {
      places_.push_back({AccessPlace::Kind::moving});
      return;
    }
    const std::int64_t size = bytes_of(schedule_.storages[view.storage].dtype);
    if (view.rows != 1 && view.ld != view.cols) {
      places_.push_back(
          {AccessPlace::Kind::strided, static_cast<std::uint32_t>(strides_.find(view, size, cuts_of(view.storage)))});
      return;
    }
    const Range bytes{view.offset * size, (view.offset + view.rows * view.cols) * size};
    places_.push_back({AccessPlace::Kind::contiguous,
                       ranges_.find(view.storage, number_[view.storage], bytes, cuts_of(view.storage))});
  }

  void to_pieces(StorageId storage, Range& bytes) const {
    const std::vector<std::uint32_t>& pieces = piece_at_[number_[storage]];
    bytes.begin = pieces[cuts_of(storage).find(bytes.begin)];
    bytes.end = pieces[cuts_of(storage).find(bytes.end)];
  }

  Cuts& cuts_of(StorageId storage) { return cuts_[number_[storage]]; }
  const Cuts& cuts_of(StorageId storage) const { return cuts_[number_[storage]]; }

  const Schedule& schedule_;
  const RolePlan* plan_;
  std::vector<StorageId> used_;                       // a pipeline stage uses few of all storages
  std::vector<std::uint32_t> number_;                 // [storage] → used_; kStatic: the program does not use it
  std::vector<Cuts> cuts_;                            // [used]
  std::vector<std::vector<std::uint32_t>> piece_at_;  // [used][cut]: the piece that begins there
  std::vector<AccessPlace> places_;                   // [access]
  ContiguousRanges ranges_;
  Strides strides_;
  std::uint32_t count_ = 0;                    // pieces, then cells, then variants of them
  std::vector<ClassRanges> moving_;            // accesses whose bytes differ between ranks; bytes, pieces, cells
  std::vector<std::uint32_t> moving_of_;       // [access] → moving_, or kStatic; empty when none moves
  std::vector<std::uint32_t> patterns_begin_;  // [access] → patterns_of_; one more at the end; empty when none moves
  std::vector<std::uint32_t> patterns_of_;     // those of its group that it has
  std::vector<std::vector<OnCell>> patterns_;  // [cell]
  std::vector<std::uint32_t> variants_begin_;  // [cell] → its first variant; one more at the end
};

}  // namespace

std::vector<std::uint32_t> number_instances(const Schedule& schedule) {
  std::vector<std::uint32_t> first;
  std::int64_t count = 0;
  for (const Tensor& tensor : schedule.tensors) {
    first.push_back(static_cast<std::uint32_t>(count));
    count += tensor.layers;
  }
  if (count >> kInstanceBits != 0) throw input_error("schedule: more layers of tensors than can be told apart");
  first.push_back(static_cast<std::uint32_t>(count));
  return first;
}

Cells cut_into_cells(const Schedule& schedule, const BoundProgram& program, Footprints& footprints,
                     const RolePlan* plan) {
  Cutting cutting(schedule, program, footprints, plan);
  cutting.cut_into_pieces();
  cutting.join_pieces();
  cutting.multiply_by_patterns();
  Cells cells;
  cells.count = cutting.count();
  cells.uses.reserve(cutting.accesses());
  const std::vector<std::uint32_t> first_instance = number_instances(schedule);
  std::uint32_t number = 0;  // number of the access
  for (std::uint32_t footprint = 0; footprint < footprints.count(); ++footprint) {
    cells.begin.push_back(static_cast<std::uint32_t>(cells.uses.size()));
    const auto& accesses = schedule.operations[program.ops[footprints.first_op(footprint)].op].accesses;
    const std::span<const BoundView> views = footprints.views(footprint);
    for (std::size_t a = 0; a < accesses.size(); ++a) {
      const BufferKind kind = schedule.storages[views[a].storage].kind;
      cutting.visit_cells(number++, [&](const Range& range) {
        cells.uses.push_back({static_cast<std::uint32_t>(range.begin), static_cast<std::uint32_t>(range.end),
                              views[a].storage, static_cast<std::uint16_t>(a), accesses[a].mode,
                              !is_persistent(kind) && kind != BufferKind::input, kind,
                              first_instance[accesses[a].view.tensor] + static_cast<std::uint32_t>(views[a].layer)});
      });
    }
  }
  cells.begin.push_back(static_cast<std::uint32_t>(cells.uses.size()));
  return cells;
}

}  // namespace stretto
