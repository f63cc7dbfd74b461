#include "calibrate/import/nccl_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "sim/accelerator/measured_time.hpp"

namespace stretto::calibrate {
namespace {

// The largest group whose number of GPUs the printed digits may say.
constexpr std::int64_t kMostGpus = 1 << 20;

// Returns whether the operation adds values of ranks.
bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

// Returns the numbers of GPUs that give such a ratio, "1333 to 1550"; "" where any number does.
std::string gpus_of(CollectiveKind kind, const RatioRange& ratio) {
  // (n - 1) / n = share, twice that for an all-reduce: sim::ring_share.
  const double scale = sim::ring_share(kind, 2) / 0.5;
  const auto gpus = [&](double r) { return r >= scale ? double(kMostGpus) : 1 / (1 - r / scale); };
  if (!ratio.is_known() || ratio.low >= scale) return "";
  const double least = std::max(2.0, std::ceil(gpus(ratio.low) - 1e-6)), most = std::floor(gpus(ratio.high) + 1e-6);
  if (least > most) return "";
  if (most >= double(kMostGpus)) return fmt::format("{:.0f} or more", least);
  return least == most ? fmt::format("{:.0f}", least) : fmt::format("{:.0f} to {:.0f}", least, most);
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::string op_of_program(std::string_view text) {
  const std::size_t end = text.find("_perf");
  if (end == std::string_view::npos) return "";
  std::size_t begin = end;
  while (begin > 0 && ((text[begin - 1] >= 'a' && text[begin - 1] <= 'z') || text[begin - 1] == '_')) --begin;
  return std::string(text.substr(begin, end - begin));
}

std::string NcclPoints::place(int line) const { return name_ + (line > 0 ? ":" + std::to_string(line) : "") + ": "; }

void RatioRange::narrow(const RatioRange& more) {
  low = std::max(low, more.low);
  high = std::min(high, more.high);
}

// nccl-tests multiplies the algorithm's bandwidth by the ratio (doc/PERFORMANCE.md), then prints both to a few digits,
// which may be cut off instead of rounded.
RatioRange ratio_of(const NcclRow& row) {
  const PrintedNumber &bus = row.bus_GBps, &algorithm = row.algorithm_GBps;
  if (bus.value <= bus.step || algorithm.value <= algorithm.step) return {};
  return {(bus.value - bus.step) / (algorithm.value + algorithm.step),
          (bus.value + bus.step) / (algorithm.value - algorithm.step)};
}

// Returns the operation: what the program's name or the user says, else what the rows say. A reduction with a root has
// the ratio 1; an all-gather and an all-to-all have the same ratio, but nccl-tests cannot check an all-to-all in place.
std::string NcclPoints::op_of(const Series& series) const {
  const auto& [row, line] = series.rows.front();
  const auto named = sim::collective_named(series.run.op);
  const std::string said_by_file = named ? name_of(*named) : series.run.op;
  if (!said_by_file.empty() && !said_.op.empty() && said_by_file != said_.op)
    throw input_error(place(line) + "expected rows of " + said_.op + "_perf, as --import says, got " + series.run.op +
                      "_perf");
  const std::string op = !said_by_file.empty() ? said_by_file : said_.op;
  const bool is_sum = !row.redop.empty() && row.redop != "none";
  if (const auto kind = sim::collective_named(op)) {
    if (!row.redop.empty() && is_sum != is_reduction(*kind))
      throw input_error(place(line) + fmt::format("expected a row of {}, whose redop is {}, got {}", op,
                                                  is_reduction(*kind) ? "sum or another" : "none",
                                                  printable(row.redop)));
    return op;
  }
  if (!op.empty()) return op;
  const std::int64_t gpus = said_.gpus > 0 ? said_.gpus : series.run.gpus;
  const auto fits = [&](CollectiveKind kind) {
    if (!series.ratio.is_known() || row.root != "-1") return false;
    return gpus >= 2 ? series.ratio.has(sim::ring_share(kind, gpus)) : !gpus_of(kind, series.ratio).empty();
  };
  std::string why = "and redop, root and busbw / algbw leave it open";
  if (is_sum) {
    const bool may_reduce = fits(CollectiveKind::all_reduce), may_scatter = fits(CollectiveKind::reduce_scatter);
    // Without a number of GPUs a ratio below 1 is a reduce-scatter's among many or an all-reduce's among fewer than 2.
    if (may_reduce && !may_scatter) return name_of(CollectiveKind::all_reduce);
    if (may_scatter && !may_reduce) return name_of(CollectiveKind::reduce_scatter);
    if (gpus >= 2 && series.ratio.is_known())
      why = fmt::format("and busbw / algbw is of no reduction among {} GPUs", gpus);
  } else if (row.redop == "none" && fits(CollectiveKind::all_gather) && row.is_checked_out_of_place) {
    return name_of(row.is_checked_in_place ? CollectiveKind::all_gather : CollectiveKind::all_to_all);
  }
  throw input_error(place(line) + "expected a program's name (all_reduce_perf, …) before its rows, got none, " + why +
                    "; say which operation it is: --import all_reduce=FILE");
}

sim::GroupSpan NcclPoints::span_of(const Series& series, CollectiveKind kind) const {
  const NcclRun& run = series.run;
  const int line = series.rows.front().second;
  const auto hosts = static_cast<std::int64_t>(run.hosts.size());
  const std::int64_t least = run.has_other_groups ? run.gpus : std::max(run.gpus, run.last_rank + 1);
  const bool is_whole = run.has_other_groups || run.gpus == least;
  if (said_.gpus > 0 && (said_.gpus < least || (is_whole && least > 0 && said_.gpus != least)))
    throw input_error(place(line) + fmt::format("expected {} GPUs, as --import says, got lines \"Rank N\" of {}{}",
                                                said_.gpus, least, is_whole ? "" : " or more"));
  const sim::GroupSpan span{said_.gpus > 0 ? said_.gpus
                            : is_whole     ? run.gpus
                                           : 0,
                            said_.nodes > 0 ? said_.nodes : std::max<std::int64_t>(1, hosts)};
  if (span.members == 0) {
    const std::string ratio = gpus_of(kind, series.ratio);
    throw input_error(
        place(line) +
        (least == 0 ? "expected lines \"Rank 0 … on HOST device 0\" before rows, got none; "
                    : fmt::format("expected a line \"Rank N … on HOST device 0\" for each of {} GPUs or more, got {}; ",
                                  least, run.gpus)) +
        (ratio.empty() ? "" : "busbw / algbw is that of " + ratio + " GPUs; ") +
        "say how many GPUs and nodes it ran on: --import @16/2=FILE");
  }
  if (span.members % span.nodes != 0)
    throw input_error(place(line) +
                      fmt::format("expected as many GPUs on each node, got {} on {}", span.members, span.nodes));
  return span;
}

void NcclPoints::check_bandwidths(CollectiveKind kind, std::int64_t gpus, const NcclRow& row, int line) const {
  const RatioRange ratio = ratio_of(row);
  const double expected = sim::ring_share(kind, gpus);
  if (!ratio.is_known() || ratio.has(expected)) return;
  const std::string others = gpus_of(kind, ratio);
  throw input_error(place(line) +
                    fmt::format("expected busbw / algbw of {:.4f}, of {} among {} GPUs, got {:.4f}: ", expected,
                                name_of(kind), gpus, row.bus_GBps.value / row.algorithm_GBps.value) +
                    (others.empty() ? "another operation?" : "that of " + others + " GPUs, or of another operation"));
}

void NcclPoints::add(const NcclRun& run, const NcclRow& row, int line) {
  ++rows_;
  const auto is_equal = [&](const NcclRow& other) {
    return other.redop == row.redop && other.is_checked_out_of_place == row.is_checked_out_of_place &&
           other.is_checked_in_place == row.is_checked_in_place;
  };
  if (series_.empty() || !is_equal(series_.back().rows.front().first) || series_.back().run != run)
    series_.push_back({run, {}, {}});
  series_.back().rows.push_back({row, line});
  series_.back().ratio.narrow(ratio_of(row));
}

void NcclPoints::take(const Series& series) {
  const std::string op = op_of(series);
  const std::optional<CollectiveKind> kind = sim::collective_named(op);
  if (!kind) {
    other_ops_.insert(op);
    return;
  }
  for (const auto& [row, line] : series.rows) {
    if (row.type != "float" && row.type != "half" && row.type != "bfloat16") {
      other_types_.insert(printable(row.type));
      continue;
    }
    const sim::GroupSpan span = span_of(series, *kind);
    const double us = row.out_of_place_us > 0 ? row.out_of_place_us : row.in_place_us;
    if (span.members < 2 || row.bytes <= 0 || us <= 0) continue;
    if (row.wrong > 0) {
      ++wrong_rows_;
      continue;
    }
    if (us < sim::kLeastTime_us || us > sim::kMostTime_us)
      throw input_error(place(line) + fmt::format("expected a time from {:g} to {:g} us, got {:g}", sim::kLeastTime_us,
                                                  sim::kMostTime_us, us));
    check_bandwidths(*kind, span.members, row, line);
    found_.collectives.push_back({*kind, span, row.bytes, us});
    if (found_.device.empty()) found_.device = series.run.device;
  }
}

Measurements NcclPoints::take() {
  if (rows_ == 0) throw input_error(name_ + ": expected rows of nccl-tests (size, count, type, …, time), got none");
  for (const Series& series : series_) take(series);
  if (found_.collectives.empty())
    throw input_error(
        name_ +
        ": expected rows of all_gather, reduce_scatter, all_reduce or all_to_all in float, half or bfloat16, got " +
        (other_ops_.empty() && other_types_.empty() ? "none that count"
         : other_ops_.empty()                       ? joined(other_types_)
                                                    : joined(other_ops_)));
  if (!other_ops_.empty()) found_.notes.push_back("rows not used: those of " + joined(other_ops_));
  if (!other_types_.empty()) found_.notes.push_back("rows not used: those of " + joined(other_types_));
  if (wrong_rows_ > 0) found_.notes.push_back(fmt::format("rows not used: {} with wrong values", wrong_rows_));
  return std::move(found_);
}

}  // namespace stretto::calibrate
