#include "report/trace.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/new_file.hpp"

namespace stretto {
namespace {

// Trace-event times are microseconds; six decimals carry picoseconds exactly, which a double would not at long times.
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
  if (row.start != row.ready) json += fmt::format(R"(,"queued_us":{})", us_text(row.start - row.ready));
  if (is_communication(operation.work)) {
    json += fmt::format(R"(,"waited_for_peers_us":{},"transfer_us":{})", us_text(row.transfer - row.start),
                        us_text(row.moved() - row.transfer));
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

}  // namespace

void write_trace(const std::string& path, const std::vector<TraceSection>& sections) {
  TraceFile file(path);
  int next_pid = 1;
  for (const TraceSection& section : sections) {
    std::map<std::int64_t, std::pair<const BoundProgram*, int>> by_rank;
    for (const BoundProgram& program : *section.programs) {
      by_rank[program.rank] = {&program, next_pid};
      write_names(file, section, program, next_pid++);
    }
    for (const TimelineRow& row : section.timeline->rows) {
      const auto found = by_rank.find(row.rank);
      if (found == by_rank.end()) continue;
      const auto [program, pid] = found->second;
      file.event(slice(*section.schedule, *program, row, section.timeline->step_begin, pid));
    }
  }
  file.finish();
}

}  // namespace stretto
