#pragma once
#include "model/scenario.hpp"

namespace stretto::launch {
class ProcessGroup;
}

namespace stretto::exec {

// How a schedule is run, on whatever device.
struct RunOptions {
  double link_GBps = 0;        // each rank's link, each direction, that communication is paced to; 0 = not paced
  double link_latency_us = 0;  // of one step of a ring
  double channel_GBps = 0;     // host: what each channel of a communicator on the `sm` engine carries; 0 = no limit
  double timeout_s = 60;       // a host's lane that waits this long for another gives up for all, so does a GPU's step
  bool graphs = true;          // GPU: steps after the first are CUDA graphs
  bool nccl_ub = false;        // between GPUs of a rank each: buffers of collectives are registered with NCCL
  bool cudnn_attention_dropout = true;  // GPU: attention's dropout by cuDNN's masks, where it has plans
  // Where every rank is a process of its own: this one's is the group's, and the others' memory is not here. On a host,
  // communication then goes over TCP and takes what that takes: links are not imitated. On GPUs each has the device of
  // its number on its machine, and communication is NCCL's. Must outlive the executor.
  launch::ProcessGroup* processes = nullptr;
};

// As a scenario says, all ranks in this process.
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
