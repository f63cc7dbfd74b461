#pragma once
#include <vector>

#include "model/framework.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/accelerator/accelerator.hpp"
#include "sim/accelerator/group_span.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/cost/cost.hpp"

namespace stretto::sim {

// Returns the time of a product of `tiles` on a card that lacks `taken` of its SMs, over its time on all: whole waves
// of tiles, one an SM. Exactly 2 for 132 tiles on 132 SMs when 24 of them are taken.
double waves_on_fewer(double tiles, double sms, double taken);

// Returns the SMs that a communication kernel holds (CommunicationSms). `sent_bytes`: of a member. A collective has a
// channel fewer for each 40 KiB that it lacks (64 bytes for each of 640 threads: NVIDIA/nccl@5067397c,
// src/enqueue.cc:2093, src/include/comm.h:51).
double sms_of(const Accelerator& accelerator, const Communicator& communicator, const Work& work, const GroupSpan& span,
              double sent_bytes);

// Interference between communication kernels and the computation of one schedule. A kernel of S SMs and h bytes a
// second of the memory's traffic lengthens
//
//   products       by whole waves on the SMs that are left, in the mean over the products of the schedule's layers by
//                  their time: which of them runs with which communication is not asked
//   attention      by sms / (sms − S)
//   other kernels  by 1 / (1 − h / the memory's rate); h is 2 bytes a byte that is sent, 3 where it is reduced
//
// all at most as if half of the card were taken, and each loss times BesideCommunication::loss. Communication itself
// takes BesideCommunication::communication times as long. Eleven components (GEMMs on A100, H100, H200 and V100,
// attention, element-wise kernels, FSDP and DDP steps) have a mean |ln(predicted / measured)| of 0.19 by this and of
// 0.25 by one factor of 1.19. Where the platform does not know SMs, or has measured a factor, the factor counts.
class ConcurrentKernels {
 public:
  ConcurrentKernels(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                    KernelChoices choices);
  // `us`: the time of the kernel alone.
  KernelInterference of(const Work& work, const GroupSpan& span, double sent_bytes, double us) const;
  // `taken`: SMs that the kernel holds.
  KernelInterference of(double taken, double memory_GBps) const;

 private:
  struct Product {
    double tiles, us;
  };
  const Accelerator& accelerator_;  // borrowed, as the schedule
  const Schedule& schedule_;
  std::vector<Product> products_;
};

// One engine of communication, and what kernels that run with it take over their time alone, where it holds all of its
// SMs and moves bytes at the rate of its link.
struct EnginePrice {
  const char* engine;           // "ring within a domain"
  Quantity sms;                 // of its kernel
  double one_wave, many_waves;  // products of as many tiles as the card has SMs, and of a hundred times as many
  double attention, memory_bound;
  double itself;  // the communication, concurrent with any of these
};
// Returns all engines, and copy engines; {} where the platform does not know SMs.
std::vector<EnginePrice> engine_prices(const Accelerator& accelerator);

}  // namespace stretto::sim
