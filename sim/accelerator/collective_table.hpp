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

// Time of a collective, as nccl-tests prints it: back to back, without launch, event wait and skew of ranks.
struct CollectiveTime {
  CollectiveKind kind = CollectiveKind::all_reduce;
  GroupSpan span;
  double bytes = 0;  // bytes of the whole buffer
  double us = 0;
};

// How links differ from those on which times were measured: a rate, and a latency, over theirs.
struct LinkChange {
  double rate = 1, latency = 1;
  bool operator==(const LinkChange&) const = default;
};

// Measured times of collectives, within an NVLink domain and across several domains.
//
// Between sizes, time is linear in bytes: the latency and the bandwidth of one NCCL protocol.
class CollectiveTable {
 public:
  CollectiveTable() = default;  // an empty table
  // Several times of one size count as their geometric mean.
  explicit CollectiveTable(const std::vector<CollectiveTime>& times);
  // Parses a CSV file with the columns op ("all_gather", …), gpus, bytes and time_us, and optionally nodes (1); other
  // columns and rows of other operations are ignored. Throws Error(input) with `name` and the line.
  static CollectiveTable parse(const std::string& text, const std::string& name);

  bool empty() const { return within_.empty() && across_.empty(); }
  std::vector<CollectiveTime> times() const;  // sorted by kind, ranks of a node, nodes and bytes
  std::string text() const;                   // the text that parse() reads; times have five digits

  // Returns a time within a domain. Below the smallest size the time is the smallest's, above the largest the bandwidth
  // stays. Between numbers of GPUs, logarithms are interpolated; above the largest, latency grows with the steps and
  // the bus bandwidth stays. The table must have the kind. On other links the shortest time of a series, which is its
  // latency, changes with the latency, and what a size takes beyond it changes with the rate.
  double time_us(CollectiveKind kind, std::int64_t gpus, double bytes, const LinkChange& links = {}) const;
  bool has(CollectiveKind kind) const { return within_.contains(kind); }
  std::int64_t most_gpus(CollectiveKind kind) const;  // the largest number within a domain; 0: none
  // Returns the bus bandwidth of the largest size on the most GPUs, in GB/s, as nccl-tests defines it.
  double bus_GBps(CollectiveKind kind, const LinkChange& links = {}) const;

  // Returns a time across domains, between the nearest measured numbers of nodes with as many members on each;
  // logarithms are interpolated. Outside the measured sizes, and on other links than the measured ones, the time
  // changes as the model does: `model` and `measured_model` are functions of bytes, on these links and on the measured
  // ones; null: the links are the measured ones. nullopt where the span is not between measured ones.
  using Model = std::function<double(double)>;
  std::optional<double> across_us(CollectiveKind kind, const GroupSpan& span, double bytes, const Model& model,
                                  const Model& measured_model = nullptr) const;

 private:
  using Points = std::vector<std::pair<double, double>>;  // (bytes, µs), in ascending order of bytes
  using Sizes = std::map<std::int64_t, Points>;           // [GPUs]
  std::map<CollectiveKind, Sizes> within_;
  std::map<std::pair<CollectiveKind, std::int64_t>, Sizes> across_;  // [kind and members of a node]
};

// Returns the bytes over an edge of a ring as a share of the buffer; the bus bandwidth of nccl-tests is bytes / time
// times this share.
double ring_share(CollectiveKind kind, std::int64_t gpus);

// Returns the kind with this name in nccl-tests ("all_gather"); nullopt for other names.
std::optional<CollectiveKind> collective_named(std::string_view name);

}  // namespace stretto::sim
