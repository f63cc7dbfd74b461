#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/schedule/work.hpp"

namespace stretto::sim {

// Published times of collectives among GPUs of one NVLink domain, as nccl-tests prints them: back to back, so without
// launch, event wait and skew of ranks.
class CollectiveTable {
 public:
  // Text of a CSV file with the columns op ("all_gather", …), gpus, bytes (of the whole buffer) and time_us; others are
  // ignored, and so are rows of other operations. Of several times of one size the geometric mean counts. Throws
  // Error(input) with `name` and the line.
  static CollectiveTable parse(const std::string& text, const std::string& name);

  bool empty() const { return series_.empty(); }
  // Between sizes, time is interpolated linearly in logarithms of both; below the smallest it is the smallest's, above
  // the largest the bandwidth stays. Between numbers of GPUs likewise; above the largest, latency grows with the steps
  // and the bus bandwidth stays. The table must have the kind.
  double time_us(CollectiveKind kind, std::int64_t gpus, double bytes) const;
  bool has(CollectiveKind kind) const { return series_.contains(kind); }
  // The bus bandwidth of the largest size on the most GPUs, in GB/s, as nccl-tests defines it.
  double bus_GBps(CollectiveKind kind) const;

 private:
  using Points = std::vector<std::pair<double, double>>;  // log bytes, log µs; rising
  std::map<CollectiveKind, std::map<std::int64_t, Points>> series_;
};

}  // namespace stretto::sim
