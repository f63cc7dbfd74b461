#include "calibrate/import/host_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "base/statistics.hpp"
#include "sim/accelerator/numbers.hpp"
#include "trace/busy.hpp"

namespace stretto::calibrate {
namespace {

using trace::Kernel;
using trace::KernelClass;

// Fewer gaps than this say nothing about a kind.
constexpr std::size_t kFewestGaps = 3;
// Assumed: a launch waits for the device once about 1,024 are queued, a number that no document of NVIDIA has. The gaps
// of a queue as full as this are times of the device.
constexpr std::int64_t kFullQueue = 900;

// Keys of [host.us] of a profile. All of these have times of their own for the backward pass.
constexpr const char *kLinear = "linear", *kAttention = "attention", *kNorm = "norm", *kRouter = "router",
                     *kTorchOp = "torch_op", *kCollective = "collective", *kExchange = "exchange",
                     *kFlexExchange = "flex_exchange", *kMessage = "message";

const char* host_kind_of(KernelClass cls) {
  switch (cls) {
    case KernelClass::gemm:
    case KernelClass::gemm_reduce:
      return kLinear;
    case KernelClass::attention_forward:
    case KernelClass::attention_backward:
    case KernelClass::attention_part:
      return kAttention;
    case KernelClass::norm_forward:
    case KernelClass::norm_backward:
      return kNorm;
    case KernelClass::router:
      return kRouter;
    case KernelClass::all_gather:
    case KernelClass::reduce_scatter:
    case KernelClass::all_reduce:
    case KernelClass::broadcast:
      return kCollective;
    case KernelClass::all_to_all:
      return kExchange;
    case KernelClass::dispatch:
    case KernelClass::combine:
    case KernelClass::dispatch_part:
      return kFlexExchange;
    case KernelClass::send_recv:
      return kMessage;
    default:
      return kTorchOp;
  }
}

// Kernels that one operation launches, one after the other.
struct Issued {
  Picoseconds at = 0;
  KernelClass cls = KernelClass::other;
  const char* kind = kTorchOp;
  bool is_backward = false, is_main = true;  // not main: a part before fused attention's backward kernel
  std::int32_t call = -1;
  std::int64_t kernels = 1;
};

// Returns whether a kernel is a further one of the operation.
bool continues(const Issued& issued, const Kernel& kernel) {
  if (kernel.launched == issued.at || (kernel.call >= 0 && kernel.call == issued.call)) return true;
  if (kernel.cls == KernelClass::gemm_reduce) return issued.kind == kLinear;
  if (issued.kind != kAttention) return false;
  return kernel.cls == KernelClass::attention_part ||
         (kernel.cls == KernelClass::attention_backward && !issued.is_main);
}

std::vector<Issued> issued_by(const std::vector<const Kernel*>& kernels) {
  std::vector<Issued> all;
  for (const Kernel* kernel : kernels) {
    if (!all.empty() && continues(all.back(), *kernel)) {
      ++all.back().kernels;
      all.back().is_main = true;
      continue;
    }
    all.push_back({kernel->launched, kernel->cls, host_kind_of(kernel->cls), kernel->side == trace::Side::backward,
                   kernel->cls != KernelClass::attention_part, kernel->call});
  }
  return all;
}

// Counts what has been launched and has not begun.
class Queue {
 public:
  explicit Queue(const std::vector<const Kernel*>& launched) {
    for (const Kernel* kernel : launched) {
      launches_.push_back(kernel->launched);
      starts_.push_back(kernel->start);
    }
    std::sort(starts_.begin(), starts_.end());
  }
  std::int64_t length_at(Picoseconds at) const {
    const auto before = [at](const std::vector<Picoseconds>& times) {
      return std::upper_bound(times.begin(), times.end(), at) - times.begin();
    };
    return before(launches_) - before(starts_);
  }

 private:
  std::vector<Picoseconds> launches_, starts_;  // in order
};

bool has_any(const std::vector<Picoseconds>& sorted, Picoseconds begin, Picoseconds end) {
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), begin);
  return first != sorted.end() && *first < end;
}

