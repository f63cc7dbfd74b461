#include "sim/accelerator/gemm_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/values_of.hpp"
#include "sim/accelerator/measured_time.hpp"

namespace stretto::sim {
namespace {

constexpr double kTile = 128;

// The place of `x` on an axis: the grid point at or below `x`, and the distance from there in steps of the grid, in
// logarithms.
struct Position {
  std::size_t below = 0;
  double share = 0;
  double at = 0;  // x, clamped to the axis
};
Position position_of(const std::vector<double>& axis, double x) {
  const double at = std::clamp(x, axis.front(), axis.back());
  if (axis.size() == 1) return {0, 0, at};
  const auto above = std::upper_bound(axis.begin(), axis.end() - 1, at);
  const std::size_t below = static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, above - axis.begin())) - 1;
  return {below, std::log(at / axis[below]) / std::log(axis[below + 1] / axis[below]), at};
}

// Returns the time of a side outside the grid / the time at the grid's edge.
double outside(double x, const std::vector<double>& axis, bool has_tiles) {
  if (x >= axis.front()) return std::max(1.0, x / axis.back());
  const double tile = has_tiles ? kTile : 1;
  return std::min(1.0, std::ceil(x / tile) * tile / axis.front());
}

bool is_inside(double x, const std::vector<double>& axis) { return x >= axis.front() && x <= axis.back(); }

}  // namespace

std::optional<ProductType> product_type_named(std::string_view name) {
  for (const ProductType type : values_of<ProductType>())
    if (name == name_of(type)) return type;
  return std::nullopt;
}

double wave_utilisation(double m, double n, int sms) {
  // Rows, columns, and the tile's arithmetic rate relative to the largest tile's.
  static constexpr std::array<std::array<double, 3>, 4> kTiles = {
      {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.85}, {128, 64, 0.7}}};
  double best = 0;
  for (const auto& [rows, cols, rate] : kTiles) {
    const double tiles = std::ceil(m / rows) * std::ceil(n / cols);
    best = std::max(best, rate * m * n / (std::ceil(tiles / sms) * sms * rows * cols));
  }
  return best;
}

GemmGrid::GemmGrid(const std::vector<GemmTime>& times, const std::string& name) {
  const auto shape_of = [](const GemmTime& time) { return std::tuple(time.m, time.n, time.k); };
  const auto is_before = [&](const GemmTime& a, const GemmTime& b) { return shape_of(a) < shape_of(b); };
  std::vector<GemmTime> sorted = times;
  // Times of one shape keep their order, in which they are added up.
  if (!std::is_sorted(sorted.begin(), sorted.end(), is_before))
    std::stable_sort(sorted.begin(), sorted.end(), is_before);
  for (const GemmTime& time : sorted) {
    m_.push_back(time.m);
    n_.push_back(time.n);
    k_.push_back(time.k);
  }
  for (std::vector<double>* axis : {&m_, &n_, &k_}) {
    std::sort(axis->begin(), axis->end());
    axis->erase(std::unique(axis->begin(), axis->end()), axis->end());
  }
  auto time = sorted.begin();
  std::vector<double> known_k, known_us;
  for (const double m : m_)
    for (const double n : n_) {
      known_k.clear();
      known_us.clear();
      while (time != sorted.end() && time->m == m && time->n == n) {
        const double k = time->k;
        double sum = 0;
        int count = 0;
        for (; time != sorted.end() && shape_of(*time) == std::tuple(m, n, k); ++time)
          sum += std::log(time->us), ++count;
        known_k.push_back(k);
        known_us.push_back(std::exp(sum / count));
      }
      if (known_k.empty())
        throw input_error(name + ": expected a time with m = " + std::to_string(static_cast<std::int64_t>(m)) +
                          ", n = " + std::to_string(static_cast<std::int64_t>(n)) +
                          " at some k, as for other m and n, got none");
      const auto log_rate = [&](std::size_t at) { return std::log(known_us[at] / known_k[at]); };
      for (const double k : k_) {
        const auto at = static_cast<std::size_t>(std::lower_bound(known_k.begin(), known_k.end(), k) - known_k.begin());
        const bool is_known = at < known_k.size() && known_k[at] == k;
        double rate = 0;
        if (is_known) {
          rate = log_rate(at);
        } else {
          const Position p = position_of(known_k, k);
          const std::size_t next = std::min(p.below + 1, known_k.size() - 1);
          rate = (1 - p.share) * log_rate(p.below) + p.share * log_rate(next);
        }
        us_.push_back(k * std::exp(rate));
        is_filled_.push_back(!is_known);
      }
    }
}

