#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/quantity.hpp"
#include "sim/accelerator/collective_table.hpp"
#include "sim/accelerator/communication_sms.hpp"
#include "sim/accelerator/gemm_table.hpp"

namespace stretto::sim {

// A generation of attention kernels. Rates count 4 · batch · heads · s² · d FLOPs for forward and 2.5 times that for
// backward, without halving for a causal mask, as the kernels' authors count; they were measured with causal attention.
struct AttentionKernel {
  std::string name;  // "flash2", "cudnn"
  Quantity forward_TFLOPs, backward_TFLOPs;
  // Rows of scores that a thread block works on: a head has seq / rows thread blocks. The last block sees all keys, and
  // its time is the shortest time of attention.
  int forward_rows = 128, backward_rows = 128;
  // Number of keys of a row at which half of the rate is reached: with s keys the rate is s / (s + half_rate_keys) of
  // the full one. A gradient has a number of its own.
  double half_rate_keys = 0, backward_half_rate_keys = 0;
  // The softmax of a score costs as much as this many elements of a head, whose products are 4 FLOPs each forward: with
  // heads of d elements, fewer than `head_dim`, the rate is d / (d + this) over head_dim / (head_dim + this) of the
  // rate that was measured. Wider heads have the rate of head_dim, because they need more registers than they save
  // time.
  double half_rate_head_dim = 0;
  // Conditions of the measurement: elements of a head, and the largest number of keys.
  std::int64_t head_dim = 128, most_keys = 16384;
};

// A level of the network. A domain has NVLink between all of its GPUs; the network connects domains.
struct LinkLevel {
  Quantity GBps;  // rate of one GPU in one direction
  Quantity latency_us;
};

// Slowdowns of kernels that are concurrent with NCCL's: time / time alone. They share SMs, caches and the memory's
// rate.
struct BesideCommunication {
  Quantity gemm, attention, memory_bound;  // kernels of compute
  Quantity communication;                  // NCCL's kernels, concurrent with any of these
  Quantity loss;  // where SMs are known: what these kernels lose over what they lose by SMs and the memory's rate
};

// Rows of experts are exchanged by NCCL's messages or by the libraries of TokenTransport. Rates are of one GPU in one
// direction, of the bytes that leave it.
struct TokenExchange {
  Quantity network_share;                                 // share of the cards' rate that NCCL's all-to-all reaches
  Quantity us;                                            // what NCCL's exchange takes besides
  Quantity flex_nvlink_GBps, flex_network_GBps, flex_us;  // DeepEP's and HybridEP's kernels
  Quantity hybridep_us;  // HybridEP's scan of what goes where, once for dispatch and combine
};

// Linear attention (LinearAttention of model/ops/linear_attention.hpp), forward; a platform may lack these numbers.
// delta rule: delta_ns · tokens · heads + delta_serial_ns · tokens of a sequence, with heads of 128 x 128
// Mamba-2:    ssd_ns · tokens of a sequence · max(ssd_pairs, sequences · heads), with heads of 128 x 64
// Other heads take as much more as their state is larger. A gradient takes `delta_backward` or `ssd_backward` times as
// long.
struct LinearAttentionRates {
  bool is_given = false;  // the platform has the section
  Quantity delta_ns, delta_serial_ns, delta_backward, ssd_ns, ssd_pairs, ssd_backward;
};

// Products of a low precision. Their tables are of kernels that add up fast; TransformerEngine asks for split
// accumulation in the gradients of fp8, which GPUs before Blackwell do outside of their tensor cores.
struct ProductRate {
  Quantity peak_TFLOPs;     // dense; MFU of a step in this precision counts against it
  Quantity gemm_sustained;  // as Accelerator::gemm_sustained
};

// Shares of the memory's rate that casts to codes reach, by the number of elements: rising, interpolated in their
// logarithm, constant beyond both ends.
struct CastRate {
  std::vector<double> elements, share;
  Source source;
  double share_at(double count) const;
};

// A GPU of a cluster, from its data sheet and published measurements. The models of sim/accelerator derive all costs
// that no calibration has measured. Every number has a source.
struct Accelerator {
  int sms = 0;
  Quantity peak_TFLOPs;  // dense bf16: what MFU counts against
  Quantity hbm_GBps;

