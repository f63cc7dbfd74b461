#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/demand_class.hpp"

namespace stretto::sim {

// The resources that one operation takes from its device.
struct Demand {
  Picoseconds alone = 0;  // duration with the device to itself
  int cores = 0;          // cores held while it runs; 0 = none (host waits, GPU operations on an SM-shared device)
  DemandClass cls = DemandClass::memory;
  bool operator==(const Demand&) const = default;
};

// Interference between a communication kernel with its own thread blocks and concurrent compute: extra time as a share,
// by the class of the compute.
struct KernelInterference {
  std::array<double, kDemandClasses> slows{};   // slowdown of compute, while the kernel runs
  std::array<double, kDemandClasses> slowed{};  // slowdown of the kernel, while compute of the class runs
  bool operator==(const KernelInterference&) const = default;
};

// The load of one communication on the network and on every member's device. A collective is a ring: each member sends
// `edge_bytes` to the next, all edges at once, after `latency` (NCCL's α–β form, Hockney 1994; ring of Patarasuk & Yuan
// 2009: (n−1)/n · bytes per edge for all-gather and reduce-scatter, twice that for all-reduce). A message uses one
// edge, and its receiver moves the bytes.
struct CollectiveCost {
  Picoseconds latency = 0;
  std::int64_t edge_bytes = 0;
  // Data movement on each member's cores during the transfer, in `phases` phases with a rendezvous between them. The
  // collective completes when the transfer and every member's movement are complete.
  Demand movement;
  int phases = 1;
  // Cores held from start to end (resident_cores of the communicator). The movement runs on them, so movement.cores is
  // 0.
  int cores = 0;
  double most_bytes_per_s = 0;  // bandwidth of its channels; 0: only the link limits it
  // Set on a GPU, where the movement is a kernel that queues for no cores and is concurrent with compute: then `cores`
  // and movement.cores are 0.
  std::optional<KernelInterference> interference = {};
  bool operator==(const CollectiveCost&) const = default;
};

// System noise: time that other tenants of a virtual machine and daemons take from the cores. Bursts begin at random (a
// Poisson process) while an operation holds a core, and delay its end; each rank has its own bursts. Ranks that
// synchronise often lose the bursts of all of them, other ranks little more than their own (Petrini, Kerbyson, Pakin,
// SC'03; noise is injected as in Hoefler, Schneider, Lumsdaine, SC'10).
struct Disturbance {
  double share = 0;        // mean time lost / time worked; 0: no noise
  Picoseconds length = 0;  // mean length of a burst; lengths are distributed exponentially
  // true when the noise is a process that always wants the core, under a fair scheduler: time that this process had
  // while a lane slept, up to one burst, is not taken from the lane again.
  bool shares_by_time = false;
  bool operator==(const Disturbance&) const = default;
};

// The costs of a rank's operations, one entry for each template: costs do not depend on layer or micro-batch.
struct OpCosts {
  std::vector<Demand> compute;             // [OpId]; communication operations have alone = 0, cores = 0
  std::vector<CollectiveCost> collective;  // [OpId]; only communication operations are meaningful
  bool operator==(const OpCosts&) const = default;
};

// The process of a rank that issues its operations, in host issue order: no operation starts before it was issued. The
// process waits for the device at the end of every step (the loss is read). Empty: issuing costs nothing, as with CUDA
// graphs.
struct HostCosts {
  std::vector<Picoseconds> issue;  // [OpId]
  Picoseconds micro_batch = 0;     // time for each micro-batch, before its first operation
  Picoseconds step = 0;            // time for each step, before its first operation
  Picoseconds part = 0;            // time for each call of a part of a block, before its first operation
  Picoseconds parameter = 0;       // time for each parameter of the rank in a step, before its first operation
  // The process waits for every message that it receives on a lane that also sends (a batch of the pipeline), and for
  // the sends of the same group, before it issues another operation.
  bool waits_for_messages = false;
  // Operation → the operation for whose last instance the process waits before it issues this one: the dispatch of rows
  // needs their number on the host, which another operation has counted on the device.
  std::map<OpId, OpId> waits_before = {};
  // Before these the process waits for all computation that it has issued, as a check of gradients on the host does.
  std::set<OpId> waits_for_device_before = {};
  // Time after each of these two waits, before it issues anything else.
  Picoseconds sync = 0, device_sync = 0;
  bool operator==(const HostCosts&) const = default;
};

// All costs of one schedule on one platform that the engine needs. Made by sim/cost. The inherited OpCosts are for all
// ranks that are not in of_rank.
struct Costs : OpCosts {
  // The costs of stragglers, which simulate() separates from the ranks that they are folded with.
  std::map<std::int64_t, OpCosts> of_rank = {};
  const OpCosts& of(std::int64_t rank) const {
    const auto found = of_rank.empty() ? of_rank.end() : of_rank.find(rank);
    return found == of_rank.end() ? *this : found->second;
  }
  HostCosts host;
  double link_bytes_per_s = 0;  // rate of one member in one direction
  // [communicator] places from a member of a ring to the one that it sends to; empty: 1. On nodes of several members it
  // is their number: each sends by its own network card, to the member on the same rail of the next node.
  std::vector<std::int64_t> ring_distance = {};
  int cores_per_device = 0;     // 0 = cores are not limited
  Picoseconds op_overhead = 0;  // gap between two operations of one lane: issue, bookkeeping
  // delay from an event to the start of a lane that slept for it: another lane, a core, a rendezvous
  Picoseconds wake = 0;
  Picoseconds timer_overshoot = 0;  // delay of a lane that sleeps to a deadline
  // true: an operation that had to queue for a core starts `wake` after the core is granted (threads of a host). false:
  // it starts at once (kernels of a GPU queue in hardware).
  bool sleeps_for_cores = true;
  // While it runs, an operation of class a is slowed by each other running operation of class b on its device: rate = 1
  // / (1 + Σ_b slowdown[a][b] · min(1, number of b)). Measured with pairs (calibrate, interference probe). Each
  // communication kernel adds its CollectiveCost::interference.slows.
  std::array<std::array<double, kDemandClasses>, kDemandClasses> slowdown{};
  Disturbance disturbance;
  bool operator==(const Costs&) const = default;
};

// Makes a rank a straggler: its computation takes `factor` times as long as that of the others.
inline void set_apart(Costs& costs, std::int64_t rank, double factor) {
  OpCosts own = costs;
  for (Demand& demand : own.compute) demand.alone = std::llround(double(demand.alone) * factor);
  costs.of_rank[rank] = std::move(own);
}

}  // namespace stretto::sim
