#include "model/schedule/cells.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stretto {
namespace {

// Ends of accesses within one storage. Few are distinct, so they are merged whenever twice as many have come in.
struct Cuts {
  std::vector<std::int64_t> bytes;
  std::size_t merge_at = 32;

  void add(std::int64_t begin, std::int64_t end) {
    if (bytes.size() >= 2 && bytes[0] == begin && bytes[1] == end) return;  // nearly all: one view, one storage
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

struct ByteRange {
  std::int64_t begin = 0, end = 0;
};

}  // namespace

Cells cut_into_cells(const Schedule& schedule, const BoundProgram& program, Footprints& footprints,
                     const RolePlan* plan) {
  Cells cells;
  std::vector<ByteRange> ranges;  // [use]
  std::vector<Cuts> cuts(schedule.storages.size());
  for (std::uint32_t footprint = 0; footprint < footprints.count(); ++footprint) {
    cells.begin.push_back(static_cast<std::uint32_t>(cells.uses.size()));
    const auto& accesses = schedule.operations[program.ops[footprints.first_op(footprint)].op].accesses;
    const std::span<const BoundView> views = footprints.views(footprint);
    for (std::size_t a = 0; a < accesses.size(); ++a) {
      const BoundView& view = views[a];
      const std::int64_t size = bytes_of(schedule.storages[view.storage].dtype);
      const BufferKind kind = schedule.storages[view.storage].kind;
      const bool is_contiguous = view.rows == 1 || view.ld == view.cols;
      const std::int64_t rows = is_contiguous ? 1 : view.rows;
      const std::int64_t cols = is_contiguous ? view.rows * view.cols : view.cols;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t begin = (view.offset + row * view.ld) * size, end = begin + cols * size;
        cuts[view.storage].add(begin, end);
        ranges.push_back({begin, end});
        cells.uses.push_back({0, 0, view.storage, static_cast<std::uint16_t>(a), accesses[a].mode,
                              !is_persistent(kind) && kind != BufferKind::input});
      }
    }
  }
  cells.begin.push_back(static_cast<std::uint32_t>(cells.uses.size()));

  if (plan)
    for (const CellUse& use : cells.uses)
      if (!plan->has(use.storage))
        throw input_error("memory plan: " + schedule.storages[use.storage].name + " is used but has no place");

  // A cell is named by the cut at its beginning.
  std::vector<std::vector<std::uint32_t>> cell_at(cuts.size());  // [storage][cut]
  std::vector<std::int64_t> arena;
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    cuts[s].merge();
    if (plan)
      for (const std::int64_t byte : cuts[s].bytes) arena.push_back(plan->offset_bytes[s] + byte);
  }
  std::sort(arena.begin(), arena.end());
  arena.erase(std::unique(arena.begin(), arena.end()), arena.end());
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    for (const std::int64_t byte : cuts[s].bytes) {
      if (plan) {
        const auto at = std::lower_bound(arena.begin(), arena.end(), plan->offset_bytes[s] + byte);
        cell_at[s].push_back(static_cast<std::uint32_t>(at - arena.begin()));
      } else {
        cell_at[s].push_back(cells.count++);
      }
    }
  }
  if (plan) cells.count = static_cast<std::uint32_t>(arena.size());

  for (std::size_t u = 0; u < cells.uses.size(); ++u) {
    CellUse& use = cells.uses[u];
    use.first = cell_at[use.storage][cuts[use.storage].find(ranges[u].begin)];
    use.last = cell_at[use.storage][cuts[use.storage].find(ranges[u].end)];
  }
  return cells;
}

}  // namespace stretto