  std::vector<std::string> table_files;  // from which the tables were read
  GemmTable gemms;                       // empty: the roofline of gemm_share and hbm_share is used
  Source gemm_source;                    // source of the table
  bool gemm_waves = false;               // GemmTable::time_us accounts for whole waves
  Quantity gemm_sustained;  // time in a training step / time in the table, whose measurements do not throttle the clock
  ProductRate fp8, fp8_block, mxfp8, nvfp4;
  Quantity split_accumulation;  // time of a product of fp8 with split accumulation / fast accumulation
  CastRate casts;               // of numbers to codes; empty: hbm_share
  // Time of a GEMM / time of an aligned one: where rows of an operand have an odd number of elements, and where they
  // have an even number that 8 does not divide.
  Quantity gemm_odd, gemm_unaligned;
  Quantity gemm_share;                     // share of the peak, where there is no table
  Quantity hbm_share;                      // share of the memory's rate that a streaming kernel reaches
  Quantity kernel_us;                      // gap from the end of a short kernel to the start of the next, and its ramp
  Quantity grouped_gemm;                   // time of experts' products / time by the model of kernel_time.cpp
  Quantity fp8_attention;                  // rate of attention whose products are of codes of 8 bits / in bf16
  Quantity bmm_share;                      // share of the peak that the batched products of unfused attention reach
  std::vector<AttentionKernel> attention;  // the first kernel is the default

  CollectiveTable collectives;  // empty: the ring's closed form, and NCCL's model
  Source collective_source;     // source of the table
  // Rates of the links on which the times of `collectives` and the rates of `token_exchange` were measured. On faster
  // or slower links the bandwidth of these changes in proportion. 0: those of `nvlink` and `network`.
  double measured_nvlink_GBps = 0, measured_network_GBps = 0;
  // Bandwidth and latency of collectives over those of the table, or over NCCL's own latency where no table has a
  // group.
  Quantity collective_bandwidth = {1, {}}, collective_latency = {1, {}};
  double nvlink_change() const { return measured_nvlink_GBps > 0 ? nvlink.GBps.value / measured_nvlink_GBps : 1; }
  double network_change() const { return measured_network_GBps > 0 ? network.GBps.value / measured_network_GBps : 1; }
  // Returns how the links of a domain differ from those of the table.
  LinkChange table_change() const { return {nvlink_change() * collective_bandwidth.value, collective_latency.value}; }
  Quantity collective_in_step_us;  // extra time of a collective in a step over one of many back to back
  std::int64_t domain = 8;         // GPUs of an NVLink domain
  bool multicast = false;          // the domain's switches add up and copy to many GPUs (NVLink SHARP)
  LinkLevel nvlink, network;
  Quantity network_share;  // share of the cards' rate that collectives reach
  // cards of a domain, each with the network's GBps; GPUs share them where there are fewer
  std::int64_t network_cards = 8;
  // Ranks under one set of leaf switches. The pod's links to the spine carry 1 / oversubscription of its cards' rate.
  std::int64_t pod = std::int64_t{1} << 40;
  double oversubscription = 1;
  // Returns the rate of a GPU while all GPUs of the domain, and a share `leaving` of its pod, send.
  double card_GBps(double leaving) const;
  BesideCommunication beside_communication;
  CommunicationSms communication_sms;
  TokenExchange token_exchange;
  LinearAttentionRates linear_attention;
  Quantity reserved_bytes;  // bytes of a GPU's memory: code of libraries, fragmentation

  // Returns whether products of this kind have times: bf16 always, others when the table has them, and low precision
  // by its peak where there is no table at all.
  bool multiplies(ProductType type) const {
    return type == ProductType::bf16 || gemms.has(type) || (gemms.empty() && is_low(type));
  }
  double peak_TFLOPs_of(ProductType type) const;  // f32 as on the tensor cores, half of bf16's
  double sustained_of(ProductType type) const;
  // Returns the time of a product of contiguous, aligned factors in a training step.
  double product_us(ProductType type, double m, double n, double k) const;
  // Returns the kernel with this name, the default for "". Throws Error(input) naming the nearest.
  const AttentionKernel& attention_named(const std::string& name) const;
};

// Returns why the tables and rates contradict the data sheet ("gemm_table: …"); "" where they do not. A product, or
// attention without the masked half, reaches at most 1.1 of peak_TFLOPs: clocks may exceed the data sheet's (H100 SXM:
// 1980 MHz, the sheet's figure is at 1830). The bus bandwidth of a collective within a domain is at most that of
// NVLink, of an all-reduce at most twice that (with switches that reduce every GPU sends its buffer once).
std::string contradiction(const Accelerator& accelerator);

// Reads [accelerator] of a platform file; its tables are in the file's folder. Numbers beyond the data sheet's that the
// section lacks have the defaults of sim/accelerator/numbers.hpp. Throws Error(input) as docs/platform.md says.
Accelerator read_accelerator(TomlTable table, const std::string& folder);

}  // namespace stretto::sim
