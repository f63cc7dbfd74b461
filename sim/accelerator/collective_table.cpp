#include "sim/accelerator/collective_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/values_of.hpp"
#include "model/ring.hpp"

namespace stretto::sim {
namespace {

std::optional<CollectiveKind> kind_named(std::string_view name) {
  for (const CollectiveKind kind : values_of<CollectiveKind>())
    if (name == name_of(kind)) return kind;
  return std::nullopt;
}

double time_of(const std::vector<std::pair<double, double>>& points, double bytes) {
  const double x = std::log(bytes);
  if (x <= points.front().first) return std::exp(points.front().second);
  if (x >= points.back().first) return std::exp(points.back().second + x - points.back().first);
  const auto above = std::upper_bound(points.begin(), points.end(), x,
                                      [](double value, const auto& point) { return value < point.first; });
  const auto below = above - 1;
  const double share = (x - below->first) / (above->first - below->first);
  return std::exp((1 - share) * below->second + share * above->second);
}

// Bytes over an edge of a ring, as a share of the buffer.
double ring_share(CollectiveKind kind, std::int64_t gpus) {
  const double share = static_cast<double>(gpus - 1) / static_cast<double>(gpus);
  return kind == CollectiveKind::all_reduce ? 2 * share : share;
}

}  // namespace

CollectiveTable CollectiveTable::parse(const std::string& text, const std::string& name) {
  struct Times {
    double logs = 0;
    int count = 0;
  };
  std::map<CollectiveKind, std::map<std::int64_t, std::map<double, Times>>> times;
  read_csv(text, name, {"op", "gpus", "bytes", "time_us"}, [&](const CsvRow& row) {
    const std::optional<CollectiveKind> kind = kind_named(row.text(0));
    if (!kind) return;
    Times& of = times[*kind][static_cast<std::int64_t>(row.number(1))][row.number(2)];
    of.logs += std::log(row.number(3));
    ++of.count;
  });
  CollectiveTable table;
  for (const auto& [kind, sizes] : times)
    for (const auto& [gpus, points] : sizes) {
      if (gpus < 2) throw input_error(name + ": gpus: expected at least 2, got " + std::to_string(gpus));
      for (const auto& [bytes, of] : points) table.series_[kind][gpus].push_back({std::log(bytes), of.logs / of.count});
    }
  if (table.empty()) throw input_error(name + ": expected rows of all_gather, reduce_scatter or all_reduce, got none");
  return table;
}

double CollectiveTable::time_us(CollectiveKind kind, std::int64_t gpus, double bytes) const {
  const auto& sizes = series_.at(kind);
  const auto above = sizes.lower_bound(gpus);
  if (above == sizes.end()) {
    // A ring of more GPUs: the bus carries as much, and there are more steps.
    const auto& [most, points] = *sizes.rbegin();
    const double shortest = std::exp(points.front().second);
    const double moving = std::max(0.0, time_of(points, bytes) - shortest);
    return shortest * static_cast<double>(gpus - 1) / static_cast<double>(most - 1) +
           moving * ring_share(kind, gpus) / ring_share(kind, most);
  }
  if (above->first == gpus || above == sizes.begin()) return time_of(above->second, bytes);
  const auto below = std::prev(above);
  const double share = std::log(static_cast<double>(gpus) / static_cast<double>(below->first)) /
                       std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return std::exp((1 - share) * std::log(time_of(below->second, bytes)) +
                  share * std::log(time_of(above->second, bytes)));
}

double CollectiveTable::bus_GBps(CollectiveKind kind) const {
  const auto& [gpus, points] = *series_.at(kind).rbegin();
  return std::exp(points.back().first - points.back().second) * ring_share(kind, gpus) * 1e-3;
}

}  // namespace stretto::sim
