#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/fit/linear_fit.hpp"
#include "calibrate/probes/run.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

class Notebook;

// Probes are Schedules: built here, verified, run by the same executor as everything else, timed by the same Timeline.
// Each file holds one probe; adding one is a file and a line in calibrate.cpp.

// Whole training steps of small models of many shapes: GEMMs, attention, memory-bound operations and the optimizer as
// they occur, behind the operations that really precede them and with the caches as these leave them. All shapes run in
// turns, so that a slow moment of the machine touches one repeat of each and not all repeats of one. One sample per
// operation template and shape: the median over instances, ranks and repeats.
struct StepSamples {
  std::vector<Sample> alone;                   // one rank, nothing beside it
  std::vector<Sample> filled;                  // a few of the shapes with as many ranks as cores; empty with one core
  std::vector<Sample> shared;                  // the same with twice as many ranks as cores
  Quantity sgemm_GFLOPs, sgemm_filled_GFLOPs;  // of one core: alone, and with all cores busy
  double lost_share = 0;                       // what others took meanwhile, of what was computed (sim::Disturbance)
};
// `machine_of` makes this machine with so many of its cores. Turns that `notebook` has are not run again. `progress` is
// called before every step.
using MachineOf = std::function<Machine(int cores)>;
StepSamples probe_steps(const MachineOf& machine_of, int cores, Notebook& notebook,
                        const std::function<void(const std::string&)>& progress);

// What one collective reads and writes: in place in `buffer` where its kind can be, otherwise from `buffer` to `other`.
// The communicator is that of Coord::dp.
std::vector<Access> collective_accesses(const Schedule& schedule, CollectiveKind kind, std::int64_t members,
                                        TensorId buffer, TensorId other);
// Fill, then one collective of each size, over and over. With `ctas` it is done once with each number of thread blocks,
// by as many communicators.
Schedule collective_schedule(CollectiveKind kind, Dtype dtype, std::int64_t members,
                             const std::vector<std::int64_t>& sizes, const std::vector<int>& ctas);

// Collectives over sizes and group sizes on links that are not paced: what moving the bytes costs a core.
std::vector<Sample> probe_collectives(const Machine& machine, int cores, double wake_us);

struct Overheads {
  Quantity op_overhead_us, wake_us, timer_overshoot_us;
};
// A chain of empty operations, two lanes that wait for each other in turn, a collective on a slow link.
Overheads probe_overheads(const Machine& machine);

// What each class of operation is in the probes of pairs.
struct ClassOperations {
  Gemm gemm;
  Attention attention;
  std::int64_t rows = 0, cols = 0;  // of the gelu that stands for vector
  std::int64_t elements = 0;        // of the f32 fill that stands for memory
  Dtype dtype = Dtype::f32;
};
// Adds the class's operation on buffers of its own and returns its block. What it reads are parameters, for
// fill_randomly().
BlockId add_class_operation(Schedule& schedule, sim::DemandClass cls, const ClassOperations& operations, LaneId lane,
                            const std::string& name);

using Pairs = std::array<std::array<Quantity, sim::kDemandClasses>, sim::kDemandClasses>;

// Two compute lanes of one rank, joined by a start→start edge; one class of operation timed while the other runs beside
// it. slowdown[a][b] = time of a beside b / time of a alone − 1. Zero, and said to be assumed, with fewer than 2 cores.
// The diagonal is left to the training steps, where ranks run the same operations at the same time.
Pairs probe_interference(const Machine& machine, int cores);
// The same on a GPU, diagonal included. `alone_us` [class] is what the operations take alone, from probe_classes().
Pairs probe_streams(const Machine& machine, const ClassOperations& operations,
                    const std::array<double, sim::kDemandClasses>& alone_us);
std::array<double, sim::kDemandClasses> probe_classes(const Machine& machine, const ClassOperations& operations);

// sgemm 1024³ on `ranks` ranks at once, one thread each: how fast the cores are at this moment. On a shared machine
// that moves by tens of percent within seconds, so `calibrate` and `compare` both run it between their steps, in the
// same turns, and a prediction is made for the speed that the cores had while the step was measured.
class SgemmYardstick {
 public:
  SgemmYardstick(int ranks, int cores);
  ~SgemmYardstick();
  // Of one core: mean over ranks of the fastest of a few repeats, about 0.1 s. The fastest, because what neighbours
  // take in bursts is another probe's.
  double run_GFLOPs();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Jumps of a core's clock below this are the system's own timer, and in every other measurement too.
constexpr double kShortestBurst_us = 200;
// What others take from `cores` cores at this moment: threads that do nothing but read the clock, and see it jump (the
// fixed-work and selfish-detour benchmarks: Petrini et al., SC'03; Beckman et al., Cluster 2006).
class DetourProbe {
 public:
  // On no more threads than there are cores here: those of one core would take it from each other.
  explicit DetourProbe(int cores);

  struct Sample {
    double watched_us = 0, lost_us = 0, squared_us2 = 0;
  };
  Sample run() const;  // some 20 ms
  void add(const Sample& sample);
  sim::Disturbance disturbance() const;  // over all samples that were added

 private:
  int threads_;
  Sample sum_;
};

}  // namespace stretto::calibrate
