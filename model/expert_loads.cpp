#include "model/expert_loads.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/budget.hpp"
#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/rng.hpp"
#include "base/values_of.hpp"

namespace stretto {
namespace {

constexpr int kLoadDraws = 256;
constexpr std::uint64_t kLoadSeed = 1;

double most_over_mean_of(const std::vector<double>& loads, std::int64_t ranks) {
  const auto each = static_cast<std::size_t>(std::ssize(loads) / ranks);
  double most = 0, all = 0;
  for (std::size_t first = 0; first < loads.size(); first += each) {
    double of_rank = 0;
    for (std::size_t e = first; e < first + each; ++e) of_rank += loads[e];
    most = std::max(most, of_rank);
    all += of_rank;
  }
  return most * double(ranks) / all;
}

// The mean of the largest of n independent standard normal numbers: the integral of x over the density of the largest.
double mean_of_largest_normal(std::int64_t n) {
  constexpr double kEnd = 8, kStep = 1.0 / 64;
  double mean = 0, below = 0;
  for (double x = -kEnd; x < kEnd; x += kStep) {
    const double largest_below = std::pow(0.5 * std::erfc(-(x + kStep) / std::sqrt(2.0)), double(n));
    mean += (x + kStep / 2) * (largest_below - below);
    below = largest_below;
  }
  return mean;
}

double most_of_forced(double experts, double topk, double tokens, std::int64_t ranks) {
  if (topk >= experts) return 1;
  // A token chooses topk experts without repetition, so that a rank's share of them is hypergeometric.
  const double mean = tokens * topk / double(ranks);
  const double deviation = std::sqrt(mean * (experts - topk) / (experts - 1));
  return 1 + deviation * mean_of_largest_normal(ranks) / mean;
}

double most_of_natural(double exponent, std::int64_t experts, double tokens, std::int64_t ranks) {
  const double power = 1 - exponent, least = 1, most = std::max(2.0, 0.8 * tokens);
  const auto load_of = [&](double uniform) {
    if (std::abs(power) < 1e-9) return least * std::pow(most / least, uniform);
    return std::pow((std::pow(most, power) - std::pow(least, power)) * uniform + std::pow(least, power), 1 / power);
  };
  double sum = 0;
  std::vector<double> loads(static_cast<std::size_t>(experts));
  for (std::uint64_t draw = 0; draw < kLoadDraws; ++draw) {
    for (std::size_t e = 0; e < loads.size(); ++e) loads[e] = load_of(uniform(kLoadSeed, draw, e));
    sum += most_over_mean_of(loads, ranks);
  }
  return sum / kLoadDraws;
}

}  // namespace

const char* name_of(ExpertLoads::Kind kind) { return name_in({"equal", "forced", "natural", "measured"}, kind); }

double most_over_mean(const ExpertLoads& loads, std::int64_t experts, std::int64_t topk, double tokens,
                      std::int64_t ranks) {
  if (ranks <= 1) return 1;
  switch (loads.kind) {
    case ExpertLoads::Kind::equal:
      return 1;
    case ExpertLoads::Kind::forced:
      return most_of_forced(double(experts), double(topk), tokens, ranks);
    case ExpertLoads::Kind::natural:
      return most_of_natural(loads.exponent, experts, tokens, ranks);
    case ExpertLoads::Kind::measured:
      break;
  }
  double sum = 0;
  for (const std::vector<double>& layer : loads.measured) sum += most_over_mean_of(layer, ranks);
  return sum / double(loads.measured.size());
}

void read_measured(ExpertLoads& loads, std::int64_t experts) {
  Budget budget(loads.file);
  const std::string text = read_text(loads.file, budget);
  std::vector<std::string> columns = {"expert", "tokens"};
  if (has_csv_column(text, "layer")) columns.emplace_back("layer");
  std::map<std::int64_t, std::vector<double>> layers;
  read_csv(text, loads.file, columns, [&](const CsvRow& row) {
    const auto number = [&](std::size_t column, std::int64_t most) {
      const double value = row.number(column, 0, double(most));
      if (value != std::floor(value)) throw row.error(column, "a whole number from 0 on");
      return static_cast<std::int64_t>(value);
    };
    std::vector<double>& layer = layers[columns.size() > 2 ? number(2, 1 << 14) : 0];
    if (layer.empty()) budget.keep(static_cast<std::size_t>(experts) * sizeof(double));
    layer.resize(static_cast<std::size_t>(experts));
    layer[static_cast<std::size_t>(number(0, experts - 1))] += row.number(1, 0, 1e15);
  });
  loads.measured.clear();
  for (const auto& [number, layer] : layers) {
    if (std::all_of(layer.begin(), layer.end(), [](double tokens) { return tokens == 0; }))
      throw input_error(loads.file + ": expected tokens of an expert in layer " + std::to_string(number) +
                        ", got none");
    loads.measured.push_back(layer);
  }
  if (loads.measured.empty()) throw input_error(loads.file + ": expected a row for each expert, got none");
}

}  // namespace stretto
