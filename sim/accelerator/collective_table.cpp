#include "sim/accelerator/collective_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/values_of.hpp"
#include "model/schedule/parcel.hpp"
#include "sim/accelerator/measured_time.hpp"

namespace stretto::sim {
namespace {

using Points = std::vector<std::pair<double, double>>;

// Interpolates within the sizes of the points.
double between(const Points& points, double bytes) {
  const auto above = std::lower_bound(points.begin(), points.end(), bytes,
                                      [](const auto& point, double value) { return point.first < value; });
  if (above->first == bytes) return above->second;
  const auto below = above - 1;
  const double share = (bytes - below->first) / (above->first - below->first);
  return (1 - share) * below->second + share * above->second;
}

double time_of(const Points& points, double bytes) {
  if (bytes <= points.front().first) return points.front().second;
  if (bytes >= points.back().first) return points.back().second * bytes / points.back().first;
  return between(points, bytes);
}

// Returns the time on changed links.
double time_of(const Points& points, double bytes, const LinkChange& links) {
  if (links == LinkChange{}) return time_of(points, bytes);
  double latency = points.front().second;
  for (const auto& [size, us] : points) latency = std::min(latency, us);
  const auto changed = [&](double us) { return links.latency * latency + (us - latency) / links.rate; };
  const auto& [most, longest] = points.back();
  return bytes > most ? changed(longest) * bytes / most : changed(time_of(points, bytes));
}

// Interpolates between two numbers of GPUs, in logarithms of time and GPUs.
double blend(double gpus, double below, double below_us, double above, double above_us) {
  const double share = std::log(gpus / below) / std::log(above / below);
  return std::exp((1 - share) * std::log(below_us) + share * std::log(above_us));
}

}  // namespace

double ring_share(CollectiveKind kind, std::int64_t gpus) {
  const double share = static_cast<double>(gpus - 1) / static_cast<double>(gpus);
  return kind == CollectiveKind::all_reduce ? 2 * share : share;
}

std::optional<CollectiveKind> collective_named(std::string_view name) {
  for (const CollectiveKind kind : kinds_of_equal_slices())
    if (name == name_of(kind)) return kind;
  if (name == "alltoall") return CollectiveKind::all_to_all;  // nccl-tests' spelling
  return std::nullopt;
}

CollectiveTable::CollectiveTable(const std::vector<CollectiveTime>& times) {
  std::map<std::tuple<CollectiveKind, std::int64_t, std::int64_t, double>, std::pair<double, int>> logs;
  for (const CollectiveTime& time : times) {
    auto& [sum, count] = logs[{time.kind, time.span.nodes, time.span.members, time.bytes}];
    sum += std::log(time.us);
    ++count;
  }
  for (const auto& [key, of] : logs) {
    const auto& [kind, nodes, members, bytes] = key;
    Sizes& sizes = nodes == 1 ? within_[kind] : across_[{kind, members / nodes}];
    sizes[members].push_back({bytes, std::exp(of.first / of.second)});
  }
}

CollectiveTable CollectiveTable::parse(const std::string& text, const std::string& name) {
  std::vector<std::string> columns = {"op", "gpus", "bytes", "time_us"};
  const bool has_nodes = has_csv_column(text, "nodes");
  if (has_nodes) columns.push_back("nodes");
  std::vector<CollectiveTime> times;
  read_csv(text, name, columns, [&](const CsvRow& row) {
    const std::optional<CollectiveKind> kind = collective_named(row.text(0));
    if (!kind) return;
    CollectiveTime time{*kind, {row.count(1), has_nodes ? row.count(4) : 1}, row.number(2), sim::time_us(row, 3)};
    if (time.span.members < 2) throw row.error(1, "at least 2");
    if (time.span.members % time.span.nodes != 0)
      throw row.error(4, fmt::format("a divisor of gpus, {}", time.span.members));
    times.push_back(time);
  });
  CollectiveTable table(times);
  if (table.empty())
    throw input_error(name + ": expected rows of all_gather, reduce_scatter, all_reduce or all_to_all, got none");
  return table;
}

std::vector<CollectiveTime> CollectiveTable::times() const {
  std::vector<CollectiveTime> times;
  const auto add = [&](CollectiveKind kind, std::int64_t on_node, const Sizes& sizes) {
    for (const auto& [gpus, points] : sizes)
      for (const auto& [bytes, us] : points)
        times.push_back({kind, {gpus, on_node == 0 ? 1 : gpus / on_node}, bytes, us});
  };
  for (const auto& [kind, sizes] : within_) add(kind, 0, sizes);
  for (const auto& [key, sizes] : across_) add(key.first, key.second, sizes);
  return times;
}

std::string CollectiveTable::text() const {
  const bool has_nodes = !across_.empty();
  std::string text = has_nodes ? "op,gpus,nodes,bytes,time_us\n" : "op,gpus,bytes,time_us\n";
  std::vector<CollectiveTime> rows = times();
  std::stable_sort(rows.begin(), rows.end(), [](const CollectiveTime& a, const CollectiveTime& b) {
    return std::string_view(name_of(a.kind)) < name_of(b.kind);
  });
  for (const CollectiveTime& time : rows)
    text += fmt::format("{},{},{}{:.17g},{:.5g}\n", name_of(time.kind), time.span.members,
                        has_nodes ? fmt::format("{},", time.span.nodes) : "", time.bytes, time.us);
  return text;
}

double CollectiveTable::time_us(CollectiveKind kind, std::int64_t gpus, double bytes, const LinkChange& links) const {
  const Sizes& sizes = within_.at(kind);
  const auto above = sizes.lower_bound(gpus);
  if (above == sizes.end()) {
    // The estimate for more GPUs: in a longer ring the bus carries as much, and there are more steps.
    const auto& [most, points] = *sizes.rbegin();
    const double shortest = time_of(points, 0, links);
    const double moving = std::max(0.0, time_of(points, bytes, links) - shortest);
    return shortest * static_cast<double>(gpus - 1) / static_cast<double>(most - 1) +
           moving * ring_share(kind, gpus) / ring_share(kind, most);
  }
  if (above->first == gpus || above == sizes.begin()) return time_of(above->second, bytes, links);
  const auto below = std::prev(above);
  return blend(double(gpus), double(below->first), time_of(below->second, bytes, links), double(above->first),
               time_of(above->second, bytes, links));
}

std::int64_t CollectiveTable::most_gpus(CollectiveKind kind) const {
  const auto found = within_.find(kind);
  return found == within_.end() ? 0 : found->second.rbegin()->first;
}

double CollectiveTable::bus_GBps(CollectiveKind kind, const LinkChange& links) const {
  const auto& [gpus, points] = *within_.at(kind).rbegin();
  const double most = points.back().first;
  return most / time_of(points, most, links) * ring_share(kind, gpus) * 1e-3;
}

std::optional<double> CollectiveTable::across_us(CollectiveKind kind, const GroupSpan& span, double bytes,
                                                 const Model& model, const Model& measured_model) const {
  const auto found = across_.find({kind, span.on_node()});
  if (found == across_.end() || span.members != span.nodes * span.on_node()) return std::nullopt;
  const Sizes& sizes = found->second;
  const auto us_of = [&](const Points& points) {
    const double nearest = std::clamp(bytes, points.front().first, points.back().first);
    const double us = between(points, nearest);
    if (measured_model) return us * model(bytes) / measured_model(nearest);
    return us * (nearest == bytes ? 1 : model(bytes) / model(nearest));
  };
  const auto above = sizes.lower_bound(span.members);
  if (above == sizes.end()) return std::nullopt;
  if (above->first == span.members) return us_of(above->second);
  if (above == sizes.begin()) return std::nullopt;
  const auto below = std::prev(above);
  return blend(double(span.members), double(below->first), us_of(below->second), double(above->first),
               us_of(above->second));
}

}  // namespace stretto::sim
