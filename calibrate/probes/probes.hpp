#pragma once
#include <functional>
#include <memory>
#include <string>
#include <span>
#include <vector>

#include "calibrate/fit/linear_fit.hpp"
#include "calibrate/probes/run.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

class Notebook;

// Probes are Schedules: built here, verified, run by the executor that runs everything else, timed by a Timeline. Each
// file holds one probe; a new one is a file and a line in calibrate.cpp.

// Whole training steps of small models of many shapes: GEMMs, attention, memory-bound operations and the optimizer as
// they occur, after their real predecessors and with the caches as these leave them. All shapes run in turns, so that a
// slow moment of the machine affects one repeat of each and not all repeats of one. One sample per operation template
// and shape: the median over instances, ranks and repeats.
struct StepSamples {
  std::vector<Sample> alone;                   // one rank, with no other activity
  std::vector<Sample> filled;                  // a few of the shapes with as many ranks as cores; empty with one core
  std::vector<Sample> shared;                  // these shapes with twice as many ranks as cores
  Quantity sgemm_GFLOPs, sgemm_filled_GFLOPs;  // rate of one core: alone, and with all cores busy
  double lost_share = 0;                       // time that others took meanwhile / time computed (sim::Disturbance)
};
// `machine_of` returns this machine with the given number of its cores. Turns that `notebook` has are not run again.
// `progress` is called before every step.
using MachineOf = std::function<Machine(int cores)>;
StepSamples probe_steps(const MachineOf& machine_of, int cores, Notebook& notebook,
                        const std::function<void(const std::string&)>& progress);

// Returns the accesses of one collective: in place in `buffer` where its kind can be, otherwise from `buffer` to
// `other`. The communicator is that of Coord::dp.
std::vector<Access> collective_accesses(const Schedule& schedule, CollectiveKind kind, std::int64_t members,
                                        TensorId buffer, TensorId other);
// Returns a schedule of a fill, then one collective of each size, repeated. With `ctas` there is one communicator for
// each number of thread blocks, and the sequence runs once with each.
Schedule collective_schedule(CollectiveKind kind, Dtype dtype, std::int64_t members,
                             const std::vector<std::int64_t>& sizes, const std::vector<int>& ctas);

// Measures collectives over sizes and group sizes on links that are not paced: the cost of moving the bytes for a core.
std::vector<Sample> probe_collectives(const Machine& machine, int cores, double wake_us);

struct Overheads {
  Quantity op_overhead_us, wake_us, timer_overshoot_us;
};
// Measures a chain of empty operations, two lanes that wait for each other in turn, and a collective on a slow link.
Overheads probe_overheads(const Machine& machine);

// The operation that represents each class in the probes of pairs.
struct ClassOperations {
  Gemm gemm;
  Attention attention;
  std::int64_t rows = 0, cols = 0;  // of the gelu that represents class vector
  std::int64_t elements = 0;        // of the f32 fill that represents class memory
  Dtype dtype = Dtype::f32;
};
// Adds the class's operation on buffers of its own and returns its block. Its inputs are parameters, so that
// fill_randomly() fills them.
BlockId add_class_operation(Schedule& schedule, sim::DemandClass cls, const ClassOperations& operations, LaneId lane,
                            const std::string& name);

using Pairs = std::array<std::array<Quantity, sim::kDemandClasses>, sim::kDemandClasses>;

// Two compute lanes of one rank, joined by a start→start edge; one class of operation is timed while the other is
// concurrent. slowdown[a][b] = time of a concurrent with b / time of a alone − 1. With fewer than 2 cores the values
// are zero, marked as assumed. The diagonal is left to the training steps, where ranks run equal operations at one
// time.
Pairs probe_interference(const Machine& machine, int cores);
// Measures the pairs on a GPU, including the diagonal. `alone_us` [class] are the operations' times alone, from
// probe_classes().
Pairs probe_streams(const Machine& machine, const ClassOperations& operations,
                    const std::array<double, sim::kDemandClasses>& alone_us);
std::array<double, sim::kDemandClasses> probe_classes(const Machine& machine, const ClassOperations& operations);

// sgemm 1024³ on `ranks` ranks at once, one thread each: the speed of the cores at this moment. On a shared machine
// that changes by tens of percent within seconds, so `calibrate` and `compare` both run it between their steps, in the
// same turns, and a prediction is made for the speed that the cores had while the step was measured.
class SgemmYardstick {
 public:
  SgemmYardstick(int ranks, int cores);
  ~SgemmYardstick();
  // Returns the rate of one core: the mean over ranks of the fastest of a few repeats, in about 0.1 s. The fastest is
  // taken because another probe measures the bursts that neighbours take.
  double run_GFLOPs();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A shorter jump of a core's clock is the system's own timer, which affects every other measurement too.
constexpr double kShortestBurst_us = 200;
// Measures the time that others take from `cores` cores at this moment: threads that only read the clock, and see it
// jump (the fixed-work and selfish-detour benchmarks: Petrini et al., SC'03; Beckman et al., Cluster 2006).
class DetourProbe {
 public:
  // Uses at most as many threads as there are cores here: threads on one core would take it from each other.
  explicit DetourProbe(int cores);

  struct Sample {
    double watched_us = 0, lost_us = 0, squared_us2 = 0;
    Sample& operator+=(const Sample& more);
  };
  Sample run() const;  // takes some 20 ms

 private:
  int threads_;
};

// Returns what others take, of one sample a turn. The share is the median turn's: measured steps are medians over the
// turns, which others that compute in fewer than half of them do not lengthen. The mean length is over all jumps.
sim::Disturbance disturbance_of(std::span<const DetourProbe::Sample> turns);

}  // namespace stretto::calibrate
