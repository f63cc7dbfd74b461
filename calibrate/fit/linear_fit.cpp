#include "calibrate/fit/linear_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <numeric>

#include "base/statistics.hpp"
#include "sim/cost/evaluate.hpp"

namespace stretto::calibrate {
namespace {

// Lawson & Hanson's NNLS: minimises |A x − b| with x ≥ 0. Sizes here are a handful of columns.
Eigen::VectorXd non_negative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  const Eigen::Index n = a.cols();
  std::vector<bool> passive(static_cast<std::size_t>(n), false);
  Eigen::VectorXd x = Eigen::VectorXd::Zero(n);
  const double tolerance = 1e-10 * (a.transpose() * b).cwiseAbs().maxCoeff();
  auto solve_passive = [&] {
    std::vector<Eigen::Index> columns;
    for (Eigen::Index j = 0; j < n; ++j)
      if (passive[static_cast<std::size_t>(j)]) columns.push_back(j);
    Eigen::MatrixXd sub(a.rows(), static_cast<Eigen::Index>(columns.size()));
    for (std::size_t c = 0; c < columns.size(); ++c) sub.col(static_cast<Eigen::Index>(c)) = a.col(columns[c]);
    const Eigen::VectorXd z = sub.colPivHouseholderQr().solve(b);
    Eigen::VectorXd full = Eigen::VectorXd::Zero(n);
    for (std::size_t c = 0; c < columns.size(); ++c) full(columns[c]) = z(static_cast<Eigen::Index>(c));
    return full;
  };
  for (Eigen::Index round = 0; round < 3 * n; ++round) {
    const Eigen::VectorXd gradient = a.transpose() * (b - a * x);
    Eigen::Index best = -1;
    for (Eigen::Index j = 0; j < n; ++j)
      if (!passive[static_cast<std::size_t>(j)] && gradient(j) > tolerance &&
          (best < 0 || gradient(j) > gradient(best)))
        best = j;
    if (best < 0) break;
    passive[static_cast<std::size_t>(best)] = true;
    Eigen::VectorXd z = solve_passive();
    // The loop steps back to the boundary until every passive coefficient is positive. Each pass frees at least one of
    // them.
    for (Eigen::Index guard = 0; guard < n && (z.array() < 0).any(); ++guard) {
      double step = 1;
      for (Eigen::Index j = 0; j < n; ++j)
        if (passive[static_cast<std::size_t>(j)] && z(j) < 0) step = std::min(step, x(j) / (x(j) - z(j)));
      x += step * (z - x);
      for (Eigen::Index j = 0; j < n; ++j)
        if (x(j) <= 1e-15 * x.cwiseAbs().maxCoeff() || x(j) < 0) {
          x(j) = 0;
          passive[static_cast<std::size_t>(j)] = false;
        }
      z = solve_passive();
    }
    x = z.cwiseMax(0.0);
  }
  return x;
}

constexpr double kNegligible_us = 5;

}  // namespace

sim::CostFit fit_linear(const std::vector<Sample>& samples, const std::string& origin) {
  assert(!samples.empty());
  const auto rows = static_cast<Eigen::Index>(samples.size()),
             cols = static_cast<Eigen::Index>(samples.front().features.size());
  Eigen::MatrixXd a(rows, cols);
  Eigen::VectorXd target(rows);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    const double weight = 1 / (sample.us + kNegligible_us);
    for (Eigen::Index j = 0; j < cols; ++j) a(i, j) = sample.features[static_cast<std::size_t>(j)] * weight;
    target(i) = sample.us * weight;
  }
  // Features differ by ten orders of magnitude, so the columns are scaled; otherwise the tolerance would be
  // meaningless.
  Eigen::VectorXd scale = a.colwise().norm();
  for (Eigen::Index j = 0; j < cols; ++j)
    if (scale(j) == 0) scale(j) = 1;
  a = a * scale.cwiseInverse().asDiagonal();
  Eigen::VectorXd x = non_negative_least_squares(a, target);
  std::vector<double> errors(samples.size());
  auto measure = [&] {
    const Eigen::VectorXd relative = a * x;
    for (Eigen::Index i = 0; i < rows; ++i) errors[static_cast<std::size_t>(i)] = std::abs(relative(i) - target(i));
  };
  measure();
  const double typical = std::max(median(errors), 1e-6);
  Eigen::VectorXd weight(rows);
  for (Eigen::Index i = 0; i < rows; ++i)
    weight(i) = 1 / std::sqrt(std::max(1.0, errors[static_cast<std::size_t>(i)] / (2 * typical)));
  x = non_negative_least_squares(weight.asDiagonal() * a, weight.cwiseProduct(target));
  measure();

  sim::CostFit fit;
  for (Eigen::Index j = 0; j < cols; ++j) fit.coefficients.push_back(x(j) / scale(j));
  std::vector<double> spreads;
  for (const Sample& sample : samples) spreads.push_back(sample.spread_pct);
  fit.source = {"measured", origin, median(spreads)};
  fit.points = static_cast<int>(samples.size());
  for (const Sample& sample : samples) fit.largest_us = std::max(fit.largest_us, sample.us);
  fit.median_error_pct = 100 * median(errors);
  fit.p95_error_pct = 100 * percentile(errors, 95);
  return fit;
}

sim::CostFit fit_corrected(const std::vector<Sample>& samples, const std::string& origin) {
  sim::CostFit fit = fit_linear(samples, origin);
  std::map<std::vector<double>, std::vector<double>> logs;
  for (const Sample& sample : samples) logs[sample.features].push_back(std::log(sample.us));
  for (const auto& [features, values] : logs)
    fit.measured.push_back(
        {features, std::exp(std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()))});
  std::vector<double> errors;
  for (std::size_t i = 0; i < fit.measured.size(); ++i) {
    sim::CostFit others = fit;
    others.measured.erase(others.measured.begin() + static_cast<std::ptrdiff_t>(i));
    const sim::MeasuredPoint& point = fit.measured[i];
    errors.push_back(std::abs(sim::evaluate_us(others, point.features) - point.us) / (point.us + kNegligible_us));
  }
  fit.median_error_pct = 100 * median(errors);
  fit.p95_error_pct = 100 * percentile(errors, 95);
  return fit;
}

}  // namespace stretto::calibrate
