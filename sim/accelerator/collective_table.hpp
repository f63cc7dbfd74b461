#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/schedule/work.hpp"
#include "sim/accelerator/nccl_model.hpp"

namespace stretto::sim {

// Time of a collective, as nccl-tests prints it: back to back, so without launch, event wait and skew of ranks.
struct CollectiveTime {
  CollectiveKind kind = CollectiveKind::all_reduce;
  GroupSpan span;
  double bytes = 0;  // of the whole buffer
  double us = 0;
};

// Measured times of collectives, within an NVLink domain and across several.
//
// Between sizes, time is linear in bytes: the latency and the bandwidth of one NCCL protocol.
class CollectiveTable {
 public:
  CollectiveTable() = default;  // empty
  // The geometric mean of several times of one size counts.
  explicit CollectiveTable(const std::vector<CollectiveTime>& times);
  // Text of a CSV file with the columns op ("all_gather", …), gpus, bytes and time_us, and maybe nodes (1); others are
  // ignored, and so are rows of other operations. Throws Error(input) with `name` and the line.
  static CollectiveTable parse(const std::string& text, const std::string& name);

  bool empty() const { return within_.empty() && across_.empty(); }
  std::vector<CollectiveTime> times() const;  // by kind, ranks of a node, nodes and bytes
  std::string text() const;                   // as parse() takes it; times have five digits

  // Within a domain. Below the smallest size the time is the smallest's, above the largest the bandwidth stays. Between
  // numbers of GPUs, logarithms are interpolated; above the largest, latency grows with the steps and the bus bandwidth
  // stays. The table must have the kind.
  double time_us(CollectiveKind kind, std::int64_t gpus, double bytes) const;
  bool has(CollectiveKind kind) const { return within_.contains(kind); }
  std::int64_t most_gpus(CollectiveKind kind) const;  // within a domain; 0: none
  // The bus bandwidth of the largest size on the most GPUs, in GB/s, as nccl-tests defines it.
  double bus_GBps(CollectiveKind kind) const;

  // Across domains, between the nearest measured numbers of nodes with as many members on each; logarithms are
  // interpolated. Outside the measured sizes the time changes as `model` does, a function of bytes. nullopt where the
  // span is not between measured ones.
  std::optional<double> across_us(CollectiveKind kind, const GroupSpan& span, double bytes,
                                  const std::function<double(double)>& model) const;

 private:
  using Points = std::vector<std::pair<double, double>>;  // bytes, µs; bytes rise
  using Sizes = std::map<std::int64_t, Points>;           // by GPUs
  std::map<CollectiveKind, Sizes> within_;
  std::map<std::pair<CollectiveKind, std::int64_t>, Sizes> across_;  // by kind and members of a node
};

// Bytes over an edge of a ring, as a share of the buffer: the bus bandwidth of nccl-tests is bytes / time times it.
double ring_share(CollectiveKind kind, std::int64_t gpus);

// The kind that nccl-tests calls so ("all_gather"); nullopt for others.
std::optional<CollectiveKind> collective_named(std::string_view name);

}  // namespace stretto::sim
