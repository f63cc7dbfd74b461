#include "exec/launch/timelines.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.hpp"

namespace stretto::launch {

Timeline gather_timeline(ProcessGroup& processes, Timeline mine, std::span<const BoundProgram> programs) {
  static_assert(std::is_trivially_copyable_v<TimelineRow>);
  for (TimelineRow& row : mine.rows) {
    row.rank = static_cast<std::int32_t>(processes.rank());
    for (Picoseconds* time : {&row.ready, &row.start, &row.transfer, &row.end}) *time -= mine.step_begin;
  }
  mine.step_end -= mine.step_begin;
  mine.step_begin = 0;
  Bytes part(sizeof mine.step_end + mine.rows.size() * sizeof(TimelineRow));
  std::memcpy(part.data(), &mine.step_end, sizeof mine.step_end);
  if (!mine.rows.empty())
    std::memcpy(part.data() + sizeof mine.step_end, mine.rows.data(), mine.rows.size() * sizeof(TimelineRow));
  std::size_t most = 0;
  for (const BoundProgram& program : programs) most = std::max(most, program.ops.size());
  const std::vector<Bytes> parts = processes.gather(part, sizeof mine.step_end + most * sizeof(TimelineRow));
  if (parts.empty()) return mine;
  Timeline all;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Bytes& of = parts[rank];
    Picoseconds step_end = 0;
    const std::size_t before = all.rows.size(), rows = (of.size() - sizeof step_end) / sizeof(TimelineRow);
    bool is_one = of.size() >= sizeof step_end && of.size() == sizeof step_end + rows * sizeof(TimelineRow);
    if (is_one) {
      std::memcpy(&step_end, of.data(), sizeof step_end);
      all.step_end = std::max(all.step_end, step_end);
      all.rows.resize(before + rows);
      if (rows > 0) std::memcpy(all.rows.data() + before, of.data() + sizeof step_end, rows * sizeof(TimelineRow));
    }
    for (std::size_t row = before; row < all.rows.size(); ++row)
      is_one = is_one && all.rows[row].rank == std::int32_t(rank) && all.rows[row].op < programs[rank].ops.size();
    if (!is_one) throw runtime_failure("rank " + std::to_string(rank) + " sent something that is no timeline");
  }
  return all;
}

}  // namespace stretto::launch
