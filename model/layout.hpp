#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/schedule/expr.hpp"
#include "model/transformer.hpp"

namespace stretto {

// How attention gets the keys and values of other ranks' tokens under context parallelism (cp_comm_type of Megatron-LM
// and TransformerEngine).
enum class CpCommType : std::uint8_t {
  p2p,         // they go round, a part at a time (ring attention, Liu et al., arXiv 2310.01889)
  all_gather,  // all of them are gathered (arXiv 2407.21783, 3.3.2)
  a2a,         // ranks exchange tokens for heads and back (DeepSpeed-Ulysses, arXiv 2309.14509)
  a2a_p2p,     // exchange among neighbours, a ring across them (USP, arXiv 2405.07719)
};
const char* name_of(CpCommType type);                        // "p2p", "all_gather", "a2a", "a2a+p2p"
std::string names_of(const std::vector<CpCommType>& types);  // for messages: in quotes, with commas

// Which of optimizer state, gradients and parameters a replica has a shard of, each with what is before it: none, the
// first (ZeRO-1), two (ZeRO-2), all (ZeRO-3, FSDP; Rajbhandari et al., arXiv 1910.02054). Names are Megatron-FSDP's.
enum class Sharding : std::uint8_t { no_shard, optim, optim_grads, optim_grads_params };
const char* name_of(Sharding sharding);

// In which order a stage computes F, B (gradients of inputs) and W (gradients of weights) of its micro-batches.
enum class PipelineSchedule : std::uint8_t {
  one_f_one_b,  // 1F1B, interleaved with virtual stages; B and W are one
  zb_h1,        // ZB-H1 (Qi et al., arXiv 2401.10241)
  zb_v,         // ZB-V (arXiv 2401.10241, 2405.15362): two chunks a stage, which lie in a V
  dualpipe_v,   // DualPipeV (arXiv 2412.19437, cut in half): in a V; F and B of different chunks take turns
};
const char* name_of(PipelineSchedule schedule);  // "1f1b", "zb-h1", "zb-v", "dualpipev"
// Whether W is apart from B, so that it can come later.
inline bool is_zero_bubble(PipelineSchedule schedule) { return schedule != PipelineSchedule::one_f_one_b; }
// Whether a stage has two chunks, which lie in a V (StageMap).
inline bool lies_in_v(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zb_v || schedule == PipelineSchedule::dualpipe_v;
}

// How many ranks cut the model along which axis, and how pipeline stages share its layers. Fields are named as
// Megatron-LM's options; docs/scenario.md is their specification.
struct Parallel {
  std::int64_t data_parallel_size = 1;
  std::int64_t context_parallel_size = 1;                    // ranks that share the tokens of a sequence
  std::vector<CpCommType> cp_comm_type = {CpCommType::p2p};  // of all layers, or of each
  CpCommType cp_comm_type_of(std::int64_t layer) const {
    return cp_comm_type[cp_comm_type.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
  }
  std::vector<CpCommType> cp_comm_types() const;  // that occur, in the order of their first layers
  // With a2a+p2p: neighbours that exchange heads, and groups of them round the ring. Otherwise empty.
  std::vector<std::int64_t> hierarchical_context_parallel_sizes = {};
  std::int64_t cp_neighbours() const {
    return hierarchical_context_parallel_sizes.empty() ? 1 : hierarchical_context_parallel_sizes[0];
  }
  // In layers of a type: ranks that exchange tokens for heads (1: none), and those of the ring, or of the all-gather.
  std::int64_t cp_exchange_size(CpCommType type) const;
  std::int64_t cp_ring_size(CpCommType type) const { return context_parallel_size / cp_exchange_size(type); }
  bool has_cp_ring(CpCommType type) const { return cp_ring_size(type) > 1 && type != CpCommType::all_gather; }
  bool has_cp_ring() const;  // in any layer
  bool has_cp_comm_type(CpCommType type) const;
  // With no_shard every rank updates all parameters, after an all-reduce of gradients; otherwise its shard of them.
  Sharding data_parallel_sharding_strategy = Sharding::optim;
  // With optim_grads_params: a layer's parameters are given back after its forward pass, and gathered again for its
  // backward pass.
  bool reshard_after_forward = true;
  bool shards_optimizer() const { return data_parallel_sharding_strategy != Sharding::no_shard; }
  bool shards_gradients() const { return data_parallel_sharding_strategy >= Sharding::optim_grads; }
  bool shards_parameters() const { return data_parallel_sharding_strategy == Sharding::optim_grads_params; }
  // Ranks that have the same parameters and other tokens: gradients are summed over them (Megatron-LM's "dp-cp" group).
  static constexpr const char* kReplicas = "data_parallel_size x context_parallel_size";
  std::int64_t replicas() const { return data_parallel_size * context_parallel_size; }
  // Parts of data parallelism that each have all of the optimizer's state, and of what else is sharded; inside one
  // every rank has a shard. Gradients are reduced inside an instance and then across them (Megatron-LM; PyTorch's
  // hybrid sharding, HSDP).
  std::int64_t num_distributed_optimizer_instances = 1;
  std::int64_t instance_data_parallel_size() const { return data_parallel_size / num_distributed_optimizer_instances; }
  std::int64_t shards() const { return replicas() / num_distributed_optimizer_instances; }  // of whatever is sharded
  std::int64_t optimizer_shards() const { return shards_optimizer() ? shards() : 1; }
  std::int64_t tensor_model_parallel_size = 1;
  bool sequence_parallel = false;  // norms and residuals on a token shard each (Korthikanti et al., arXiv 2205.05198)
  std::int64_t pipeline_model_parallel_size = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_f_one_b;
  std::int64_t virtual_pipeline_model_parallel_size = 1;  // model chunks a stage
  std::int64_t microbatch_group_size_per_vp_stage = 0;    // micro-batches of a chunk in a row; 0: pipeline size
  // Each tensor-parallel rank sends its part of the tokens to the next stage, which gathers them (Narayanan et al.,
  // arXiv 2104.04473, 4.1). Without sequence_parallel, under which it has no more than its part.
  bool scatter_gather_tensors_in_pipeline = false;
  std::int64_t num_layers_in_first_pipeline_stage = 0;  // 0: as many as in the others
  std::int64_t num_layers_in_last_pipeline_stage = 0;
  bool account_for_embedding_in_pipeline_split = false;  // it counts as a layer of the first stage
  bool account_for_loss_in_pipeline_split = false;       // so does the head, of the last
  std::string pipeline_model_parallel_layout = {};       // "Et|tt|ttL": every chunk in full
  // How ranks are numbered: the axis whose coordinate varies fastest comes first. Axes of one rank may be left out.
  std::string order = "tp-cp-ep-dp-pp";
  // Ranks that one replica of the model is on, and what messages call that number.
  static constexpr const char* kModelRanks =
      "tensor_model_parallel_size x context_parallel_size x pipeline_model_parallel_size";
  std::int64_t model_ranks() const {
    return tensor_model_parallel_size * context_parallel_size * pipeline_model_parallel_size;
  }
  std::int64_t ranks() const { return data_parallel_size * model_ranks(); }
};

// A group of ranks whose communicators can be configured, as Megatron-LM names it: nccl_communicator_config and
// high_priority_stream_groups.
struct RankGroup {
  std::string name;
  std::string size_key;  // the key, or product of keys, that says how many ranks are in it
  std::int64_t size = 1;
  bool has_lanes = true;  // of its own
};
std::vector<RankGroup> rank_groups(const Parallel& parallel);

// Which stage has which piece of the model: the only place that knows. Pieces are numbered from the input to the head;
// chunk number c of a stage is its c-th piece. Pieces go round the stages (Narayanan et al., arXiv 2104.04473), or with
// `in_v` there and back: stage s has pieces s and 2 · stages − 1 − s, and the last stage two neighbours.
struct StageMap {
  std::int64_t stages = 1, chunks = 1;  // chunks of a stage
  bool in_v = false;                    // two chunks
  std::int64_t pieces() const { return stages * chunks; }
  std::int64_t chunk_of(std::int64_t piece) const { return piece / stages; }
  std::int64_t stage_of(std::int64_t piece) const {
    return in_v && piece >= stages ? pieces() - 1 - piece : piece % stages;
  }
  // The inverse, of numbers or of expressions of coordinates.
  template <class Number>
  Number piece_of(const Number& stage, const Number& chunk) const {
    const Number round = chunk * Number(stages) + stage;
    return in_v ? round + chunk * (Number(stages - 1) - Number(2) * stage) : round;
  }
  bool is_first(std::int64_t stage, std::int64_t chunk) const { return piece_of(stage, chunk) == 0; }
  bool is_last(std::int64_t stage, std::int64_t chunk) const { return piece_of(stage, chunk) + 1 == pieces(); }
  std::int64_t first_stage() const { return stage_of(0); }
  std::int64_t last_stage() const { return stage_of(pieces() - 1); }
  // Where the next piece is: so many stages on, in the ring of stages, unless the chunk turns.
  std::int64_t way(std::int64_t chunk) const { return in_v && chunk == 1 ? -1 : 1; }
  // The chunk's output is the input of the next chunk of the same stage.
  bool turns_behind(std::int64_t stage, std::int64_t chunk) const { return in_v && chunk == 0 && stage + 1 == stages; }
};

inline StageMap stage_map(const Parallel& parallel) {
  return {parallel.pipeline_model_parallel_size, parallel.virtual_pipeline_model_parallel_size,
          lies_in_v(parallel.pipeline_schedule)};
}

// One piece of the model.
struct ModelChunk {
  std::int64_t first_layer = 0, end_layer = 0;  // [first, end)
  bool has_embedding = false, has_head = false;
  std::int64_t layers() const { return end_layer - first_layer; }
};

// Axes of Parallel::order that the model has, the fastest first. Throws Error(input), without file and line, naming
// what is wrong with it.
std::vector<Coord> axes_in_order(const Parallel& parallel);

// All pieces from input to head. Throws Error(input), without file and line, naming the key that does not fit.
std::vector<ModelChunk> model_chunks(const Transformer& model, const Parallel& parallel);

// Reads pipeline_model_parallel_layout: E embedding, t transformer layer, L head, | between chunks; "*n" repeats what
// is before it, parentheses group, commas and spaces are ignored. Throws Error(input) naming the character.
std::vector<ModelChunk> parse_layout(const std::string& text);

}  // namespace stretto
