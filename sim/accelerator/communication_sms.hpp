#pragma once
#include "base/quantity.hpp"

namespace stretto::sim {

// SMs that communication kernels hold while they run, by engine: a kernel's thread blocks (CTAs, NCCL's channels) share
// no SM with computation (NVIDIA/nccl#1656, #689). Copy engines hold none. 0: not known, and the factors of
// BesideCommunication count.
struct CommunicationSms {
  Quantity ring;         // collectives within a domain
  Quantity nvls;         // all-reduces whose sums the domain's switches make (Accelerator::multicast)
  Quantity ring_across;  // collectives across domains that use all cards of each; of fewer cards in proportion
  Quantity exchange;     // rows of experts by NCCL's all-to-all
  Quantity message;      // a send and a receive
  Quantity deepep, hybridep;
  bool is_known() const { return ring.value > 0; }
};

}  // namespace stretto::sim
