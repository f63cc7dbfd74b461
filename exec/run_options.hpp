#pragma once
#include "model/scenario.hpp"

namespace stretto::launch {
class ProcessGroup;
}

namespace stretto::exec {

// How a schedule is run on any device.
struct RunOptions {
  // rate of each rank's link, in each direction, to which communication is paced; 0 = not paced
  double link_GBps = 0;
  double link_latency_us = 0;  // latency of one step of a ring
  double channel_GBps = 0;     // host: rate of each channel of a communicator on the `sm` engine; 0 = no limit
  // a host's lane that waits this long for another fails all ranks, and so does a GPU's step
  double timeout_s = 60;
  bool graphs = true;                   // GPU: steps after the first are CUDA graphs
  bool nccl_ub = false;                 // GPUs with one rank each: buffers of collectives are registered with NCCL
  bool cudnn_attention_dropout = true;  // GPU: attention's dropout by cuDNN's masks, where it has plans
  // Set where every rank is a process of its own: this process runs the group's rank, and has no memory of the others.
  // On a host, communication then goes over TCP and takes TCP's time: links are not imitated. On GPUs each process has
  // the device with its number on its machine, and communication is NCCL's. Must outlive the executor.
  launch::ProcessGroup* processes = nullptr;
};

// Returns the scenario's options, for all ranks in this process.
inline RunOptions run_options(const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  return {cluster.link_GBps,
          cluster.link_latency_us,
          cluster.channel_GBps,
          scenario.training.timeout_s,
          scenario.training.enable_cuda_graph,
          cluster.nccl_ub,
          scenario.training.cudnn_attention_dropout};
}

}  // namespace stretto::exec
