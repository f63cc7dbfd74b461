#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.hpp"

namespace stretto {

// What a framework takes of a GPU's memory where that differs from its schedule's plan, which Stretto itself allocates:
// table [memory] of a profile (docs/profiles.md). Without that table the plan is what is allocated.
struct FrameworkMemory {
  bool is_known = false;
  bool expandable_segments = false;  // of PyTorch's caching allocator (predict/caching_allocator.hpp)
  std::optional<Quantity> gradient;  // bytes of an element of the gradients that the optimizer reads
  std::optional<Quantity> master;    // bytes of an element of the f32 masters, where a part is in the parameters
  // Bytes of each element of a tensor of the schedule ("attention.out"), which are kept as long as the tensor: what
  // autograd saves because kernels are not fused. Below 0 the framework keeps less than the schedule.
  std::map<std::string, Quantity> kept;
  // Bytes of each element that an operation writes or updates, while it runs, by kind of work ("adamw").
  std::map<std::string, Quantity> during;
  // Bytes of a logit that the kernels of the loss allocate (above 0) or free (below 0: the oldest of that size), in
  // order. The logits themselves are the first of their size. What is left is freed with the gradient of the logits.
  std::vector<std::int64_t> cross_entropy;
  Source cross_entropy_source;
  bool casts_to_gather = false;             // FSDP: parameters are the f32 masters, cast when they are gathered
  bool root_unit_stays = false;             // FSDP's unit of embedding, last norm and head stays gathered
  bool copies_out_of_gathers = false;       // FSDP2: parameters are gathered into one buffer and copied out of it
  bool has_dummy_head_gradient = true;      // the head's weight, which is Megatron-LM's own layer, has one too
  bool has_dummy_weight_gradients = false;  // TransformerEngine: a tensor of each shape of weights, never read
  std::optional<Quantity> userbuffers;      // of tp_comm_overlap: how many, each of a micro-batch's hidden states
  std::optional<Quantity> libraries;        // bytes of a GPU, in place of the platform's reserved_bytes
};

class TomlTable;

// Reads the table into `memory`, whose keys it replaces. An absent table changes nothing. Throws Error(input).
void read_framework_memory(TomlTable table, FrameworkMemory& memory);

}  // namespace stretto
