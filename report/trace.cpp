#include "report/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/new_file.hpp"
#include "report/live_memory.hpp"
#include "report/stage_bars.hpp"
#include "report/traffic.hpp"

namespace stretto {
namespace {

// Returns a trace-event time in microseconds; six decimals carry picoseconds exactly, which a double would not for long
// times.
std::string us_text(Picoseconds time) {
  const bool negative = time < 0;
  const Picoseconds magnitude = negative ? -time : time;
  return fmt::format("{}{}.{:06}", negative ? "-" : "", magnitude / kPicosecondsPerMicrosecond,
                     magnitude % kPicosecondsPerMicrosecond);
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : file_(path) { put("{\"displayTimeUnit\":\"ns\",\"traceEvents\":["); }

  void event(const std::string& json) {
    put((first_ ? "\n" : ",\n") + json);
    first_ = false;
  }
  void finish() {
    put("\n]}\n");
    file_.write(unwritten_);
    file_.finish();
  }

 private:
  void put(const std::string& text) {
    constexpr std::size_t kPieceBytes = 1 << 18;
    unwritten_ += text;
    if (unwritten_.size() < kPieceBytes) return;
    file_.write(unwritten_);
    unwritten_.clear();
  }

  NewFile file_;
  std::string unwritten_;
  bool first_ = true;
};

std::string metadata_event(const char* what, int pid, int tid, const std::string& argument) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, pid, tid, argument);
}

std::string waits_text(const Schedule& schedule, const BoundProgram& program, const BoundOp& op) {
  std::string text;
  for (std::uint32_t i = op.wait_begin; i < op.wait_end; ++i) {
    const BoundWait& wait = program.waits[i];
    if (!text.empty()) text += "; ";
    text += schedule.lanes[wait.lane].name + ": " + label(schedule, program.ops[wait.op]);
    if (wait.kind == EdgeKind::start_start) text += " (its start)";
    if (wait.steps_ago > 0) text += fmt::format(" ({} step{} ago)", wait.steps_ago, wait.steps_ago == 1 ? "" : "s");
  }
  return text;
}

std::string slice(const Schedule& schedule, const BoundProgram& program, const TimelineRow& row, Picoseconds origin,
                  int pid) {
  const BoundOp& op = program.ops[row.op];
  const Operation& operation = schedule.operations[op.op];
  std::string json =
      fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"op":{},"work":{})",
                  quoted(label(schedule, op)), name_of(operation.phase), pid, op.lane + 1, us_text(row.start - origin),
                  us_text(row.end - row.start), row.op, quoted(describe(operation.work)));
  if (!operation.accesses.empty())
    json += fmt::format(R"(,"element_bytes":{})", bytes_of(schedule.dtype_of(operation.accesses.front().view)));
  if (row.start != row.ready) json += fmt::format(R"(,"queued_us":{})", us_text(row.start - row.ready));
  if (is_communication(operation.work)) {
    const Communicator& group = schedule.communicators[communicator_of(operation.work)];
    json += fmt::format(R"(,"group":{},"group_size":{})", quoted(group.name), group.size);
    json += fmt::format(R"(,"waited_for_peers_us":{},"transfer_us":{})", us_text(row.transfer - row.start),
                        us_text(row.moved() - row.transfer));
    if (const std::int64_t bytes = operation.accesses.empty() ? 0 : sent_bytes(schedule, operation); bytes > 0) {
      json += fmt::format(R"(,"sent_bytes":{})", bytes);
      if (const double us = to_us(row.moved() - row.transfer); us > 0)
        json += fmt::format(R"(,"sent_GBps":{:.6g})", double(bytes) * 1e-3 / us);
    }
    if (row.waited > 0) json += fmt::format(R"(,"waited_for_joined_us":{})", us_text(row.waited));
  }
  const std::string waits = waits_text(schedule, program, op);
  if (!waits.empty()) json += R"(,"waits":)" + quoted(waits);
  return json + "}}";
}

