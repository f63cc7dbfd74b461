#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/quantity.hpp"
#include "sim/accelerator/collective_table.hpp"
#include "sim/accelerator/gemm_table.hpp"

namespace stretto::sim {

// A generation of attention kernels. Rates count 4 · batch · heads · s² · d for forward and 2.5 times that for
// backward, without the half that a causal mask saves, as kernels' authors do; they are of causal attention.
struct AttentionKernel {
  std::string name;  // "flash2", "cudnn"
  Quantity forward_TFLOPs, backward_TFLOPs;
  // Rows of scores that a thread block works on: a head has seq / rows of them, and the last one, which sees all keys,
  // is the shortest time that attention takes.
  int forward_rows = 128, backward_rows = 128;
  // Keys that a row sees at which half of the rate is reached: with s of them it is s / (s + half_rate_keys) of it.
  double half_rate_keys = 0;
  // What the rates were measured with: elements of a head, and at most so many keys.
  std::int64_t head_dim = 128, most_keys = 16384;
};

// A level of the network. A domain has NVLink between all of its GPUs; the network connects domains.
struct LinkLevel {
  Quantity GBps;  // of a GPU, one direction
  Quantity latency_us;
};

// Time of a kernel that runs beside NCCL's, over its time alone: they share SMs, caches and the memory's rate.
struct BesideCommunication {
  Quantity gemm, attention, memory_bound;  // kernels of compute
  Quantity communication;                  // NCCL's, beside any of them
};

// A GPU of a cluster, as its data sheet and published measurements describe it: what a calibration has not measured is
// derived from it, by the models of sim/accelerator. Every number has a source.
struct Accelerator {
  int sms = 0;
  Quantity peak_TFLOPs;  // dense bf16: what MFU counts against
  Quantity hbm_GBps;

  GemmTable gemms;          // empty: the roofline of gemm_share and hbm_share
  Source gemm_source;       // of that table
  bool gemm_waves = false;  // GemmTable::time_us takes whole waves into account
  Quantity gemm_sustained;  // time in a training step over that in the table, which throttles nothing
  // Time of a GEMM over an aligned one, where rows of an operand have an odd number of elements, and where they have an
  // even one that 8 does not divide.
  Quantity gemm_odd, gemm_unaligned;
  Quantity gemm_share;                     // of the peak, where there is no table
  Quantity hbm_share;                      // of the memory's rate that a kernel reaches that streams
  Quantity kernel_us;                      // from the end of a short kernel to the start of the next, and its ramp
  Quantity bmm_share;                      // of the peak that the batched products of unfused attention reach
  std::vector<AttentionKernel> attention;  // the first is the default

  CollectiveTable collectives;     // empty: the ring's closed form, and NCCL's model
  Source collective_source;        // of that table
  Quantity collective_in_step_us;  // that a collective in a step takes beyond one of many back to back
  std::int64_t domain = 8;         // GPUs of an NVLink domain
  bool multicast = false;          // its switches add up and copy to many (NVLink SHARP)
  LinkLevel nvlink, network;
  Quantity network_share;          // of the cards' rate that collectives reach
  std::int64_t network_cards = 8;  // of a domain, GBps each; GPUs share them where there are fewer
  // Ranks under one set of leaf switches, whose links to the spine carry 1 / oversubscription of what its cards do.
  std::int64_t pod = std::int64_t{1} << 40;
  double oversubscription = 1;
  // The rate of a GPU while all GPUs of the domain, and a share `leaving` of its pod, send.
  double card_GBps(double leaving) const;
  BesideCommunication beside_communication;
  Quantity reserved_bytes;  // of a GPU's memory: code of libraries, fragmentation

  // Whether products of operands of that type have times: bf16 always, others in the table.
  bool multiplies(Dtype type) const { return type == Dtype::bf16 || gemms.has(type); }
  // The kernel of that name, the default for "". Throws Error(input) naming the nearest.
  const AttentionKernel& attention_named(const std::string& name) const;
};

// Why its tables and rates cannot be of a GPU with its data sheet ("gemm_table: …"); "" where they can. A product, or
// attention without the half that the mask saves, is at most at 1.1 of peak_TFLOPs: clocks may exceed the data sheet's
// (H100 SXM: 1980 MHz, the sheet's figure is at 1830). The bus bandwidth of a collective within a domain is at most
// that of NVLink, of an all-reduce twice that (switches that reduce: every GPU sends its buffer once).
std::string contradiction(const Accelerator& accelerator);

// Reads [accelerator] of a platform file; tables lie beside it. What it lacks beyond the data sheet's numbers has the
// defaults of sim/accelerator/numbers.hpp. Throws Error(input) as docs/platform.md says.
Accelerator read_accelerator(TomlTable table, const std::string& folder);

}  // namespace stretto::sim
