#include "calibrate/import/correct_gemms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

namespace stretto::calibrate {
namespace {

constexpr std::size_t kMostPoints = 50000;

struct Ratio {
  std::array<double, 3> at{};  // logarithms of m, n, k
  double log = 0;
};

double ratio_at(const std::vector<Ratio>& ratios, double m, double n, double k) {
  const std::array<double, 3> at = {std::log(m), std::log(n), std::log(k)};
  double sum = 0, weights = 0;
  for (const Ratio& ratio : ratios) {
    double square = 1e-12;  // the weight of a measured shape's own measurement
    for (std::size_t side = 0; side < at.size(); ++side)
      square += (at[side] - ratio.at[side]) * (at[side] - ratio.at[side]);
    sum += ratio.log / square;
    weights += 1 / square;
  }
  return std::exp(sum / weights);
}

}  // namespace

bool is_gemm_grid(const std::vector<sim::GemmTime>& times) {
  std::set<double> m, n, k;
  std::set<std::pair<double, double>> results;
  for (const sim::GemmTime& time : times) {
    m.insert(time.m);
    n.insert(time.n);
    k.insert(time.k);
    results.insert({time.m, time.n});
  }
  return std::min({m.size(), n.size(), k.size()}) >= 3 && results.size() == m.size() * n.size();
}

std::size_t count_shapes(const std::vector<sim::GemmTime>& times) {
  std::set<std::tuple<double, double, double>> shapes;
  for (const sim::GemmTime& time : times) shapes.insert({time.m, time.n, time.k});
  return shapes.size();
}

std::vector<sim::GemmTime> corrected_gemms(const sim::GemmGrid& table, int sms,
                                           const std::vector<sim::GemmTime>& times) {
  std::vector<Ratio> ratios;
  std::set<double> m(table.m().begin(), table.m().end()), n(table.n().begin(), table.n().end()),
      k(table.k().begin(), table.k().end());
  const std::set<double> own_m = m, own_n = n, own_k = k;
  for (const sim::GemmTime& time : times) {
    ratios.push_back({{std::log(time.m), std::log(time.n), std::log(time.k)},
                      std::log(time.us / table.time_us(time.m, time.n, time.k, sms))});
    m.insert(time.m);
    n.insert(time.n);
    k.insert(time.k);
  }
  const bool is_small = m.size() * n.size() * k.size() <= kMostPoints;
  std::vector<sim::GemmTime> corrected;
  for (const double rows : is_small ? m : own_m)
    for (const double columns : is_small ? n : own_n)
      for (const double depth : is_small ? k : own_k)
        corrected.push_back(
            {rows, columns, depth, table.time_us(rows, columns, depth, sms) * ratio_at(ratios, rows, columns, depth)});
  return corrected;
}

}  // namespace stretto::calibrate
