// Times of kernels in a trace of training steps as measurements of a platform.
#include "trace/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "calibrate/import/measurements.hpp"
#include "trace/busy.hpp"
#include "trace/shapes.hpp"

namespace stretto::calibrate {
namespace {

using trace::Kernel;
using trace::KernelClass;
using trace::RankTrace;

// Fewer calls than this say nothing about interference.
constexpr std::size_t kFewest = 3;
// Calls of one kernel whose lengths alone differ by more than this (90th over 10th percentile) have several shapes.
constexpr double kMostSpread = 1.1;

std::optional<CollectiveKind> kind_of(KernelClass cls) {
  switch (cls) {
    case KernelClass::all_gather:
      return CollectiveKind::all_gather;
    case KernelClass::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case KernelClass::all_reduce:
      return CollectiveKind::all_reduce;
    case KernelClass::all_to_all:
      return CollectiveKind::all_to_all;
    default:
      return std::nullopt;
  }
}

// Lengths of calls of one kernel or collective, in microseconds.
struct KernelCalls {
  std::vector<double> alone, concurrent;
};

// Time concurrent with communication over time alone, of all kernels that have both.
class Slowdown {
 public:
  void add(const KernelCalls& calls, double alone_us) {
    if (calls.alone.size() < kFewest || calls.concurrent.size() < kFewest) return;
    for (const double us : calls.concurrent) beside_ += us;
    alone_ += alone_us * double(calls.concurrent.size());
  }
  std::optional<double> value() const {
    if (alone_ <= 0) return std::nullopt;
    return std::max(1.0, beside_ / alone_);
  }

 private:
  double alone_ = 0, beside_ = 0;
};

class KernelTimes {
 public:
  explicit KernelTimes(const ImportFile& said) : said_(said) { found_.in_steps = true; }

  void add(const RankTrace& trace) {
    if (!trace.device.empty()) found_.device = trace.device;
    if (!found_.host) found_.host = host_times(trace);
    std::vector<std::pair<Picoseconds, Picoseconds>> computing, moving;
    for (const Kernel& kernel : trace.kernels)
      (trace::is_communication(kernel.cls) ? moving : computing).push_back({kernel.start, kernel.end});
    const trace::Busy compute(std::move(computing)), communication(std::move(moving));
    for (const Kernel& kernel : trace.kernels) {
      if (trace::is_communication(kernel.cls))
        add_collective(trace, kernel, compute.share_of(kernel.start, kernel.end));
      else
        add_compute(trace, kernel, communication.share_of(kernel.start, kernel.end));
    }
  }

  Measurements take() {
    for (const auto& [key, calls] : collectives_) {
      const auto& [kind, members, bytes] = key;
      if (calls.alone.empty() && calls.concurrent.empty()) continue;
      const std::int64_t nodes = std::max<std::int64_t>(1, said_.nodes);
      // The shortest call waited least for its peers.
      found_.collectives.push_back(
          {kind, {members, nodes}, bytes, calls.alone.empty() ? minimum(calls.concurrent) : minimum(calls.alone)});
    }
    for (const auto& [shape, calls] : gemms_) {
      const auto& [m, n, k] = shape;
      if (calls.alone.empty() && calls.concurrent.empty()) continue;
      found_.gemms.push_back({m, n, k, calls.alone.empty() ? median(calls.concurrent) : median(calls.alone)});
    }
    found_.interference = interference();
    note(unaligned_, "products whose m, n or k 8 does not divide");
    note(without_shape_, "GEMMs without a shape (record_shapes=True says it)");
    note(other_groups_, "collectives of other groups than --import says, or of more than 8 GPUs: say @GPUS/NODES");
    note(without_message_, "communication kernels without size and group (PyTorch 2.3 and later say them)");
    const MeasuredInterference& i = found_.interference;
    if (found_.collectives.empty() && found_.gemms.empty() && !i.gemm && !i.attention && !i.memory_bound &&
        !i.communication && (!found_.host || found_.host->kinds.empty()))
      throw input_error(
          said_.path +
          ": expected GEMMs with shapes (record_shapes=True), collectives with sizes, launches of the host, or "
          "kernels both alone and concurrent with communication, got none");
    return std::move(found_);
  }