std::vector<GemmTime> GemmGrid::times() const {
  std::vector<GemmTime> times;
  for (std::size_t i = 0; i < m_.size(); ++i)
    for (std::size_t j = 0; j < n_.size(); ++j)
      for (std::size_t l = 0; l < k_.size(); ++l)
        if (!is_filled_[index(i, j, l)]) times.push_back({m_[i], n_[j], k_[l], us_[index(i, j, l)]});
  return times;
}

std::pair<double, double> GemmGrid::sides(double m, double n) const {
  // Either side of the result may be the rows; the orientation that lies on the grid is the better known one.
  const bool fits = is_inside(m, m_) && is_inside(n, n_), fits_turned = is_inside(n, m_) && is_inside(m, n_);
  if (!fits && (fits_turned || (!is_inside(m, m_) && is_inside(n, m_)))) std::swap(m, n);
  return {m, n};
}

double GemmGrid::beyond(double m, double n, double k) const {
  std::tie(m, n) = sides(m, n);
  const auto beyond = [](double x, const std::vector<double>& axis) {
    return std::max({1.0, axis.front() / x, x / axis.back()});
  };
  return std::max({beyond(m, m_), beyond(n, n_), beyond(k, k_)});
}

double GemmGrid::time_us(double m, double n, double k, int sms) const {
  std::tie(m, n) = sides(m, n);
  const Position i = position_of(m_, m), j = position_of(n_, n), l = position_of(k_, k);
  const auto weight = [](const Position& p, std::size_t step) { return step == 0 ? 1 - p.share : p.share; };
  double log_rate = 0;
  for (std::size_t a = 0; a < 2; ++a)
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t c = 0; c < 2; ++c) {
        const double share = weight(i, a) * weight(j, b) * weight(l, c);
        if (share == 0) continue;
        const double gm = m_[i.below + a], gn = n_[j.below + b], gk = k_[l.below + c];
        const double used = sms > 0 ? wave_utilisation(gm, gn, sms) : 1;
        log_rate += share * std::log(us_[index(i.below + a, j.below + b, l.below + c)] * used / (gm * gn * gk));
      }
  const double used = sms > 0 ? wave_utilisation(i.at, j.at, sms) : 1;
  return std::exp(log_rate) * i.at * j.at * l.at / used * outside(m, m_, true) * outside(n, n_, true) *
         outside(k, k_, false);
}

GemmTable::GemmTable(const std::vector<GemmTime>& times, const std::string& name) {
  std::map<ProductType, std::vector<GemmTime>> by_type;
  for (const GemmTime& time : times) by_type[time.type].push_back(time);
  if (by_type.empty()) throw input_error(name + ": expected rows of m, n, k and time_us, got none");
  for (const auto& [type, of_type] : by_type) grids_.emplace(type, GemmGrid(of_type, name));
}

GemmTable GemmTable::parse(const std::string& text, const std::string& name) {
  std::vector<std::string> columns = {"m", "n", "k", "time_us"};
  const bool has_type = has_csv_column(text, "dtype");
  if (has_type) columns.push_back("dtype");
  std::vector<GemmTime> times;
  read_csv(text, name, columns, [&](const CsvRow& row) {
    times.push_back({row.number(0), row.number(1), row.number(2), sim::time_us(row, 3)});
    if (!has_type) return;
    const std::optional<ProductType> type = product_type_named(row.text(4));
    if (!type) throw row.error(4, "bf16, f32, fp8, fp8_block, mxfp8 or nvfp4");
    times.back().type = *type;
  });
  return {times, name};
}

std::vector<GemmTime> GemmTable::times() const {
  std::vector<GemmTime> times;
  for (const auto& [type, grid] : grids_)
    for (GemmTime time : grid.times()) {
      time.type = type;
      times.push_back(time);
    }
  return times;
}

std::string GemmTable::text() const {
  const bool has_types = grids_.size() > 1 || !has(ProductType::bf16);
  std::string text = has_types ? "m,n,k,time_us,dtype\n" : "m,n,k,time_us\n";
  for (const GemmTime& time : times()) {
    text += fmt::format("{:.17g},{:.17g},{:.17g},{:.5g}", time.m, time.n, time.k, time.us);
    text += has_types ? fmt::format(",{}\n", name_of(time.type)) : "\n";
  }
  return text;
}

}  // namespace stretto::sim
