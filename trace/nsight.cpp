#include "trace/nsight.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "trace/kineto.hpp"
#include "trace/sqlite_file.hpp"

namespace stretto::trace {
namespace {

constexpr std::int64_t kPsPerNs = 1000;
constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr std::size_t kEntryBytes = 64;  // of an entry in a map or a list of names
constexpr std::size_t kMostRanks = 4096;
// Numbers in place of those of StringIds, which are not negative.
constexpr std::int64_t kMemcpy = -1, kMemset = -2;

// Ranks of a report by process and device; names are shared by all until the end.
class Report {
 public:
  explicit Report(const std::string& path) : path_(path), database_(path) {}

  TraceFile read() {
    const std::set<std::string> columns = database_.columns(kKernels);
    if (!columns.contains("start") || !columns.contains("streamId"))
      throw input_error(path_ + ": has no table " + kKernels +
                        "; expected a report with kernels: nsys profile --trace cuda,nvtx, then nsys export --type "
                        "sqlite");
    read_strings();
    read_launches();
    has_pid_ = columns.contains("globalPid");
    const std::string name = columns.contains("demangledName") ? "demangledName" : "shortName";
    const bool has_grid = columns.contains("gridX") && columns.contains("gridY") && columns.contains("gridZ");
    add_events(kKernels, name, has_grid ? "gridX * gridY * gridZ" : "0");
    const std::pair<const char*, std::int64_t> copies[] = {{"CUPTI_ACTIVITY_KIND_MEMCPY", kMemcpy},
                                                           {"CUPTI_ACTIVITY_KIND_MEMSET", kMemset}};
    for (const auto& [table, id] : copies)
      if (database_.columns(table).contains("streamId")) add_events(table, std::to_string(id), "0");
    if (ranks_.empty()) throw input_error(path_ + ": has no kernels; expected a trace of a GPU");
    read_marks();
    return take();
  }

 private:
  const std::string& string(std::int64_t id) const {
    static const std::string unknown = "?";
    const auto found = strings_.find(id);
    return found == strings_.end() ? unknown : found->second;
  }
  Picoseconds at(std::int64_t ns) {
    if (!origin_) origin_ = ns;
    constexpr std::int64_t kMost = kHorizon / 4 / kPsPerNs;
    std::int64_t since = 0;
    if (__builtin_sub_overflow(ns, *origin_, &since)) since = ns < *origin_ ? -kMost : kMost;
    return std::clamp(since, -kMost, kMost) * kPsPerNs;
  }

  void read_strings() {
    strings_[kMemcpy] = "Memcpy";
    strings_[kMemset] = "Memset";
    if (!database_.columns("StringIds").contains("value")) return;
    database_.query("SELECT id, value FROM StringIds", [&](const SqliteRow& row) {
      std::string text = row.text(1);
      database_.budget().keep(kEntryBytes + text.size());
      strings_[row.number(0)] = std::move(text);
    });
  }

  // A thread's number has its process's in the upper bits: globalPid = globalTid with the lower 24 bits 0.
  static std::int64_t process_of(std::int64_t thread) { return thread & ~std::int64_t{0xFFFFFF}; }

  void read_launches() {
    const std::set<std::string> columns = database_.columns("CUPTI_ACTIVITY_KIND_RUNTIME");
    if (!columns.contains("correlationId")) return;
    const std::string name = columns.contains("nameId") ? "nameId" : "0";
    database_.query("SELECT correlationId, globalTid, start, " + name + " FROM CUPTI_ACTIVITY_KIND_RUNTIME",
                    [&](const SqliteRow& row) {
                      database_.budget().keep(kEntryBytes);
                      const std::int64_t process = process_of(row.number(1));
                      launches_[process][row.number(0)] = row.number(2);
                      if (waits_for_device(string(row.number(3)))) syncs_[process].push_back(row.number(2));
                    });
  }

  // `name` is the column or the number of the events' name, `blocks` the expression for blocks of the grid.
  void add_events(const std::string& table, const std::string& name, const std::string& blocks) {
    database_.query(
        "SELECT start, end, deviceId, streamId, correlationId, " + std::string(has_pid_ ? "globalPid" : "0") + ", " +
            name + ", " + blocks + " FROM " + table + " ORDER BY start",
        [&](const SqliteRow& row) {
          const std::int64_t process = row.number(5);
          const auto [at_rank, is_new] = ranks_.try_emplace({process, row.number(2)});
          RankTrace& rank = at_rank->second;
          database_.budget().keep(sizeof(Kernel) + (is_new ? sizeof(RankTrace) : 0));
          if (is_new && ranks_.size() > kMostRanks)
            throw input_error(path_ + ": expected kernels of at most " + std::to_string(kMostRanks) +
                              " devices, got more");
          Kernel kernel;
          kernel.start = at(row.number(0));
          kernel.end = std::max(kernel.start, at(row.number(1)));
          kernel.name = index(rank, row.number(6));
          kernel.cls = names_[&rank].classes[kernel.name];
          kernel.stream = stream(rank, row.number(3));
          constexpr std::int64_t kMostBlocks = std::int64_t{1} << 31;
          kernel.blocks = static_cast<std::uint32_t>(std::clamp<std::int64_t>(row.number(7), 0, kMostBlocks));
          kernel.launched = launched(process, row.number(4));
          rank.kernels.push_back(kernel);
        });
  }

