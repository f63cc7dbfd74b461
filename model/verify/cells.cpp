#include "model/verify/cells.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <compare>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "model/verify/class_ranges.hpp"
#include "model/verify/pieces.hpp"

namespace stretto {
namespace {

using Range = ByteRange;  // a range of bytes, then of pieces, then of cells

// Ends of accesses within storages, which are numbered.
class Cuts {
 public:
  void add(std::uint32_t storage, const Range& range) {
    added_.push_back({storage, range.begin});
    added_.push_back({storage, range.end});
  }
  // Sorts what was added. Few ends of a storage are distinct.
  void sort(std::size_t storages) {
    begin_.assign(storages + 1, 0);
    for (const Added& cut : added_) ++begin_[cut.storage + 1];
    for (std::size_t s = 0; s < storages; ++s) begin_[s + 1] += begin_[s];
    bytes_.resize(added_.size());
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (const Added& cut : added_) bytes_[next[cut.storage]++] = cut.byte;
    std::uint32_t end = 0;
    for (std::size_t s = 0; s < storages; ++s) {
      const auto first = bytes_.begin() + begin_[s], last = bytes_.begin() + begin_[s + 1];
      std::sort(first, last);
      begin_[s] = end;
      end += static_cast<std::uint32_t>(std::unique_copy(first, last, bytes_.begin() + end) - bytes_.begin()) - end;
    }
    begin_[storages] = end;
    bytes_.resize(end);
  }

  // Cuts are numbered through all storages. The functions below are for sorted ones.
  std::size_t count() const { return bytes_.size(); }
  std::uint32_t begin(std::size_t storage) const { return begin_[storage]; }
  std::int64_t byte(std::size_t cut) const { return bytes_[cut]; }
  std::size_t find(std::uint32_t storage, std::int64_t byte) const {
    return static_cast<std::size_t>(
        std::lower_bound(bytes_.begin() + begin_[storage], bytes_.begin() + begin_[storage + 1], byte) -
        bytes_.begin());
  }

 private:
  struct Added {
    std::uint32_t storage = 0;
    std::int64_t byte = 0;
  };
  std::vector<Added> added_;
  std::vector<std::uint32_t> begin_;  // [storage] its first cut; one more at the end
  std::vector<std::int64_t> bytes_;   // [cut]
};

// A view that is not contiguous. Many operations have equal views, which are cut once.
struct Strided {
  std::uint32_t storage = 0;
  Columns bytes;             // bytes of the storage
  std::vector<Range> where;  // pieces, then cells
};

class Strides {
 public:
  // Returns the number of a view; the ends of a new view become cuts.
  std::size_t find(const BoundView& view, std::uint32_t storage, std::int64_t size, Cuts& cuts) {
    const auto key = std::tuple(storage, view.offset, view.rows, view.cols, view.ld);
    const auto [found, is_new] = number_.try_emplace(key, all.size());
    if (!is_new) return found->second;
    const Columns bytes{view.offset * size, view.rows, view.cols * size, view.ld * size};
    all.push_back({storage, bytes, {}});
    cuts.add(storage, {bytes.begin, bytes.end()});
    return found->second;
  }
  std::vector<Strided> all;

 private:
  std::map<std::tuple<std::uint32_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, std::size_t> number_;
};

// A view that is contiguous. Nearly all accesses of a storage have few distinct ranges.
struct Contiguous {
  std::uint32_t storage = 0;
  Range where;  // bytes of the storage, then pieces, then cells
};

class ContiguousRanges {
 public:
  explicit ContiguousRanges(std::size_t storages = 0) : latest_(storages, kNone), table_(kLeastTable, kNone) {}

  // Returns the number of a range of bytes; the ends of a new one become cuts.
  std::uint32_t find(std::uint32_t storage, const Range& bytes, Cuts& cuts) {
    std::uint32_t& latest = latest_[storage];
    if (latest != kNone && all[latest].where == bytes) return latest;
    // Only storages with several ranges need the table.
    if (latest != kNone) {
      place_of({storage, all[latest].where}) = latest;
      if (const std::uint32_t known = place_of({storage, bytes}); known != kNone) return latest = known;
    }
    latest = static_cast<std::uint32_t>(all.size());
    all.push_back({storage, bytes});
    cuts.add(storage, bytes);
    if (2 * all.size() > table_.size()) grow();
    return latest;
  }
  std::vector<Contiguous> all;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kLeastTable = 256;

  // Returns the range's place in the table, or the free place that is for it. At least half of all places are free.
  std::uint32_t& place_of(const Contiguous& range) {
    std::uint64_t hash = range.storage;
    for (const std::int64_t part : {range.where.begin, range.where.end})
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    for (std::size_t at = (hash ^ hash >> 32) & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1))
      if (table_[at] == kNone || (all[table_[at]].storage == range.storage && all[table_[at]].where == range.where))
        return table_[at];
  }
  void grow() {
    std::vector<std::uint32_t> before(2 * table_.size(), kNone);
    before.swap(table_);
    for (const std::uint32_t number : before)
      if (number != kNone) place_of(all[number]) = number;
  }

