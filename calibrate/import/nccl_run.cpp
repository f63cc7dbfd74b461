#include "calibrate/import/nccl_run.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "sim/accelerator/measured_time.hpp"

namespace stretto::calibrate {
namespace {

// Returns bus bandwidth / algorithm bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md of NVIDIA/nccl-tests).
double bus_factor(CollectiveKind kind, std::int64_t gpus) {
  const double n = static_cast<double>(gpus);
  return (kind == CollectiveKind::all_reduce ? 2 : 1) * (n - 1) / n;
}

// Bandwidths are printed with two decimals: above this rate the rounding is within a percent.
constexpr double kPrinted_GBps = 1;

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

std::string NcclPoints::op_of(const NcclRun& run, int line) const {
  if (run.op.empty() && said_.op.empty())
    throw input_error(place(line) +
                      "expected a program's name (all_reduce_perf, …) before its rows, got none; say which "
                      "operation it is: --import all_reduce=FILE");
  if (!run.op.empty() && !said_.op.empty() && run.op != said_.op)
    throw input_error(place(line) + "expected rows of " + said_.op + "_perf, as --import says, got " + run.op +
                      "_perf");
  return run.op.empty() ? said_.op : run.op;
}

sim::GroupSpan NcclPoints::span_of(const NcclRun& run, int line) const {
  const auto hosts = static_cast<std::int64_t>(run.hosts.size());
  const sim::GroupSpan span{said_.gpus > 0 ? said_.gpus : run.gpus,
                            said_.nodes > 0 ? said_.nodes : std::max<std::int64_t>(1, hosts)};
  if (span.members == 0)
    throw input_error(place(line) +
                      "expected lines \"Rank 0 … on HOST device 0\" before rows, got none; say how many "
                      "GPUs and nodes it ran on: --import @16/2=FILE");
  if (span.members % span.nodes != 0)
    throw input_error(place(line) +
                      fmt::format("expected as many GPUs on each node, got {} on {}", span.members, span.nodes));
  return span;
}

void NcclPoints::check_bandwidths(CollectiveKind kind, std::int64_t gpus, const NcclRow& row, int line) const {
  if (row.algorithm_GBps < kPrinted_GBps) return;
  const double got = row.bus_GBps / row.algorithm_GBps, expected = bus_factor(kind, gpus);
  if (std::abs(got - expected) <= 0.02 * expected) return;
  throw input_error(place(line) + fmt::format("expected busbw / algbw of {:.3f}", expected) +
                    fmt::format(", of {} among {} GPUs", name_of(kind), gpus) +
                    fmt::format(", got {:.3f}: another operation or number of GPUs?", got));
}

void NcclPoints::add(const NcclRun& run, const NcclRow& row, int line) {
  ++rows_;
  const std::string op = op_of(run, line);
  const std::optional<CollectiveKind> kind = sim::collective_named(op);
  if (!kind) {
    other_ops_.insert(op);
    return;
  }
  if (row.type != "float" && row.type != "half" && row.type != "bfloat16") {
    other_types_.insert(printable(row.type));
    return;
  }
  const sim::GroupSpan span = span_of(run, line);
  const double us = row.out_of_place_us > 0 ? row.out_of_place_us : row.in_place_us;
  if (span.members < 2 || row.bytes <= 0 || us <= 0) return;
  if (row.wrong > 0) {
    ++wrong_rows_;
    return;
  }
  if (us < sim::kLeastTime_us || us > sim::kMostTime_us)
    throw input_error(place(line) + fmt::format("expected a time from {:g} to {:g} us, got {:g}", sim::kLeastTime_us,
                                                sim::kMostTime_us, us));
  check_bandwidths(*kind, span.members, row, line);
  found_.collectives.push_back({*kind, span, row.bytes, us});
  if (found_.device.empty()) found_.device = run.device;
}

Measurements NcclPoints::take() {
  if (rows_ == 0) throw input_error(name_ + ": expected rows of nccl-tests (size, count, type, …, time), got none");
  if (found_.collectives.empty())
    throw input_error(name_ +
                      ": expected rows of all_gather, reduce_scatter or all_reduce in float, half or bfloat16, got " +
                      (other_ops_.empty() && other_types_.empty() ? "none that count"
                       : other_ops_.empty()                       ? joined(other_types_)
                                                                  : joined(other_ops_)));
  if (!other_ops_.empty()) found_.notes.push_back("rows not used: those of " + joined(other_ops_));
  if (!other_types_.empty()) found_.notes.push_back("rows not used: those of " + joined(other_types_));
  if (wrong_rows_ > 0) found_.notes.push_back(fmt::format("rows not used: {} with wrong values", wrong_rows_));
  return std::move(found_);
}

}  // namespace stretto::calibrate
