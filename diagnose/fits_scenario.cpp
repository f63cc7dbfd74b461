#include "diagnose/fits_scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "diagnose/kinds.hpp"
#include "trace/shapes.hpp"

namespace stretto::diagnose {
namespace {

constexpr double kLeast = 0.5, kLeastOfOwn = 0.9, kLeastOfFew = 0.25;

// The sides m, n and k in order of size: a backward product has those of its forward product in other places, and a
// library may exchange m and n. Equal multiply-adds are no equal shape: 8192 x 4096 x 4096 are 32768 x 2048 x 2048.
using Sides = std::array<double, 3>;
Sides sides_of(double m, double n, double k) {
  Sides sides = {m, n, k};
  std::sort(sides.begin(), sides.end());
  return sides;
}

// A run may have a product whole that the schedule cuts into pieces: a side is then a multiple of the piece's.
bool is_equal(const Sides& measured, const Sides& scheduled, bool is_piece) {
  if (measured == scheduled || !is_piece) return measured == scheduled;
  for (const double times : {2., 4., 8., 16.})
    for (std::size_t side = 0; side < scheduled.size(); ++side) {
      Sides whole = scheduled;
      whole[side] *= times;
      std::sort(whole.begin(), whole.end());
      if (whole == measured) return true;
    }
  return false;
}

// Returns whether the operation of a trace of Stretto's is this one with all its sizes; nullopt for other traces, and
// where it is another operation: runs with other overlaps cut products.
std::optional<bool> is_same(const std::string& kernel, const std::string& label, const Operation& operation) {
  const std::size_t line = kernel.find('\n');
  if (line == std::string::npos || kernel.compare(0, line, label) != 0) return std::nullopt;
  return kernel.compare(line + 1, std::string::npos, describe(operation.work)) == 0;
}

bool is_product(const Operation& operation) {
  return std::holds_alternative<Gemm>(operation.work) || std::holds_alternative<GroupedGemm>(operation.work);
}

// Frameworks pad vocabularies and join products, so that a few differ.
void require_shapes(const Schedule& schedule, const MeasuredRank& rank, const std::string& scenario) {
  std::int64_t known = 0, equal = 0;
  double least = kLeast;
  std::string example;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const trace::Kernel& kernel = rank.kernel(placed);
    if (placed.op == kNoOperation || kernel.cls != trace::KernelClass::gemm) continue;
    const auto product = trace::product_of(*rank.trace, kernel);
    const Operation& operation = schedule.operations[rank.program.ops[static_cast<std::uint32_t>(placed.op)].op];
    const std::string& name = rank.trace->name_of(kernel);
    const std::string of = label(schedule, rank.program.ops[static_cast<std::uint32_t>(placed.op)]);
    if (const std::optional<bool> same = is_same(name, of, operation)) {
      least = kLeastOfOwn;
      ++known;
      if (*same)
        ++equal;
      else if (example.empty())
        example = fmt::format("{} where {} is {}", name.substr(name.find('\n') + 1), operation.name,
                              describe(operation.work));
    }
    const auto* gemm = std::get_if<Gemm>(&operation.work);
    if (!product || gemm == nullptr) continue;
    ++known;
    if (is_equal(sides_of(product->m, product->n, product->k),
                 sides_of(double(gemm->m), double(gemm->n), double(gemm->k)),
                 without_part(operation.name) != operation.name))
      ++equal;
    else if (example.empty())
      example = fmt::format("{:.0f}x{:.0f}x{:.0f} where {} is {}", product->m, product->n, product->k, operation.name,
                            describe(operation.work));
  }
  // An excerpt has few products, and more of these may be joined or padded by a framework.
  constexpr std::int64_t kFew = 8;
  if (known < kFew) least = kLeastOfFew;
  if (double(equal) < least * double(known))
    throw input_error(
        fmt::format("{}: {} of {} products have other shapes than those of {} ({}); expected a trace of "
                    "this model and layout",
                    rank.trace->file, known - equal, known, scenario, example));
}

// Types of products by operator or name: an fp8 run has some products in 16 bits, so that the most decide.
void require_precision(const Schedule& schedule, const MeasuredRank& rank, const std::string& scenario) {
  std::int64_t known = 0, other = 0;
  std::string example;
  for (const PlacedKernel& placed : rank.placed.kernels) {
    const trace::Kernel& kernel = rank.kernel(placed);
    if (rank.is_own || placed.op == kNoOperation || kernel.cls != trace::KernelClass::gemm) continue;
    const Operation& operation = schedule.operations[rank.program.ops[static_cast<std::uint32_t>(placed.op)].op];
    const int bytes = trace::operand_bytes_of(*rank.trace, kernel);
    if (bytes == 0 || operation.accesses.empty() || !is_product(operation)) continue;
    const std::int64_t expected = bytes_of(schedule.dtype_of(operation.accesses.front().view));
    ++known;
    if (bytes == expected) continue;
    ++other;
    if (example.empty())
      example = fmt::format("{} has operands of {} bytes an element where {} has {}",
                            short_name(rank.trace->name_of(kernel)), bytes, operation.name, expected);
  }
  if (double(other) > kLeast * double(known))
    throw input_error(
        fmt::format("{}: {} of {} products have another precision than those of {} ({}); expected a trace of this "
                    "precision",
                    rank.trace->file, other, known, scenario, example));
}

struct FoundOperations {
  std::int64_t all = 0, found = 0;    // that compute
  double all_us = 0, found_us = 0;    // predicted
  std::set<std::string> products[2];  // names of products and attentions, forward and backward
  std::set<std::string> products_found[2];
};

FoundOperations found_operations(const Schedule& schedule, const MeasuredRank& rank) {
  std::set<std::int64_t> matched;
  for (const PlacedKernel& placed : rank.placed.kernels) matched.insert(placed.op);
  FoundOperations of;
  for (const TimelineRow* row : rank.predicted.rows) {
    if (row == nullptr || is_communication(rank.program.work_of(row->op))) continue;
    const Operation& operation = schedule.operations[rank.program.ops[row->op].op];
    const bool is_found = matched.contains(row->op);
    ++of.all;
    of.found += is_found;
    of.all_us += to_us(row->end - row->start);
    if (is_found) of.found_us += to_us(row->end - row->start);
    const trace::Side side = side_of(operation.phase);
    if (side == trace::Side::unknown || !(is_product(operation) || std::holds_alternative<Attention>(operation.work)))
      continue;
    const int pass = side == trace::Side::forward ? 0 : 1;
    of.products[pass].insert(without_part(operation.name));
    if (is_found) of.products_found[pass].insert(without_part(operation.name));
  }
  return of;
}

void require_operations(const Schedule& schedule, const MeasuredRank& rank, const std::string& scenario) {
  const FoundOperations of = found_operations(schedule, rank);
  const std::string count = fmt::format("{} of {} operations of {}", of.found, of.all, scenario);
  if (rank.period.is_whole) {
    if (of.found_us < kLeast * of.all_us)
      throw input_error(fmt::format(
          "{}: only {:.0f} % of the computation of {} has kernels ({}); expected a trace of this model and layout",
          rank.trace->file, 100 * of.found_us / of.all_us, scenario, count));
    if (double(of.found) < kLeastOperations * double(of.all))
      throw input_error(
          fmt::format("{}: only {} have kernels; expected a trace of this model and layout", rank.trace->file, count));
    return;
  }
  // An excerpt has a layer at least, of one pass.
  double most = 0;
  for (const int pass : {0, 1})
    if (!of.products[pass].empty())
      most = std::max(most, double(of.products_found[pass].size()) / double(of.products[pass].size()));
  if (most < kLeast)
    throw input_error(fmt::format(
        "{}: only {} have kernels, and no whole layer: {:.0f} % of the kinds of products and attention of a "
        "pass; expected a trace of this model and layout",
        rank.trace->file, count, 100 * most));
}

// A step that is so much longer or shorter is that of another batch, layout or model, whatever its kernels are.
void require_length(const MeasuredRank& rank, const std::string& scenario) {
  constexpr double kMostRatio = 3;
  if (rank.is_own || !rank.period.is_whole || rank.predicted.period <= 0) return;
  const double ratio = double(rank.length()) / double(rank.predicted.period);
  if (ratio <= kMostRatio && ratio >= 1 / kMostRatio) return;
  throw input_error(fmt::format(
      "{}: a step takes {:.4g} ms, {:.3g} times the {:.4g} ms predicted of {}; expected a trace of this run "
      "(batch, layout and model), whose step is within a factor of {:.0f}",
      rank.trace->file, to_ms(rank.length()), ratio, to_ms(rank.predicted.period), scenario, kMostRatio));
}

}  // namespace

double matched_share(const std::vector<MeasuredRank>& ranks) {
  double all = 0, matched = 0;
  for (const MeasuredRank& rank : ranks)
    for (const PlacedKernel& placed : rank.placed.kernels) {
      const double length = double(rank.kernel(placed).length());
      all += length;
      // Communication on the lane of its communicator counts: buckets may be cut otherwise.
      if (placed.op != kNoOperation || placed.communicator != kNoCommunicator) matched += length;
    }
  return all > 0 ? matched / all : 0;
}

void require_fit(const Schedule& schedule, const std::vector<MeasuredRank>& ranks, double matched,
                 const std::string& scenario) {
  if (matched < kLeast)
    throw input_error(
        fmt::format("{}: {:.0f} % of the kernels' time matches the schedule of {}; expected a trace of "
                    "this model and layout",
                    ranks.front().trace->file, 100 * matched, scenario));
  for (const MeasuredRank& rank : ranks) {
    require_shapes(schedule, rank, scenario);
    require_precision(schedule, rank, scenario);
    require_operations(schedule, rank, scenario);
    require_length(rank, scenario);
  }
}

}  // namespace stretto::diagnose
