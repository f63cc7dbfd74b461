#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.hpp"
#include "model/schedule/tensor_role.hpp"

namespace stretto {

// A framework's use of GPU memory where it differs from the schedule's plan, which Stretto itself allocates: table
// [memory] of a profile (docs/profiles.md). Without that table the plan is what is allocated.
struct FrameworkMemory {
  bool is_known = false;
  bool expandable_segments = false;  // of PyTorch's caching allocator (predict/caching_allocator.hpp)
  std::optional<Quantity> gradient;  // bytes of an element of the gradients that the optimizer reads
  // bytes of an element of the f32 masters, when the parameters already hold some of their bits
  std::optional<Quantity> master;
  // Bytes of each element of an activation that live as long as the activation: autograd saves them because kernels are
  // not fused. A negative value means that the framework keeps less than the schedule.
  std::map<TensorRole, Quantity> kept;
  // Bytes of each element that an operation writes or updates, for the time that it runs, by kind of work ("adamw").
  std::map<std::string, Quantity> during;
  // Bytes of a logit that the kernels of the loss allocate (above 0) or free (below 0: the oldest block of that size),
  // in order. The logits themselves are the first block of their size. Blocks that are left are freed with the gradient
  // of the logits.
  std::vector<std::int64_t> cross_entropy;
  Source cross_entropy_source;
  // FSDP: parameters are the f32 masters, which are cast when they are gathered
  bool casts_to_gather = false;
  bool root_unit_stays = false;  // FSDP's unit of embedding, last norm and head stays gathered
  // FSDP2: parameters are gathered into one buffer and then copied out of the buffer
  bool copies_out_of_gathers = false;
  // attention keeps keys and values that are repeated for every query head
  bool repeats_kv_heads = false;
  // the head's weight, which is Megatron-LM's own layer, has a dummy gradient too
  bool has_dummy_head_gradient = true;
  bool has_dummy_weight_gradients = false;  // TransformerEngine: one tensor for each shape of weights, never read
  // tp_comm_overlap: number of buffers, each as large as a micro-batch's hidden states
  std::optional<Quantity> userbuffers;
  std::optional<Quantity> libraries;  // bytes of a GPU, replacing the platform's reserved_bytes
};

class TomlTable;

// Reads the table into `memory` and replaces the keys that the table has. An absent table changes nothing. Throws
// Error(input).
void read_framework_memory(TomlTable table, FrameworkMemory& memory);

}  // namespace stretto
