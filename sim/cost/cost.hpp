#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::sim {

// What running work does to its neighbours on a device. Measured classes; slowdowns between them are in Costs.
//   vector  walks over activations, which caches mostly hold
//   memory  streams over parameters, gradients and optimizer state, which they do not; data movement of collectives
enum class DemandClass : std::uint8_t { gemm, attention, vector, memory };
constexpr int kDemandClasses = 4;

// What one operation asks of its device.
struct Demand {
  Picoseconds alone = 0;  // duration with the device to itself
  int cores = 0;          // cores held while it runs; 0 = none (host waits, GPU operations on an SM-shared device)
  DemandClass cls = DemandClass::memory;
};

// What a communication kernel on thread blocks of its own and the compute beside it do to each other, as shares of
// extra time, by the class of the compute.
struct KernelInterference {
  std::array<double, kDemandClasses> slows{};   // what compute takes longer while the kernel runs
  std::array<double, kDemandClasses> slowed{};  // what the kernel takes longer while compute of the class runs
};

// What one collective asks of the network, per member, and of every member's device. Ring: each member sends
// `edge_bytes` to the next, all edges at once, after `latency` (NCCL's α–β form, Hockney 1994; ring of Patarasuk & Yuan
// 2009: (n−1)/n · bytes per edge for all-gather and reduce-scatter, twice that for all-reduce). A message crosses one
// edge, and its receiver moves it.
struct CollectiveCost {
  Picoseconds latency = 0;
  std::int64_t edge_bytes = 0;
  // Data movement that runs on each member's cores during the transfer, in `phases` parts with a rendezvous between.
  // The collective is complete when both the transfer and every member's movement are.
  Demand movement;
  int phases = 1;
  // Cores held from start to end (resident_cores of the communicator), on which the movement then runs: its own are 0.
  int cores = 0;
  double most_bytes_per_s = 0;  // that its channels carry; 0: whatever the link does
  // On a GPU the movement is a kernel that queues for nothing and runs beside compute: `cores` of both are 0.
  std::optional<KernelInterference> interference = {};
};

// What others take from the cores: other tenants of a virtual machine, daemons. Bursts begin at random (a Poisson
// process) while an operation holds a core, and make it that much longer; each rank has its own. Ranks that meet often
// lose the bursts of all of them, ranks that meet seldom little more than their own (Petrini, Kerbyson, Pakin, SC'03;
// Hoefler, Schneider, Lumsdaine, SC'10, whose way of injecting noise into a simulation this is).
struct Disturbance {
  double share = 0;        // mean time lost over time worked; 0: nobody takes anything
  Picoseconds length = 0;  // mean of a burst; lengths are distributed exponentially
  // Who takes is hungry all the time and an operating system shares the core by time: what others had while a lane
  // slept, up to one burst, they do not take again.
  bool shares_by_time = false;
};

// What the operations of a rank cost, one entry for each template: costs do not depend on layer or micro-batch.
struct OpCosts {
  std::vector<Demand> compute;             // [OpId]; communication operations have alone = 0, cores = 0
  std::vector<CollectiveCost> collective;  // [OpId]; only communication operations are meaningful
};

// Everything the engine needs to know about one schedule on one platform. Made by sim/cost. The costs that it begins
// with are those of all ranks that are not in of_rank.
struct Costs : OpCosts {
  // Ranks that differ (stragglers); each must be simulated itself: fold_ranks() takes them as `apart`.
  std::map<std::int64_t, OpCosts> of_rank = {};
  const OpCosts& of(std::int64_t rank) const {
    const auto found = of_rank.empty() ? of_rank.end() : of_rank.find(rank);
    return found == of_rank.end() ? *this : found->second;
  }
  double link_bytes_per_s = 0;      // of one member, one direction
  int cores_per_device = 0;         // 0 = cores are not a resource
  Picoseconds op_overhead = 0;      // between two operations of one lane: issue, bookkeeping
  Picoseconds wake = 0;             // from an event to a lane that slept for it: another lane, a core, a rendezvous
  Picoseconds timer_overshoot = 0;  // how late a lane that sleeps to a deadline wakes
  // What queued for a core and gets it sleeps meanwhile and takes `wake` to start (a host's threads), or starts at once
  // (a GPU's kernels, which queue in hardware).
  bool sleeps_for_cores = true;
  // While it runs, an operation of class a is slowed by each other running operation of class b on its device:
  // rate = 1 / (1 + Σ_b slowdown[a][b] · min(1, number of b)). Measured with pairs (calibrate, interference probe).
  // Communication kernels (CollectiveCost::interference) add each what it `slows`.
  std::array<std::array<double, kDemandClasses>, kDemandClasses> slowdown{};
  Disturbance disturbance;
};

}  // namespace stretto::sim
