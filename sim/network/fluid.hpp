#pragma once
#include "sim/network/network.hpp"

namespace stretto::sim {

// The closed form: every edge has a link of its own, so a transfer takes edge_bytes / link rate whatever else is
// active. start() returns the end of the transfer. It throws Error(input) when the end exceeds 64 bits of picoseconds.
class FluidNetwork : public NetworkModel {
 public:
  // `link_bytes_per_s` is the rate of every link. A transfer is slower when its own most_bytes_per_s is lower.
  explicit FluidNetwork(double link_bytes_per_s) : link_bytes_per_s_(link_bytes_per_s) {}
  std::optional<Picoseconds> start(std::uint32_t transfer, std::uint32_t group, std::int64_t edge_bytes,
                                   double most_bytes_per_s, Picoseconds begin) override;
  bool is_closed_form() const override { return true; }
  void run(TimedCore& core) override;

 private:
  double link_bytes_per_s_;
};

}  // namespace stretto::sim
