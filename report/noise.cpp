#include "report/noise.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/rng.hpp"
#include "base/statistics.hpp"
#include "report/table.hpp"

namespace stretto {
namespace {

constexpr std::size_t kFewestTurns = 3;
constexpr int kDraws = 100, kOuterDraws = 40;
constexpr double kWithin = 95, kConfidence = 90;  // percent

using Turns = std::vector<std::size_t>;

// Draws random numbers from a stream of its own.
struct Random {
  std::uint64_t drawn = 0;
  std::size_t below(std::size_t n) { return random_bits(1, stream_of("noise"), drawn++) % n; }
};

Turns drawn_from(const Turns& turns, Random& random) {
  Turns drawn(turns.size());
  for (std::size_t& turn : drawn) turn = turns[random.below(turns.size())];
  return drawn;
}

double median_of(const std::vector<double>& row, const Turns& turns) {
  std::vector<double> values;
  for (const std::size_t turn : turns) values.push_back(row[turn]);
  return median(values);
}

// Returns the noise floor over some turns, in percent.
double floor_of(const std::vector<std::vector<double>>& rows, const Turns& turns, Random& random) {
  std::vector<double> middles;
  for (const std::vector<double>& row : rows) middles.push_back(median_of(row, turns));
  // The first and the last row are one schedule: their difference is noise.
  const double seen = 2 * std::abs(middles.front() - middles.back()) / (middles.front() + middles.back());
  middles.front() = middles.back() = (middles.front() + middles.back()) / 2;
  std::vector<double> differences;
  for (int draw = 0; draw < kDraws; ++draw) {
    const Turns drawn = drawn_from(turns, random);
    std::vector<double> relative;
    for (std::size_t i = 0; i < rows.size(); ++i) relative.push_back(median_of(rows[i], drawn) / middles[i]);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = i + 1; j < rows.size(); ++j) differences.push_back(std::abs(relative[i] - relative[j]));
  }
  return 100 * std::max(seen, percentile(differences, kWithin));
}

}  // namespace

NoiseFloor noise_floor(const std::vector<std::vector<double>>& rows) {
  assert(rows.size() >= 2);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const std::size_t count = rows.front().size();
  if (count < kFewestTurns) return {kUnknown, kUnknown, kUnknown};
  Turns turns(count);
  for (std::size_t turn = 0; turn < count; ++turn) turns[turn] = turn;
  Random random;
  std::vector<double> floors;
  for (int draw = 0; draw < kOuterDraws; ++draw) floors.push_back(floor_of(rows, drawn_from(turns, random), random));
  return {floor_of(rows, turns, random), percentile(floors, (100 - kConfidence) / 2),
          percentile(floors, (100 + kConfidence) / 2)};
}

}  // namespace stretto