  Picoseconds launched(std::int64_t process, std::int64_t correlation) {
    const auto of_process = launches_.find(process);
    if (of_process == launches_.end()) return kNoTime;
    const auto found = of_process->second.find(correlation);
    return found == of_process->second.end() ? kNoTime : at(found->second);
  }

  // Returns the index of a kernel's name, which `id` stands for. Each name is copied and classified once, because it
  // may be long and have millions of kernels.
  std::uint32_t index(RankTrace& rank, std::int64_t id) {
    Names& names = names_[&rank];
    const auto [known, is_new_id] = names.of_id.try_emplace(id);
    if (!is_new_id) return known->second;
    const std::string& text = string(id);
    database_.budget().look(kLooksOfPatterns * text.size());
    database_.budget().keep(2 * (kEntryBytes + text.size()));
    const auto [found, is_new] = names.of_text.try_emplace(text, static_cast<std::uint32_t>(rank.names.size()));
    if (is_new) {
      rank.names.push_back(text);
      names.classes.push_back(class_of_kernel(text));
    }
    return known->second = found->second;
  }
  std::uint32_t stream(RankTrace& rank, std::int64_t id) {
    const auto [found, is_new] = streams_[&rank].try_emplace(id, static_cast<std::uint32_t>(rank.streams.size()));
    if (!is_new) return found->second;
    database_.budget().keep(kEntryBytes);
    rank.streams.push_back({"stream " + std::to_string(id)});
    return found->second;
  }

  void read_marks() {
    const std::set<std::string> columns = database_.columns("NVTX_EVENTS");
    if (!columns.contains("text") || !columns.contains("globalTid")) return;
    const std::string id = columns.contains("textId") ? "textId" : "0";
    database_.query("SELECT start, end, text, " + id + ", globalTid FROM NVTX_EVENTS WHERE end > start ORDER BY start",
                    [&](const SqliteRow& row) {
                      const std::string own = row.text(2);
                      const std::string& text = own.empty() ? string(row.number(3)) : own;
                      database_.budget().look(text.size());
                      if (!marks_step(text)) return;
                      for (auto& [key, rank] : ranks_) {
                        database_.budget().look(1);
                        if (has_pid_ && key.first != process_of(row.number(4))) continue;
                        database_.budget().keep(sizeof(StepMark) + text.size());
                        rank.marks.push_back({text, at(row.number(0)), at(row.number(1))});
                      }
                    });
  }

  TraceFile take() {
    TraceFile file{Origin::nsight, {{"", {}}}};
    const std::optional<std::int64_t> named = ranks_.size() == 1 ? rank_in_name(path_) : std::nullopt;
    std::int64_t next = named.value_or(0);
    for (auto& [key, rank] : ranks_) {
      rank.rank = next++;
      rank.says_rank = named.has_value() || ranks_.size() > 1;
      rank.file = path_;
      for (const std::int64_t ns : syncs_[key.first]) rank.syncs.push_back(at(ns));
      std::sort(rank.syncs.begin(), rank.syncs.end());
      std::stable_sort(rank.kernels.begin(), rank.kernels.end(),
                       [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
      file.sections[0].ranks.push_back(std::move(rank));
    }
    return file;
  }

  const std::string& path_;
  SqliteFile database_;
  bool has_pid_ = false;
  std::optional<std::int64_t> origin_;
  std::unordered_map<std::int64_t, std::string> strings_;
  std::map<std::int64_t, std::unordered_map<std::int64_t, std::int64_t>> launches_;  // [process][correlation] ns
  std::map<std::int64_t, std::vector<std::int64_t>> syncs_;                          // [process] ns
  std::map<std::pair<std::int64_t, std::int64_t>, RankTrace> ranks_;                 // [process, device]
  struct Names {
    std::unordered_map<std::int64_t, std::uint32_t> of_id;
    std::unordered_map<std::string, std::uint32_t> of_text;
    std::vector<KernelClass> classes;  // [index]
  };
  std::map<const RankTrace*, Names> names_;
  std::map<const RankTrace*, std::unordered_map<std::int64_t, std::uint32_t>> streams_;
};

}  // namespace

TraceFile read_nsight(const std::string& path) { return Report(path).read(); }

}  // namespace stretto::trace
