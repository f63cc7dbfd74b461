#include "diagnose/advice.hpp"

#include "report/prediction.hpp"

namespace stretto::diagnose {
namespace {

// Returns the axis of a communication by the name of its gap, "dp reduce_scatter".
std::optional<Coord> axis_of_name(const std::string& name, const Schedule& schedule) {
  std::optional<Coord> axis;
  std::size_t longest = 0;
  for (const Communicator& communicator : schedule.communicators)
    if (name.find(communicator.name + " ") != std::string::npos && communicator.name.size() > longest) {
      longest = communicator.name.size();
      axis = axis_of(communicator.axes);
    }
  return axis;
}

std::string against_exposure(const std::optional<Coord>& axis) {
  if (!axis) return "the schedule has no such communication: does the run have another layout than the scenario?";
  switch (*axis) {
    case Coord::dp:
      return "is the run's overlap on (--overlap-grad-reduce, --overlap-param-gather; FSDP: prefetching)? More, "
             "smaller "
             "buckets start earlier; measure the bus bandwidth of this group with nccl-tests";
    case Coord::tp:
      return "is the run's overlap on (--tp-comm-overlap), with CUDA_DEVICE_MAX_CONNECTIONS=1 where it needs that? Do "
             "all "
             "ranks of the group lie on one node?";
    case Coord::pp:
      return "is --overlap-p2p-communication on? Messages may share links with data parallelism: compare the rate with "
             "that of the network card";
    case Coord::cp:
      return "is attention long enough to hide the ring? Try cp_comm_type a2a within a node";
    default:
      return "is the dispatch overlapped (--overlap-moe-expert-parallel-comm)? Experts within a node, or DeepEP, send "
             "less "
             "over the network";
  }
}

}  // namespace

std::string advice_for(const Gap& gap, const Schedule& schedule) {
  if (gap.gap_ms <= 0) return "";
  switch (gap.cause) {
    case Cause::slower_kernel:
      return "compare clocks and power with the platform's (nvidia-smi -q -d CLOCK,POWER); another kernel or backend "
             "may "
             "have been chosen (shapes that 8 does not divide, a fallback of attention). `stretto calibrate --import` "
             "takes "
             "these times";
    case Cause::exposed_communication:
      return against_exposure(axis_of_name(gap.name, schedule));
    case Cause::waiting_for_host:
      return "CUDA graphs or torch.compile; no .item(), print or logging in a step; a profile with a larger host cost "
             "predicts it (`profile`)";
    case Cause::straggler:
      return gap.name.starts_with("rank ")
                 ? "look at this rank's clocks, temperature and neighbours; exchange the GPU with another one's"
                 : "ranks of this group arrive at different times: diagnose a folder with the traces of all of them, "
                   "and "
                   "the late one is named";
    case Cause::unscheduled_kernel:
      return "fuse or remove it; where it belongs to the framework, a profile may count it";
    case Cause::missing_kernel:
      return "";
    case Cause::waiting_for_cores:
      return "fewer ranks or channels on one device";
  }
  return "";
}

}  // namespace stretto::diagnose