 private:
  void note(std::int64_t count, const char* what) {
    if (count > 0) found_.notes.push_back(fmt::format("not used: {} {}", count, what));
  }

  void add_collective(const RankTrace& trace, const Kernel& kernel, double concurrent) {
    const std::optional<CollectiveKind> kind = kind_of(kernel.cls);
    if (!kind) return;
    const trace::Message* message =
        kernel.message < 0 ? nullptr : &trace.messages[static_cast<std::size_t>(kernel.message)];
    if (message == nullptr || message->group_size < 2 || message->element_bytes == 0 || message->in_elements < 1) {
      ++without_message_;
      return;
    }
    constexpr std::int64_t kMostOfHost = 8;
    const bool is_said = said_.gpus > 0 ? message->group_size == said_.gpus : message->group_size <= kMostOfHost;
    if (!is_said || (!said_.op.empty() && said_.op != name_of(*kind))) {
      ++other_groups_;
      return;
    }
    const double bytes = double(std::max(message->in_elements, message->out_elements)) * double(message->element_bytes);
    put(collectives_[{*kind, message->group_size, bytes}], kernel, concurrent);
  }

  void add_compute(const RankTrace& trace, const Kernel& kernel, double concurrent) {
    const auto product = trace::product_of(trace, kernel);
    const double shape = product ? product->m * product->n * product->k : 0;
    put(kernels_[{trace.name_of(kernel), kernel.cls, shape}], kernel, concurrent);
    if (kernel.cls != KernelClass::gemm) return;
    if (!product || product->element_bytes != 2) {
      ++without_shape_;
      return;
    }
    const auto divides = [](double side) { return std::int64_t(side) % 8 == 0; };
    if (!divides(product->m) || !divides(product->n) || !divides(product->k))
      ++unaligned_;
    else
      put(gemms_[{product->m, product->n, product->k}], kernel, concurrent);
  }

  static void put(KernelCalls& calls, const Kernel& kernel, double concurrent) {
    if (kernel.length() <= 0) return;
    if (concurrent >= trace::kConcurrent) calls.concurrent.push_back(to_us(kernel.length()));
    if (concurrent <= 1 - trace::kConcurrent) calls.alone.push_back(to_us(kernel.length()));
  }

  MeasuredInterference interference() const {
    Slowdown gemm, attention, memory_bound, communication;
    for (const auto& [key, calls] : kernels_) {
      if (calls.alone.size() < kFewest || percentile(calls.alone, 90) > kMostSpread * percentile(calls.alone, 10))
        continue;
      const KernelClass cls = std::get<1>(key);
      const bool is_attention = cls == KernelClass::attention_forward || cls == KernelClass::attention_backward;
      (cls == KernelClass::gemm ? gemm : is_attention ? attention : memory_bound).add(calls, median(calls.alone));
    }
    for (const auto& [key, calls] : collectives_)
      if (!calls.alone.empty() && !calls.concurrent.empty()) {
        // Waiting for peers lengthens both: the shortest calls are compared.
        const KernelCalls shortest{calls.alone,
                                   std::vector<double>(calls.concurrent.size(), minimum(calls.concurrent))};
        communication.add(shortest, minimum(calls.alone));
      }
    return {gemm.value(), attention.value(), memory_bound.value(), communication.value()};
  }

  const ImportFile& said_;
  Measurements found_;
  std::map<std::tuple<CollectiveKind, std::int64_t, double>, KernelCalls> collectives_;  // [kind, members, bytes]
  std::map<std::tuple<double, double, double>, KernelCalls> gemms_;                      // [m, n, k]
  std::map<std::tuple<std::string, KernelClass, double>, KernelCalls> kernels_;          // [name, class, shape]
  std::int64_t unaligned_ = 0, without_shape_ = 0, other_groups_ = 0, without_message_ = 0;
};

}  // namespace

Measurements read_kernel_times(const ImportFile& file) {
  const trace::TraceFile read = trace::read_trace(file.path);
  if (read.origin == trace::Origin::stretto)
    throw input_error(file.path +
                      ": expected a trace of a GPU's kernels, got one of Stretto's own: `stretto calibrate` "
                      "measures this machine");
  KernelTimes times(file);
  for (const RankTrace& rank : read.sections.front().ranks) times.add(rank);
  return times.take();
}

}  // namespace stretto::calibrate
