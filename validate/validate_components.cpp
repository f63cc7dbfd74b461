#include "validate/validate_components.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/statistics.hpp"
#include "base/values_of.hpp"

namespace stretto::validate {
namespace {

using sim::CollectiveTable;
using sim::CollectiveTime;
using sim::GemmGrid;
using sim::GemmTime;

// Errors in percent, by range.
using Errors = std::map<std::string, std::vector<double>>;

double error_pct(double predicted, double measured) { return 100 * std::abs(predicted / measured - 1); }

void add(std::vector<ComponentErrors>& all, const std::string& left_out, const Errors& errors,
         const std::vector<const char*>& ranges) {
  for (const char* range : ranges)
    if (const auto found = errors.find(range); found != errors.end())
      all.push_back({left_out, range, found->second.size(), median(found->second), percentile(found->second, 95)});
}

// Errors of shapes predicted along one axis each, or along all together.
struct GemmErrors {
  Errors of_axis, of_all, of_k;
};

GemmErrors gemm_errors(const GemmGrid& table, int sms) {
  using Shape = std::array<double, 3>;
  std::map<Shape, double> us;
  for (const GemmTime& time : table.times()) us[{time.m, time.n, time.k}] = time.us;
  const std::array<std::vector<double>, 3> axes = {table.m(), table.n(), table.k()};
  GemmErrors errors;
  const auto add_error = [](Errors& to, double predicted, double measured) {
    to["all"].push_back(error_pct(predicted, measured));
    if (measured > 300) to["above 300 us"].push_back(error_pct(predicted, measured));
  };
  for (const auto& [shape, measured] : us) {
    double logs = 0;
    int count = 0;
    for (std::size_t side = 0; side < axes.size(); ++side) {
      // The nearest measured shapes on both sides.
      std::vector<GemmTime> neighbours;
      const auto& axis = axes[side];
      const auto at = static_cast<std::size_t>(std::lower_bound(axis.begin(), axis.end(), shape[side]) - axis.begin());
      for (const int step : {-1, 1})
        for (std::size_t i = at + static_cast<std::size_t>(step); i < axis.size();
             i += static_cast<std::size_t>(step)) {
          Shape other = shape;
          other[side] = axis[i];
          const auto found = us.find(other);
          if (found == us.end()) continue;
          neighbours.push_back({other[0], other[1], other[2], found->second});
          break;
        }
      if (neighbours.size() < 2) continue;
      const double predicted = GemmGrid(neighbours, "neighbours").time_us(shape[0], shape[1], shape[2], sms);
      add_error(errors.of_axis, predicted, measured);
      constexpr std::size_t kDepth = 2;
      if (side == kDepth && measured > 200) errors.of_k["above 200 us"].push_back(error_pct(predicted, measured));
      logs += std::log(predicted);
      ++count;
    }
    if (count > 0) add_error(errors.of_all, std::exp(logs / count), measured);
  }
  return errors;
}

const char* range_of(double bytes) {
  return bytes < (256 << 10) ? "below 256 KiB" : bytes <= (16 << 20) ? "to 16 MiB" : "above 16 MiB";
}

double predicted_us(const CollectiveTable& table, const CollectiveTime& time) {
  if (time.span.nodes == 1) return table.time_us(time.kind, time.span.members, time.bytes);
  return table.across_us(time.kind, time.span, time.bytes, [](double) { return 1.0; }).value_or(0);
}

// Adds the errors of `time` as `others` predict it.
void add_error(Errors& errors, const std::vector<CollectiveTime>& others, const CollectiveTime& time) {
  errors[range_of(time.bytes)].push_back(error_pct(predicted_us(CollectiveTable(others), time), time.us));
}

// Series on one node, or with equally many members on each of several.
using Line = std::map<std::int64_t, std::vector<CollectiveTime>>;  // by members; bytes rise

Errors size_errors(const Line& line) {
  Errors errors;
  for (const auto& [members, series] : line)
    for (std::size_t i = 1; i + 1 < series.size(); ++i) {
      std::vector<CollectiveTime> others = series;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      add_error(errors, others, series[i]);
    }
  return errors;
}

Errors member_errors(const Line& line) {
  Errors errors;
  for (auto at = line.begin(); at != line.end(); ++at) {
    if (at == line.begin() || std::next(at) == line.end()) continue;
    std::vector<CollectiveTime> others = std::prev(at)->second;
    others.insert(others.end(), std::next(at)->second.begin(), std::next(at)->second.end());
    for (const CollectiveTime& time : at->second) add_error(errors, others, time);
  }
  return errors;
}

}  // namespace

std::vector<ComponentErrors> validate_components(const sim::Accelerator& accelerator) {
  std::vector<ComponentErrors> all;
  if (!accelerator.gemms.empty()) {
    for (const sim::ProductType type : values_of<sim::ProductType>()) {
      if (!accelerator.gemms.has(type)) continue;
      const GemmErrors errors = gemm_errors(accelerator.gemms.grid(type), accelerator.gemm_waves ? accelerator.sms : 0);
      const std::string name =
          "GEMM" + (type == sim::ProductType::bf16 ? std::string() : std::string(" in ") + name_of(type));
      add(all, name, errors.of_all, {"all", "above 300 us"});
      add(all, name + ", along one axis", errors.of_axis, {"all", "above 300 us"});
      add(all, name + ", k", errors.of_k, {"above 200 us"});
    }
  }
  std::map<std::tuple<CollectiveKind, bool, std::int64_t>, Line> lines;
  for (const CollectiveTime& time : accelerator.collectives.times()) {
    const bool is_across = time.span.nodes > 1;
    lines[{time.kind, is_across, is_across ? time.span.on_node() : 0}][time.span.members].push_back(time);
  }
  for (const auto& [key, line] : lines) {
    const auto& [kind, is_across, on_node] = key;
    const std::string name =
        name_of(kind) + (is_across ? ", " + std::to_string(on_node) + " on a node" : std::string());
    const std::vector<const char*> ranges = {"below 256 KiB", "to 16 MiB", "above 16 MiB"};
    add(all, name, size_errors(line), ranges);
    add(all, name + ", number of GPUs", member_errors(line), ranges);
  }
  return all;
}

}  // namespace stretto::validate