  std::vector<std::uint32_t> latest_;  // [storage] its range that was found last
  std::vector<std::uint32_t> table_;   // numbers of ranges; its size is a power of two
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
        const Storage& storage = schedule.storages[view.storage];
        if (plan_ && !plan_->has(view.storage))
          throw input_error("memory plan: " + storage.name + " is used but has no place");
        used_.push_back({view.storage, static_cast<std::uint8_t>(bytes_of(storage.dtype)), storage.kind});
      }
    }
    for (const ClassRanges& group : moving_) assert(number_[group.storage] != kStatic);
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
        for (const Range& range : pattern.where) cuts_.add(number_[moving_[group].storage], range);
      }
    list_patterns();
    for (std::uint32_t footprint = 0; footprint < footprints.count(); ++footprint)
      for (const BoundView& view : footprints.views(footprint)) place(view);
  }

  // Numbers the pieces between cuts. Without a plan the storages lie one after the other.
  void cut_into_pieces() {
    cuts_.sort(used_.size());
    std::vector<std::int64_t> base;
    std::vector<std::pair<std::int64_t, std::uint32_t>> by_address;  // cuts
    by_address.reserve(cuts_.count());
    std::int64_t end = 0;
    for (std::size_t s = 0; s < used_.size(); ++s) {
      base.push_back(plan_ ? plan_->offset_bytes[used_[s].id] : end);
      end += schedule_.storages[used_[s].id].bytes();
      for (std::uint32_t cut = cuts_.begin(s); cut < cuts_.begin(s + 1); ++cut)
        by_address.emplace_back(base[s] + cuts_.byte(cut), cut);
    }
    std::sort(by_address.begin(), by_address.end());
    std::vector<std::int64_t> addresses;
    piece_at_.resize(by_address.size());
    for (const auto& [address, cut] : by_address) {
      if (addresses.empty() || addresses.back() != address) addresses.push_back(address);
      piece_at_[cut] = static_cast<std::uint32_t>(addresses.size() - 1);  // a band
    }
    std::vector<Columns> columns;
    for (const Strided& strided : strides_.all) {
      columns.push_back(strided.bytes);
      columns.back().begin += base[strided.storage];
    }
    const Pieces pieces(std::move(addresses), columns);
    count_ = pieces.count();
    for (std::uint32_t& piece : piece_at_) piece = pieces.first_of_band(piece);
    for (Contiguous& range : ranges_.all) to_pieces(range.storage, range.where);
    for (std::size_t i = 0; i < columns.size(); ++i) strides_.all[i].where = pieces.of(columns[i]);
    for (ClassRanges& group : moving_)
      for (Pattern& pattern : group.patterns)
        for (Range& range : pattern.where) to_pieces(number_[group.storage], range);
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
  BufferKind kind_of(StorageId storage) const { return used_[number_[storage]].kind; }
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

  struct Used {
    StorageId id = 0;
    std::uint8_t element_bytes = 0;
    BufferKind kind = BufferKind::workspace;
  };
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
    if (!moving_.empty() && moving_of_[places_.size()] != kStatic) {
      places_.push_back({AccessPlace::Kind::moving});
      return;
    }
    const std::uint32_t storage = number_[view.storage];
    const std::int64_t size = used_[storage].element_bytes;
    if (view.rows != 1 && view.ld != view.cols) {
      places_.push_back(
          {AccessPlace::Kind::strided, static_cast<std::uint32_t>(strides_.find(view, storage, size, cuts_))});
      return;
    }
    const Range bytes{view.offset * size, (view.offset + view.rows * view.cols) * size};
    places_.push_back({AccessPlace::Kind::contiguous, ranges_.find(storage, bytes, cuts_)});
  }

  void to_pieces(std::uint32_t storage, Range& bytes) const {
    bytes.begin = piece_at_[cuts_.find(storage, bytes.begin)];
    bytes.end = piece_at_[cuts_.find(storage, bytes.end)];
  }

  const Schedule& schedule_;
  const RolePlan* plan_;
  std::vector<Used> used_;               // a pipeline stage uses few of all storages
  std::vector<std::uint32_t> number_;    // [storage] → used_; kStatic: the program does not use it
  Cuts cuts_;                            // of used_
  std::vector<std::uint32_t> piece_at_;  // [cut]: the piece that begins there
  std::vector<AccessPlace> places_;      // [access]
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
  if (count >> kInstanceBits != 0) throw input_error("schedule: more layers of tensors than can be distinguished");
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
      const BufferKind kind = cutting.kind_of(views[a].storage);
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