void add_overlap(const trace::RankTrace& trace, HostTimes& host) {
  std::vector<trace::Busy::Interval> computing;
  for (const Kernel& kernel : trace.kernels)
    if (!trace::is_communication(kernel.cls)) computing.push_back({kernel.start, kernel.end});
  const trace::Busy compute(std::move(computing));
  struct Calls {
    std::int64_t calls = 0;
    double us = 0, hidden_us = 0;
    std::vector<double> blocks;
    std::map<std::tuple<std::string, std::int64_t>, std::pair<std::vector<double>, std::vector<double>>> equal;
  };
  std::map<KernelClass, Calls> of_class;
  for (const Kernel& kernel : trace.kernels) {
    if (!trace::is_communication(kernel.cls)) continue;
    Calls& of = of_class[kernel.cls];
    const double us = to_us(kernel.length()), share = compute.share_of(kernel.start, kernel.end);
    ++of.calls;
    of.us += us;
    of.hidden_us += share * us;
    if (kernel.blocks > 0) of.blocks.push_back(double(kernel.blocks));
    if (kernel.message < 0) continue;
    const trace::Message& message = trace.messages[static_cast<std::size_t>(kernel.message)];
    auto& [alone, concurrent] = of.equal[{message.group, message.in_elements}];
    if (share >= trace::kConcurrent) concurrent.push_back(us);
    if (share <= 1 - trace::kConcurrent) alone.push_back(us);
  }
  for (const auto& [cls, of] : of_class) {
    double concurrent_us = 0, alone_us = 0;
    for (const auto& [key, lengths] : of.equal) {
      const auto& [alone, concurrent] = lengths;
      if (alone.empty() || concurrent.empty()) continue;
      concurrent_us += median(concurrent) * double(concurrent.size());
      alone_us += median(alone) * double(concurrent.size());
    }
    host.overlap.push_back({trace::name_of(cls), of.calls, of.us > 0 ? of.hidden_us / of.us : 0,
                            of.blocks.empty() ? 0 : median(of.blocks), alone_us > 0 ? concurrent_us / alone_us : 0});
  }
}

}  // namespace

HostTimes host_times(const trace::RankTrace& trace) {
  HostTimes host;
  host.steps = std::ssize(trace.marks);
  host.syncs = std::ssize(trace.syncs);
  add_overlap(trace, host);
  std::vector<const Kernel*> launched;
  for (const Kernel& kernel : trace.kernels)
    if (kernel.launched != trace::kNoTime) launched.push_back(&kernel);
  std::stable_sort(launched.begin(), launched.end(),
                   [](const Kernel* a, const Kernel* b) { return a->launched < b->launched; });
  const std::vector<Issued> issued = issued_by(launched);
  const Queue queue(launched);
  std::vector<Picoseconds> breaks = trace.syncs;
  for (const trace::StepMark& mark : trace.marks) breaks.push_back(mark.begin);
  std::sort(breaks.begin(), breaks.end());
  struct Gaps {
    std::vector<double> us;
    double kernels = 0;
  };
  std::map<std::pair<std::string_view, bool>, Gaps> gaps;
  for (std::size_t i = 0; i + 1 < issued.size(); ++i) {
    const Issued& one = issued[i];
    const Picoseconds next = issued[i + 1].at;
    if (has_any(breaks, one.at, next)) continue;
    if (queue.length_at(next) >= kFullQueue) {
      ++host.full;
      continue;
    }
    Gaps& of = gaps[{one.kind, one.is_backward}];
    of.us.push_back(to_us(next - one.at));
    of.kernels += double(one.kernels);
  }
  for (const auto& [key, of] : gaps)
    if (of.us.size() >= kFewestGaps)
      host.kinds.push_back({key.first.data(), key.second, std::ssize(of.us), median(of.us), percentile(of.us, 10),
                            percentile(of.us, 90), of.kernels / double(of.us.size())});
  if (launched.empty())
    host.unknown.push_back("times of the host: the trace has no launches (activities=[CPU, CUDA]; --trace cuda)");
  host.unknown.push_back("python: times are those of this run's CPU and release, factor included");
  host.unknown.push_back("layer, node, recompute, graph, micro_batch and step: no kernel is launched by these alone");
  host.unknown.push_back("grouped and cpp: products of experts have the names of other products, and count as linear");
  return host;
}

std::string host_text(const HostTimes& host, const std::string& source) {
  std::string text =
      "# Written by `stretto calibrate --import`: [host.us] of a profile (docs/profiles.md). Copy it into one, with\n"
      "# [host] python = { value = 1 }: these times have the factor of Python in them.\n\n[host.us]\n";
  for (const HostKindTime& of : host.kinds) {
    // A profile that has a backward pass's time has the forward pass's as well.
    const bool has_forward = std::any_of(host.kinds.begin(), host.kinds.end(), [&](const HostKindTime& other) {
      return std::string_view(other.kind) == of.kind && !other.is_backward;
    });
    if (!has_forward) continue;
    text += fmt::format("{}{} = {{ value = {:.4g}, low = {:.4g}, high = {:.4g}, kind = \"measured\", source = {} }}\n",
                        of.kind, of.is_backward ? "_backward" : "", of.us, of.low, of.high,
                        sim::toml_string(fmt::format("{}: {} gaps between launches, {:.3g} kernels an operation",
                                                     source, of.count, of.kernels)));
  }
  return text;
}

}  // namespace stretto::calibrate
