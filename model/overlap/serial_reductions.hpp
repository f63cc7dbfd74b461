#pragma once
#include "model/schedule/schedule.hpp"

namespace stretto {

// With one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS = 1) computation that is issued after a reduction of gradients
// over data-parallel ranks starts when the reduction ends; all-gathers run concurrently with it. This is an observation
// of frameworks' steps on GPUs, and no rule of CUDA: reduce-scatters are serialised and all-gathers are not in an nsys
// trace of verl-project/verl-omni#421, where 8 connections undo it, and NVIDIA/apex#1544, NVIDIA/nccl#2238,
// NVIDIA/Megatron-LM#1468 and alibaba/Megatron-LLaMA#26 report the same.
// Edges: a reduction of gradients → the next call that computes, in host issue order
void serialise_reductions(Schedule& schedule);

}  // namespace stretto
