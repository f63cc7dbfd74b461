#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace stretto::diagnose {

// A trace of one rank shows the model and the layout by shapes, counts and groups. No name of an operation or of a lane
// counts. 0 is "the trace does not say"; counts are those of one step.

// Bounds of sizes that a scenario may have (docs/scenario.md): a trace may come from anybody, and products of what is
// within them are no overflow.
constexpr std::int64_t kMostRows = 1 << 30, kMostWidth = 1 << 24, kMostHeads = 1 << 20, kMostDim = 1 << 12,
                       kMostExperts = 1 << 12, kMostMembers = 1 << 24, kMostElements = std::int64_t{1} << 50,
                       kMostCuts = 1024;  // ranks that cut a model along an axis

// Returns the number where it is within the bounds, else 0: not known.
inline std::int64_t within(std::int64_t number, std::int64_t most) {
  return number >= 1 && number <= most ? number : 0;
}

// A weight matrix of a linear layer, by its products: a forward product is rows x out x in.
struct SeenWeight {
  std::int64_t in = 0, out = 0;
  double forward = 0;    // whole forward products, recomputed ones too
  double gradients = 0;  // weight gradients
};

struct SeenAttention {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq = 0, dim = 0, value_dim = 0;
  double forward = 0, backward = 0;  // calls, of parts of a sequence too
};

struct SeenExperts {
  std::int64_t experts = 0, topk = 0, local = 0;  // `local`: of this rank
  std::int64_t routed_rows = 0;                   // tokens that one call of the router has
  std::int64_t rows = 0;                          // that its experts have of one micro-batch
  bool is_sigmoid = false;
  std::vector<SeenWeight> weights;  // of one expert each; counts are of grouped products
};

// Messages of one process group of one kind and size.
struct SeenMessages {
  std::string group;
  std::int64_t members = 0, elements = 0;  // `elements`: of the whole, which one rank has before or after
  trace::KernelClass cls = trace::KernelClass::other;
  int element_bytes = 0;
  double count = 0;
};

struct Evidence {
  std::int64_t rank = 0, ranks = 0;  // `ranks`: of the run
  std::int64_t tokens = 0;           // rows of a micro-batch's products
  std::vector<SeenWeight> weights;   // dense ones, in the order in which the step uses them first
  SeenAttention attention;
  SeenExperts experts;
  std::vector<SeenMessages> messages;
  double embeddings = 0, losses = 0;   // forward passes of the embedding and of the loss
  std::int64_t vocabulary = 0;         // rows of the whole embedding
  int product_bytes = 0;               // of an element of most products' operands
  std::vector<std::string> libraries;  // whose kernels run, in words: "DeepEP"
  std::string profile;                 // the profile whose kernels they are; "": their names do not say
  bool has_rms_norm = false, has_layer_norm = false, has_head_norms = false, has_rope = false, has_gates = false,
       has_biases = false, has_positions = false;
};

// Gathers them of a trace of Stretto's, which says them in words.
Evidence own_evidence(const trace::RankTrace& rank);
// Adds the library of a kernel, by its name, and the profile that follows from it.
void add_library(Evidence& seen, const std::string& kernel);
// Gathers them of one step of a profiler's trace, as far as it has shapes (record_shapes) and sizes of messages.
Evidence kernel_evidence(const trace::RankTrace& rank);

}  // namespace stretto::diagnose
