#include "base/load.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "base/printable.hpp"
#include "base/statistics.hpp"

namespace stretto {
namespace {

// In a shorter turn one tick of one processor is more than some percent.
constexpr double kShortestTurn_s = 0.2;
constexpr std::size_t kMostNames = 3;
// A program that used less is not worth a name.
constexpr double kLeastNamed_cores = 0.05;

std::vector<int> own_processors() {
  std::vector<int> processors;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  return processors;
}

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<std::int64_t> number(const std::string& word) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || problem != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

double Load::taken_pct(double threads) const {
  const double wanted = std::min(threads, cores);
  const double taken = std::min(wanted, others_cores + stolen_cores - (cores - wanted));
  if (wanted <= 0 || taken <= 0) return 0;
  // Others never take all: the scheduler shares. A limit of 1 % of the time left keeps the number finite.
  return 100 * taken / std::max(wanted - taken, 0.01 * wanted);
}

LoadMeter::LoadMeter()
    : LoadMeter("/proc", own_processors(), own_seconds, 1.0 / double(std::max(1L, sysconf(_SC_CLK_TCK)))) {}

LoadMeter::LoadMeter(std::string folder, std::vector<int> processors, std::function<double()> own_s, double tick_s)
    : folder_(std::move(folder)), processors_(std::move(processors)), own_s_(std::move(own_s)), tick_s_(tick_s) {}

LoadMeter::Reading LoadMeter::read() const {
  Reading reading;
  reading.own_s = own_s_();
  std::ifstream file(folder_ + "/stat");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string label;
    double user = 0, nice = 0, system = 0, idle = 0, waits = 0, irq = 0, softirq = 0, steal = 0;
    if (!(words >> label >> user >> nice >> system >> idle >> waits >> irq >> softirq >> steal)) continue;
    if (label.size() < 4 || !label.starts_with("cpu")) continue;
    const auto processor = number(label.substr(3));
    if (!processor || std::find(processors_.begin(), processors_.end(), *processor) == processors_.end()) continue;
    reading.used_s += tick_s_ * (user + nice + system + irq + softirq);
    reading.stolen_s += tick_s_ * steal;
    reading.idle_s += tick_s_ * (idle + waits);
    ++reading.processors;
  }
  return reading;
}

std::map<std::int64_t, LoadMeter::Program> LoadMeter::programs() const {
  std::map<std::int64_t, Program> programs;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const auto process = number(entry->path().filename().string());
    if (!process || *process == getpid()) continue;
    std::ifstream file(entry->path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    // "42 (name) S …": the name may contain blanks and brackets; user and system time are fields 14 and 15.
    const std::size_t open = text.find('('), close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open) continue;
    std::istringstream rest(text.substr(close + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field) rest >> skipped;
    double user = 0, system = 0;
    if (rest >> user >> system)
      programs[*process] = {printable(text.substr(open + 1, close - open - 1)), tick_s_ * (user + system)};
  }
  return programs;
}

void LoadMeter::begin_turn() {
  programs_ = programs();
  begin_ = read();
}

void LoadMeter::end_turn() {
  const Reading end = read();
  const double own_s = end.own_s - begin_.own_s, used_s = end.used_s - begin_.used_s,
               stolen_s = end.stolen_s - begin_.stolen_s, idle_s = end.idle_s - begin_.idle_s;
  if (end.processors == 0 || end.processors != begin_.processors) return;
  const double seconds = (used_s + stolen_s + idle_s) / end.processors;
  if (seconds < kShortestTurn_s) return;
  others_cores_.push_back(std::max(0.0, used_s - own_s) / seconds);
  stolen_cores_.push_back(std::max(0.0, stolen_s) / seconds);
  seconds_ += seconds;
  // A process that began and ended within the turn is in the processors' time alone.
  for (const auto& [process, program] : programs()) {
    const auto before = programs_.find(process);
    used_s_[program.name] += std::max(0.0, program.used_s - (before == programs_.end() ? 0 : before->second.used_s));
  }
}

Load LoadMeter::load() const {
  Load load;
  if (others_cores_.empty()) return load;
  load.cores = begin_.processors;
  load.others_cores = median(others_cores_);
  load.stolen_cores = median(stolen_cores_);
  std::ifstream(folder_ + "/loadavg") >> load.average;
  std::vector<std::pair<double, std::string>> most;
  for (const auto& [name, used_s] : used_s_)
    if (used_s >= kLeastNamed_cores * seconds_) most.push_back({-used_s, name});
  std::sort(most.begin(), most.end());
  for (std::size_t i = 0; i < std::min(kMostNames, most.size()); ++i) load.names.push_back(most[i].second);
  return load;
}

}  // namespace stretto