void write_names(TraceFile& file, const TraceSection& section, const BoundProgram& program, int pid) {
  const std::string title = fmt::format("{}, rank {}", section.title, program.rank);
  file.event(metadata_event("process_name", pid, 0, R"("name":)" + quoted(title)));
  file.event(metadata_event("process_sort_index", pid, 0, fmt::format(R"("sort_index":{})", pid)));
  for (std::size_t lane = 0; lane < section.schedule->lanes.size(); ++lane) {
    const int tid = static_cast<int>(lane) + 1;
    file.event(metadata_event("thread_name", pid, tid, R"("name":)" + quoted(section.schedule->lanes[lane].name)));
    file.event(metadata_event("thread_sort_index", pid, tid, fmt::format(R"("sort_index":{})", tid)));
  }
}

// Returns the start of the section's first operation, which may be before the end of the previous step.
Picoseconds origin_of(const TraceSection& section) {
  Picoseconds origin = section.timeline->step_begin;
  for (const TimelineRow& row : section.timeline->rows) origin = std::min(origin, row.start);
  return origin;
}

using RowsOfRank = std::vector<const TimelineRow*>;  // [op], null: no row

// Writes an arrow from each send to its receive, where both ranks are in the section.
void write_arrows(TraceFile& file, const TraceSection& section, const std::vector<RowsOfRank>& rows, int first_pid,
                  Picoseconds origin, std::int64_t& next_arrow) {
  const std::vector<BoundProgram>& programs = section.step->programs;
  const Partners& partners = section.step->issued.partners;
  if (partners.route_of.size() < programs.size()) return;
  struct End {
    std::size_t program = 0;
    std::uint32_t op = 0;
  };
  std::vector<std::vector<End>> ends[2];  // [receive, send][route], in order
  for (auto& of_routes : ends) of_routes.resize(partners.routes.size());
  for (std::size_t p = 0; p < programs.size(); ++p)
    for (std::uint32_t op = 0; op < programs[p].ops.size(); ++op) {
      const auto* message = std::get_if<PointToPoint>(&programs[p].work_of(op));
      if (message == nullptr) continue;
      const std::uint32_t route = partners.route_of[p][programs[p].ops[op].op];
      if (route != Partners::kNone && partners.routes[route].is_direct)
        ends[message->is_send ? 1 : 0][route].push_back({p, op});
    }
  const auto event = [&](const char* ph, const End& end, const std::string& more) {
    const TimelineRow& row = *rows[end.program][end.op];
    file.event(fmt::format(R"({{"ph":"{}","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}{}}})", ph,
                           next_arrow, first_pid + static_cast<int>(end.program),
                           programs[end.program].ops[end.op].lane + 1, us_text(row.transfer - origin), more));
  };
  for (std::size_t route = 0; route < partners.routes.size(); ++route)
    for (std::size_t i = 0; i < std::min(ends[0][route].size(), ends[1][route].size()); ++i) {
      const End &receive = ends[0][route][i], &send = ends[1][route][i];
      if (!rows[receive.program][receive.op] || !rows[send.program][send.op]) continue;
      event("s", send, "");
      event("f", receive, R"(,"bp":"e")");
      ++next_arrow;
    }
}

void write_extra(TraceFile& file, const TraceSection& section, const std::map<std::int64_t, std::size_t>& by_rank,
                 int first_pid, Picoseconds origin) {
  std::map<std::pair<std::int64_t, std::string>, int> threads;  // [rank, lane]
  for (const TraceExtra& extra : *section.extra) {
    const auto found = by_rank.find(extra.rank);
    if (found == by_rank.end()) continue;
    const int pid = first_pid + static_cast<int>(found->second);
    const auto [thread, is_new] = threads.try_emplace(
        {extra.rank, extra.lane}, static_cast<int>(section.schedule->lanes.size() + threads.size()) + 1);
    if (is_new) file.event(metadata_event("thread_name", pid, thread->second, R"("name":)" + quoted(extra.lane)));
    file.event(fmt::format(R"({{"ph":"X","name":{},"cat":"extra","pid":{},"tid":{},"ts":{},"dur":{}}})",
                           quoted(extra.name), pid, thread->second, us_text(extra.start - origin),
                           us_text(extra.end - extra.start)));
  }
}

