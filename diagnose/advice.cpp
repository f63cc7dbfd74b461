#include "diagnose/advice.hpp"

#include "report/prediction.hpp"

namespace stretto::diagnose {
namespace {

constexpr const char* kOtherLayout =
    "the schedule has no such communication: does the run have another layout than the scenario?";

std::string against_exposure(const std::optional<Coord>& axis) {
  if (!axis) return kOtherLayout;
  switch (*axis) {
    case Coord::dp:
      return "is the run's overlap on (--overlap-grad-reduce, --overlap-param-gather; FSDP: prefetching)? More, "
             "smaller buckets start earlier; measure the bus bandwidth of this group with nccl-tests";
    case Coord::tp:
      return "is the run's overlap on (--tp-comm-overlap), with CUDA_DEVICE_MAX_CONNECTIONS=1 where it needs that? Do "
             "all ranks of the group lie on one node?";
    case Coord::pp:
      return "is --overlap-p2p-communication on? Messages may share links with data parallelism: compare the rate with "
             "that of the network card";
    case Coord::cp:
      return "is attention long enough to hide the ring? Try cp_comm_type a2a within a node";
    default:
      return "is the dispatch overlapped (--overlap-moe-expert-parallel-comm)? Experts within a node, or DeepEP, send "
             "less over the network";
  }
}

// On a host the run is one of Stretto's own, on links of [cluster].
std::string against_exposure_on_host(const std::optional<Coord>& axis) {
  if (!axis) return kOtherLayout;
  const std::string knobs = *axis == Coord::dp   ? "overlap_grad_reduce, overlap_param_gather"
                            : *axis == Coord::tp ? "tp_comm_overlap"
                            : *axis == Coord::pp ? "overlap_p2p_comm"
                            : *axis == Coord::cp ? "cp_comm_type"
                                                 : "overlap_moe_expert_parallel_comm";
  return "are the knobs of [overlap] that hide it on (" + knobs +
         ")? The link is that of [cluster], link_GBps and link_latency_us; threads that move bytes need a core, so "
         "fewer ranks on the cores may help";
}

std::string against_straggler(const Gap& gap, bool on_gpu) {
  if (!gap.is_of_rank)
    return "ranks of this group arrive at different times: diagnose a folder with the traces of all of them, and the "
           "late one is named";
  return on_gpu ? "look at this rank's clocks, temperature and neighbours; exchange the GPU with another one's"
                : "another program may have held this rank's core: run it again on a quiet machine";
}

}  // namespace

std::string advice_for(const Gap& gap, const Schedule& schedule, bool on_gpu) {
  if (gap.gap_ms <= 0) return "";
  switch (gap.cause) {
    case Cause::slower_kernel:
      return on_gpu ? "compare clocks and power with the platform's (nvidia-smi -q -d CLOCK,POWER); another kernel or "
                      "backend may have been chosen (shapes that 8 does not divide, a fallback of attention). `stretto "
                      "calibrate --import` takes these times"
                    : "the cores were slower than at calibration, or shared with other programs: `stretto compare` "
                      "measures both, and `stretto calibrate` measures this machine again";
    case Cause::exposed_communication: {
      std::optional<Coord> axis;
      if (gap.communicator != kNoCommunicator) axis = axis_of(schedule.communicators[gap.communicator].axes);
      return on_gpu ? against_exposure(axis) : against_exposure_on_host(axis);
    }
    case Cause::waiting_for_host:
      return on_gpu ? "CUDA graphs or torch.compile; no .item(), print or logging in a step; a profile with a larger "
                      "host cost predicts it (`profile`)"
                    : "fewer and larger operations: each costs op_overhead_us of the platform file";
    case Cause::straggler:
      return against_straggler(gap, on_gpu);
    case Cause::unscheduled_kernel:
      return "fuse or remove it; where it belongs to the framework, a profile may count it";
    case Cause::moved_kernel:
    case Cause::missing_kernel:
      return "";
    case Cause::waiting_for_cores:
      return "fewer ranks or channels on one device";
  }
  return "";
}

}  // namespace stretto::diagnose
