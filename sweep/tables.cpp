#include "sweep/tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/shell.hpp"
#include "predict/gain.hpp"
#include "report/units.hpp"
#include "sweep/names.hpp"

namespace stretto::sweep {
namespace {

std::string value_of(const Point& point, const std::string& key) {
  if (key == "gpus") return std::to_string(point.gpus);
  if (key == "platform") return point.platform;
  for (const std::string& set : point.set)
    if (set.rfind(key + "=", 0) == 0) return set.substr(key.size() + 1);
  return "";
}

// Returns a cell that is empty where the number is unknown.
std::string known(double number) { return number == 0 ? "" : fmt::format("{}", number); }

// Returns the axes that have several values among the points.
std::vector<std::string> keys_of(const Space& space) {
  std::vector<std::string> keys;
  for (const Axis& axis : space.axes)
    if (axis.values.size() > 1) keys.push_back(axis.key);
  constexpr const char* kDataParallel = "parallel.data_parallel_size";
  if (std::find(keys.begin(), keys.end(), kDataParallel) == keys.end()) keys.emplace_back(kDataParallel);
  return keys;
}

bool differ_in_modes(const Point& one, const Point& other) {
  const auto modes_of = [](const Point& point) {
    std::vector<std::string> modes;
    std::copy_if(point.set.begin(), point.set.end(), std::back_inserter(modes),
                 [](const std::string& set) { return set.starts_with("overlap."); });
    return modes;
  };
  return modes_of(one) != modes_of(other);
}

}  // namespace

Table points_table(const Space& space, const SearchResult& result, const std::vector<std::size_t>& points) {
  std::vector<std::string> headers;
  const std::vector<std::string> keys = keys_of(space);
  for (const std::string& key : keys) headers.push_back(short_name(key));
  for (const char* name : {"step", "tokens/s a GPU", "MFU", "memory", "slower"}) headers.emplace_back(name);
  Table table(headers);
  for (const std::size_t i : points) {
    const Point &point = result.points[i], &first = result.points[points.front()];
    std::vector<std::string> cells;
    for (const std::string& key : keys) cells.push_back(value_of(point, key));
    const double after = first.tokens_per_s_per_gpu / point.tokens_per_s_per_gpu - 1;
    const double tie = differ_in_modes(point, first) ? predict::kBetweenStacks : kTie;
    cells.push_back(time_text(point.step_ms));
    cells.push_back(fmt::format("{:.1f}", point.tokens_per_s_per_gpu));
    cells.push_back(point.mfu ? percent_text(*point.mfu) : "");
    cells.push_back(size_text(double(point.memory_bytes)) + (point.fit == Fit::tight ? ", tight" : ""));
    // A tight layout may be faster than the first, which fits.
    cells.push_back(i == points.front() ? "" : change_text(after) + (std::abs(after) < tie ? ", tie" : ""));
    table.add_row(std::move(cells));
  }
  return table;
}

std::string name_of_layout(const Space& space, const Point& point) {
  std::string name;
  for (const std::string& key : keys_of(space))
    if (const std::string value = value_of(point, key); !value.empty())
      name += fmt::format("{}{} {}", name.empty() ? "" : ", ", short_name(key), value);
  return name;
}

std::vector<std::size_t> best_by_gpus(const std::vector<Point>& points) {
  std::map<std::int64_t, std::size_t> best;  // [GPUs]
  for (const std::size_t i : fastest(points)) best.try_emplace(points[i].gpus, i);
  std::vector<std::size_t> found;
  if (best.size() > 1)
    for (const auto& [gpus, i] : best) found.push_back(i);
  return found;
}

std::string counts_text(const SearchResult& result) {
  std::map<Status, std::int64_t> count;
  for (const Point& point : result.points) ++count[point.status];
  std::string text = fmt::format("{} layouts: ", with_commas(std::ssize(result.points)));
  const std::pair<Status, const char*> words[] = {{Status::slower, "cannot win"},
                                                  {Status::does_not_fit, "do not fit"},
                                                  {Status::refused, "not possible"},
                                                  {Status::predicted, "simulated"}};
  bool is_first = true;
  for (const auto& [status, word] : words) {
    if (count[status] == 0) continue;
    text += fmt::format("{}{} {}", is_first ? "" : ", ", with_commas(count[status]), word);
    is_first = false;
  }
  return text;
}

std::size_t ties(const SearchResult& result, const std::vector<std::size_t>& points) {
  const Point& first = result.points[points.front()];
  return static_cast<std::size_t>(std::count_if(points.begin(), points.end(), [&](std::size_t i) {
    const Point& point = result.points[i];
    const double tie = differ_in_modes(point, first) ? predict::kBetweenStacks : kTie;
    return std::abs(first.tokens_per_s_per_gpu / point.tokens_per_s_per_gpu - 1) < tie;
  }));
}

std::string summary_text(const SearchResult& result, std::int64_t combinations) {
  std::map<Status, std::int64_t> count;
  std::map<std::string, std::int64_t> why;
  for (const Point& point : result.points) {
    ++count[point.status];
    // Numbers differ from point to point: a reason is its words.
    if (point.status != Status::refused) continue;
    std::string words = point.reason.substr(0, point.reason.find(", got "));
    ++why[words];
  }
  std::string text = fmt::format(
      "{} combinations, {} of them with sizes that do not divide or the same once more; {} points: {} refused, {} do "
      "not "
      "fit, {} slower by their bound, {} simulated\n",
      combinations, result.indivisible, result.points.size(), count[Status::refused], count[Status::does_not_fit],
      count[Status::slower], count[Status::predicted]);
  std::vector<std::pair<std::int64_t, std::string>> commonest;
  for (const auto& [words, times] : why) commonest.emplace_back(times, words);
  std::sort(commonest.rbegin(), commonest.rend());
  for (std::size_t i = 0; i < std::min<std::size_t>(3, commonest.size()); ++i)
    text += fmt::format("  refused {} times: {}\n", commonest[i].first, commonest[i].second);
  if (const auto tight =
          std::count_if(result.points.begin(), result.points.end(),
                        [](const Point& p) { return p.status == Status::predicted && p.fit == Fit::tight; });
      tight > 0)
    text += fmt::format(
        "{} of the simulated are tight: the interval of their memory spans what a device has; they are ranked after "
        "those that fit\n",
        tight);
  return text;
}

std::string csv_of(const Space& space, const SearchResult& result) {
  std::vector<std::string> keys;
  for (const Axis& axis : space.axes) keys.push_back(axis.key);
  if (std::find(keys.begin(), keys.end(), "parallel.data_parallel_size") == keys.end())
    keys.emplace_back("parallel.data_parallel_size");
  std::string text = fmt::format(
      "{},status,step_ms,bound_ms,tokens_per_s_per_gpu,mfu,memory_bytes,memory_verdict,reason\n", fmt::join(keys, ","));
  for (const Point& point : result.points) {
    for (const std::string& key : keys) text += value_of(point, key) + ",";
    std::string reason;
    for (const char c : point.reason) reason += c == '"' ? "\"\"" : std::string(1, c);
    text += fmt::format("{},{},{},{},{},{},{},\"{}\"\n", name_of(point.status), known(point.step_ms),
                        known(point.bound_ms), known(point.tokens_per_s_per_gpu), known(point.mfu.value_or(0)),
                        known(double(point.memory_bytes)), point.device_bytes == 0 ? "" : name_of(point.fit), reason);
  }
  return text;
}

std::string set_options(const Point& point) {
  std::string text = point.platform.empty() ? "" : "--platform " + in_shell(point.platform);
  for (const std::string& set : point.set) text += (text.empty() ? "--set " : " --set ") + in_shell(set);
  return text;
}

std::string why_none(const SearchResult& result) {
  if (result.points.empty() && !result.complete) return "interrupted before the first point";
  if (result.points.empty())
    return result.indivisible > 0 ? "no point: no combination has sizes that divide" : "no point is in this part";
  // The point that lacks least says how far the machine is from enough.
  const Point *refused = nullptr, *smallest = nullptr;
  for (const Point& point : result.points) {
    if (point.status == Status::refused)
      refused = &point;
    else if (smallest == nullptr || point.memory_bytes < smallest->memory_bytes)
      smallest = &point;
  }
  if (smallest != nullptr)
    return fmt::format("no point fits; the smallest: {} ({})", smallest->reason, set_options(*smallest));
  return "no point: all are refused, for instance: " + refused->reason;
}

}  // namespace stretto::sweep
