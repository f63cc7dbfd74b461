#include "diagnose/fits_scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.hpp"
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

// Returns whether the operation of a trace of Stretto's is this one with all its sizes; nullopt for other traces, and
// where it is another operation: runs with other overlaps cut products.
std::optional<bool> is_same(const std::string& kernel, const std::string& label, const Operation& operation) {
  const std::size_t line = kernel.find('\n');
  if (line == std::string::npos || kernel.compare(0, line, label) != 0) return std::nullopt;
  return kernel.compare(line + 1, std::string::npos, describe(operation.work)) == 0;
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
    if (sides_of(product->m, product->n, product->k) == sides_of(double(gemm->m), double(gemm->n), double(gemm->k)))
      ++equal;
    else if (example.empty())
      example = fmt::format("{:.0f}x{:.0f}x{:.0f} where {} is {}", product->m, product->n, product->k, operation.name,
                            describe(operation.work));
  }
  // An excerpt has few products, and more of these may be joined or padded by a framework.
  constexpr std::int64_t kFew = 8, kFewest = 4;
  if (known < kFew) least = kLeastOfFew;
  if (known >= kFewest && double(equal) < least * double(known))
    throw input_error(
        fmt::format("{}: {} of {} products have other shapes than those of {} ({}); expected a trace of "
                    "this model and layout",
                    rank.trace->file, known - equal, known, scenario, example));
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
    if (!rank.period.is_whole) continue;
    std::set<std::int64_t> found;
    for (const PlacedKernel& placed : rank.placed.kernels) found.insert(placed.op);
    double all = 0, with_kernel = 0;
    for (const TimelineRow* row : rank.predicted.rows) {
      if (row == nullptr || is_communication(rank.program.work_of(row->op))) continue;
      all += double(row->end - row->start);
      if (found.contains(row->op)) with_kernel += double(row->end - row->start);
    }
    if (with_kernel < kLeast * all)
      throw input_error(
          fmt::format("{}: only {:.0f} % of the computation of {} has kernels; expected a trace of this "
                      "model and layout",
                      rank.trace->file, all > 0 ? 100 * with_kernel / all : 0, scenario));
  }
}

}  // namespace stretto::diagnose