void write_memory(TraceFile& file, const TraceSection& section, const BoundProgram& program, const RowsOfRank& rows,
                  int pid, Picoseconds origin) {
  RowsOfRank present;
  for (const TimelineRow* row : rows)
    if (row) present.push_back(row);
  for (const LiveMemory& live : live_memory(*section.schedule, program, present))
    file.event(fmt::format(R"({{"ph":"C","name":"bytes in use","pid":{},"tid":0,"ts":{},"args":{{"bytes":{}}}}})", pid,
                           us_text(live.at - origin), live.bytes));
}

// Writes two threads more for a rank whose forward and backward passes run together: the passes of each direction, so
// that the micro-batches are seen side by side above the operations that they are made of.
void write_passes(TraceFile& file, const TraceSection& section, const std::vector<BoundProgram>& programs,
                  int first_pid, Picoseconds origin) {
  const std::vector<StageTrack> tracks = stage_bars(*section.schedule, programs, *section.timeline);
  for (std::size_t t = 0; t + 1 < tracks.size(); ++t) {
    if (tracks[t].rank != tracks[t + 1].rank) continue;
    const auto program = std::find_if(programs.begin(), programs.end(),
                                      [&](const BoundProgram& one) { return one.rank == tracks[t].rank; });
    const int pid = first_pid + static_cast<int>(program - programs.begin());
    for (const std::size_t direction : {std::size_t{0}, std::size_t{1}}) {
      const int tid = static_cast<int>(section.schedule->lanes.size() + 1 + direction);
      const char* name = direction == 0 ? "forward passes" : "backward passes";
      file.event(metadata_event("thread_name", pid, tid, R"("name":)" + quoted(name)));
      file.event(
          metadata_event("thread_sort_index", pid, tid, fmt::format(R"("sort_index":{})", direction == 0 ? -2 : -1)));
      for (const StageBar& bar : tracks[t + direction].bars) {
        const bool is_pass = bar.kind <= BarKind::weight_gradient;
        const std::string title = is_pass
                                      ? fmt::format("{} mb {} chunk {}", name_of(bar.kind), bar.micro_batch, bar.chunk)
                                      : std::string(name_of(bar.kind));
        file.event(fmt::format(R"({{"ph":"X","name":{},"cat":"pass","pid":{},"tid":{},"ts":{},"dur":{}}})",
                               quoted(title), pid, tid, us_text(section.timeline->step_begin + bar.start - origin),
                               us_text(bar.end - bar.start)));
      }
    }
  }
}

}  // namespace

void write_trace(const std::string& path, const std::vector<TraceSection>& sections) {
  TraceFile file(path);
  int next_pid = 1;
  std::int64_t next_arrow = 1;
  for (const TraceSection& section : sections) {
    const int first_pid = next_pid;
    const Picoseconds origin = origin_of(section);
    const std::vector<BoundProgram>& programs = section.step->programs;
    std::map<std::int64_t, std::size_t> by_rank;
    std::vector<RowsOfRank> rows;
    for (const BoundProgram& program : programs) {
      by_rank[program.rank] = rows.size();
      rows.emplace_back(program.ops.size());
      write_names(file, section, program, next_pid);
      file.event(fmt::format(R"({{"ph":"i","name":"step begins","s":"p","pid":{},"tid":0,"ts":{}}})", next_pid++,
                             us_text(section.timeline->step_begin - origin)));
    }
    for (const TimelineRow& row : section.timeline->rows) {
      const auto found = by_rank.find(row.rank);
      if (found == by_rank.end()) continue;
      const std::size_t p = found->second;
      rows[p][row.op] = &row;
      file.event(slice(*section.schedule, programs[p], row, origin, first_pid + static_cast<int>(p)));
    }
    if (section.extra != nullptr) write_extra(file, section, by_rank, first_pid, origin);
    write_passes(file, section, programs, first_pid, origin);
    write_arrows(file, section, rows, first_pid, origin, next_arrow);
    // With kernels outside the schedule the memory of its buffers says little.
    for (std::size_t p = 0; p < programs.size() && section.extra == nullptr; ++p)
      write_memory(file, section, programs[p], rows[p], first_pid + static_cast<int>(p), origin);
  }
  file.finish();
}

}  // namespace stretto
