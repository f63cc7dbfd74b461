#include "exec/launch/timelines.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"

namespace stretto::launch {

Timeline gather_timeline(ProcessGroup& processes, Timeline mine) {
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
  const std::vector<Bytes> parts = processes.gather(part);
  if (parts.empty()) return mine;
  Timeline all;
  for (const Bytes& of : parts) {
    if (of.size() < sizeof all.step_end || (of.size() - sizeof all.step_end) % sizeof(TimelineRow) != 0)
      throw runtime_failure("a rank sent something that is no timeline");
    Picoseconds step_end = 0;
    std::memcpy(&step_end, of.data(), sizeof step_end);
    all.step_end = std::max(all.step_end, step_end);
    const std::size_t before = all.rows.size(), rows = (of.size() - sizeof step_end) / sizeof(TimelineRow);
    all.rows.resize(before + rows);
    if (rows > 0) std::memcpy(all.rows.data() + before, of.data() + sizeof step_end, rows * sizeof(TimelineRow));
  }
  return all;
}

}  // namespace stretto::launch
