#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/ops/expr.hpp"
#include "model/transformer.hpp"

namespace stretto {

// How attention gets the keys and values of other ranks' tokens under context parallelism (cp_comm_type of Megatron-LM
// and TransformerEngine).
enum class CpCommType : std::uint8_t {
  // keys and values go round a ring, one rank's tokens at a time (ring attention, Liu et al., arXiv 2310.01889)
  p2p,
  all_gather,  // every rank gathers all keys and values (arXiv 2407.21783, 3.3.2)
  a2a,         // ranks exchange tokens for heads and back (DeepSpeed-Ulysses, arXiv 2309.14509)
  a2a_p2p,     // an exchange among neighbours and a ring across them (USP, arXiv 2405.07719)
};
const char* name_of(CpCommType type);                        // "p2p", "all_gather", "a2a", "a2a+p2p"
std::string names_of(const std::vector<CpCommType>& types);  // a list for messages: in quotes, with commas

// Whether a rank holds a shard of the optimizer state, of the gradients and of the parameters: none of them, the first
// (ZeRO-1), the first two (ZeRO-2), all three (ZeRO-3, FSDP; Rajbhandari et al., arXiv 1910.02054). Names are
// Megatron-FSDP's.
enum class Sharding : std::uint8_t { no_shard, optim, optim_grads, optim_grads_params };
const char* name_of(Sharding sharding);

// The order in which a stage computes F (forward), B (gradients of inputs) and W (gradients of weights) of its
// micro-batches.
enum class PipelineSchedule : std::uint8_t {
  one_f_one_b,  // 1F1B, interleaved with virtual stages; B and W are one pass
  zb_h1,        // ZB-H1 (Qi et al., arXiv 2401.10241)
  zb_v,         // ZB-V (arXiv 2401.10241, 2405.15362): two chunks a stage, arranged in a V
  dualpipe_v,   // DualPipeV (arXiv 2412.19437, cut in half): arranged in a V; F and B of different chunks alternate
};
const char* name_of(PipelineSchedule schedule);  // "1f1b", "zb-h1", "zb-v", "dualpipev"
// Returns whether W is a pass of its own, which may come later than B.
inline bool is_zero_bubble(PipelineSchedule schedule) { return schedule != PipelineSchedule::one_f_one_b; }
// Returns whether a stage has two chunks, arranged in a V (StageMap).
inline bool lies_in_v(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zb_v || schedule == PipelineSchedule::dualpipe_v;
}

// How tokens reach the ranks of their experts (Megatron-LM's moe_token_dispatcher_type).
enum class TokenDispatcher : std::uint8_t {
  allgather,  // ranks that share or cut experts gather all their tokens, and reduce-scatter the sums
  alltoall,   // ranks send each token's copies to the ranks of its experts
  flex,       // the same by a library of its own (FlexBackend)
};
const char* name_of(TokenDispatcher dispatcher);  // "allgather", "alltoall", "flex"
enum class FlexBackend : std::uint8_t { deepep, hybridep, ncclep };
const char* name_of(FlexBackend backend);  // "deepep", "hybridep", "ncclep"

// How many ranks cut the model along each axis, and how pipeline stages share its layers. Fields are named after
// Megatron-LM's options; docs/scenario.md is their specification.
struct Parallel {
  std::int64_t data_parallel_size = 1;
  std::int64_t context_parallel_size = 1;                    // ranks that share the tokens of a sequence
  std::vector<CpCommType> cp_comm_type = {CpCommType::p2p};  // one for all layers, or one for each layer
  CpCommType cp_comm_type_of(std::int64_t layer) const {
    return cp_comm_type[cp_comm_type.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
  }
  std::vector<CpCommType> cp_comm_types() const;  // the types that occur, in the order of their first layers
  // Sizes for a2a+p2p: the neighbours that exchange heads, and the number of such groups in the ring. Empty otherwise.
  std::vector<std::int64_t> hierarchical_context_parallel_sizes = {};
  std::int64_t cp_neighbours() const {
    return hierarchical_context_parallel_sizes.empty() ? 1 : hierarchical_context_parallel_sizes[0];
  }
  // Numbers of ranks in layers of a type: the ranks that exchange tokens for heads (1: no exchange), and the ranks of
  // the ring or all-gather.
  std::int64_t cp_exchange_size(CpCommType type) const;
  std::int64_t cp_ring_size(CpCommType type) const { return context_parallel_size / cp_exchange_size(type); }
  bool has_cp_ring(CpCommType type) const { return cp_ring_size(type) > 1 && type != CpCommType::all_gather; }
  bool has_cp_ring() const;  // any layer has a ring
  bool has_cp_comm_type(CpCommType type) const;
  // With no_shard every rank updates all parameters after an all-reduce of gradients; otherwise a rank updates its
  // shard.
  Sharding data_parallel_sharding_strategy = Sharding::optim;
  // With optim_grads_params: a layer's parameters are freed after its forward pass and gathered again for its backward
  // pass.
  bool reshard_after_forward = true;
  bool shards_optimizer() const { return data_parallel_sharding_strategy != Sharding::no_shard; }
  bool shards_gradients() const { return data_parallel_sharding_strategy >= Sharding::optim_grads; }
  bool shards_parameters() const { return data_parallel_sharding_strategy == Sharding::optim_grads_params; }
  // Ranks that have equal parameters and different tokens: gradients are summed over them (Megatron-LM's "dp-cp"
  // group).
  static constexpr const char* kReplicas = "data_parallel_size x context_parallel_size";
  std::int64_t replicas() const { return data_parallel_size * context_parallel_size; }
  // An instance of the distributed optimizer is a group of data-parallel ranks that together hold all optimizer state
  // and all else that is sharded; each of its ranks has a shard. Gradients are reduced inside an instance and then
  // across instances (Megatron-LM; PyTorch's hybrid sharding, HSDP).
  std::int64_t num_distributed_optimizer_instances = 1;
  std::int64_t instance_data_parallel_size() const { return data_parallel_size / num_distributed_optimizer_instances; }
  // number of shards of the sharded state
  std::int64_t shards() const { return replicas() / num_distributed_optimizer_instances; }
  std::int64_t optimizer_shards() const { return shards_optimizer() ? shards() : 1; }
  std::int64_t tensor_model_parallel_size = 1;
  // norms and residuals work on a token shard each (Korthikanti et al., arXiv 2205.05198)
  bool sequence_parallel = false;
  // Ranks of a stage that share the experts of its layers, each with as many, and ranks that cut every expert between
  // them; 0: as many as tensor_model_parallel_size. Experts lie on the ranks of a stage as they say, whatever cuts the
  // other layers (Megatron-LM's folding; Liu et al., arXiv 2504.14960).
  std::int64_t expert_model_parallel_size = 1, expert_tensor_parallel_size = 0;
  std::int64_t expert_tp() const {
    return expert_tensor_parallel_size > 0 ? expert_tensor_parallel_size : tensor_model_parallel_size;
  }
  // ranks of a stage with equal experts
  std::int64_t expert_dp() const {
    return replicas() * tensor_model_parallel_size / (expert_model_parallel_size * expert_tp());
  }
  // Experts do not lie on the ranks as dense layers do.
  // Returns the number of ranks along an axis of the mesh: of dense layers, or of experts (ep, edp, etp). dp are the
  // ranks of one optimizer instance.
  std::int64_t size_of(Coord axis) const;
  bool experts_apart() const { return expert_model_parallel_size > 1 || expert_tp() != tensor_model_parallel_size; }
  TokenDispatcher moe_token_dispatcher_type = TokenDispatcher::alltoall;
  FlexBackend moe_flex_dispatcher_backend = FlexBackend::deepep;
  // Rows that a rank's experts have room for, over the rows that they get when all experts have equally many; 0: room
  // for whatever the router may say.
  double moe_expert_rank_capacity_factor = 0;
  // Rows that every expert has of the tokens of every rank, over the rows when all experts have equally many; those
  // that no token has are padding (moe_pad_expert_input_to_capacity). 0: as many as the router says.
  double moe_expert_capacity_factor = 0;
  bool moe_pad_expert_input_to_capacity = false;
  // Ranks that share experts gather each other's tokens, and reduce-scatter the sums.
  bool gathers_tokens_for_experts() const {
    return expert_model_parallel_size > 1 && moe_token_dispatcher_type == TokenDispatcher::allgather;
  }
  std::int64_t pipeline_model_parallel_size = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_f_one_b;
  std::int64_t virtual_pipeline_model_parallel_size = 1;  // model chunks a stage
  // consecutive micro-batches of one chunk; 0: the pipeline size
  std::int64_t microbatch_group_size_per_vp_stage = 0;
  // Each tensor-parallel rank sends its share of the tokens to the next stage, which gathers them (Narayanan et al.,
  // arXiv 2104.04473, 4.1). It has no effect with sequence_parallel, under which a rank has only its share.
  bool scatter_gather_tensors_in_pipeline = false;
  std::int64_t num_layers_in_first_pipeline_stage = 0;  // 0: as many as in the other stages
  std::int64_t num_layers_in_last_pipeline_stage = 0;
  bool account_for_embedding_in_pipeline_split = false;  // the embedding counts as a layer of the first stage
  bool account_for_loss_in_pipeline_split = false;       // the head counts as a layer of the last stage
  std::string pipeline_model_parallel_layout = {};       // "Et|tt|ttL": spells out every chunk
  // The numbering of ranks: the axis whose coordinate varies fastest comes first. Axes of size 1 may be left out.
  std::string order = "tp-cp-ep-dp-pp";
  // The number of ranks of one replica of the model, and the name of that number in messages.
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
  std::string size_key;  // the key, or product of keys, that gives the number of ranks in the group
  std::int64_t size = 1;
  bool has_lanes = true;  // the group has lanes of its own
};
std::vector<RankGroup> rank_groups(const Parallel& parallel);

// The map between stages, their chunks and the model chunks, and the only code that knows it. Model chunks are numbered
// from the input to the head ("piece"). Chunk c of a stage is its c-th model chunk. Model chunks go round the stages
// (Narayanan et al., arXiv 2104.04473); with `in_v` they go there and back: stage s has model chunks s and 2 · stages −
// 1 − s, and the two chunks of the last stage are neighbours.
struct StageMap {
  std::int64_t stages = 1, chunks = 1;  // chunks per stage
  bool in_v = false;                    // each stage has two chunks, arranged in a V
  std::int64_t pieces() const { return stages * chunks; }
  std::int64_t chunk_of(std::int64_t piece) const { return piece / stages; }
  std::int64_t stage_of(std::int64_t piece) const {
    return in_v && piece >= stages ? pieces() - 1 - piece : piece % stages;
  }
  // Returns the number of the model chunk. Works on numbers and on expressions of coordinates.
  template <class Number>
  Number piece_of(const Number& stage, const Number& chunk) const {
    const Number round = chunk * Number(stages) + stage;
    return in_v ? round + chunk * (Number(stages - 1) - Number(2) * stage) : round;
  }
  bool is_first(std::int64_t stage, std::int64_t chunk) const { return piece_of(stage, chunk) == 0; }
  bool is_last(std::int64_t stage, std::int64_t chunk) const { return piece_of(stage, chunk) + 1 == pieces(); }
  std::int64_t first_stage() const { return stage_of(0); }
  std::int64_t last_stage() const { return stage_of(pieces() - 1); }
  // Returns the distance, in stages of the ring, to the stage with the next model chunk, unless the chunk turns.
  std::int64_t way(std::int64_t chunk) const { return in_v && chunk == 1 ? -1 : 1; }
  // Returns whether the chunk's output is the input of the next chunk of its own stage.
  bool turns_after(std::int64_t stage, std::int64_t chunk) const { return in_v && chunk == 0 && stage + 1 == stages; }
};

inline StageMap stage_map(const Parallel& parallel) {
  return {parallel.pipeline_model_parallel_size, parallel.virtual_pipeline_model_parallel_size,
          lies_in_v(parallel.pipeline_schedule)};
}

// One model chunk: its layers, and whether it has the embedding and the head.
struct ModelChunk {
  std::int64_t first_layer = 0, end_layer = 0;  // [first, end)
  bool has_embedding = false, has_head = false;
  std::int64_t layers() const { return end_layer - first_layer; }
};

// Returns the axes of Parallel::order that the model has, the fastest first. Throws Error(input), without file and
// line, naming the fault.
std::vector<Coord> axes_in_order(const Parallel& parallel);
// Returns the axes on which experts lie and their sizes, the fastest first: Megatron-LM numbers the ranks of experts by
// the same order. The axis of those that cut an expert is tp where dense layers are cut in the same way.
std::vector<std::pair<Coord, std::int64_t>> axes_of_experts(const Parallel& parallel);
Coord expert_tp_axis(const Parallel& parallel);

// Returns all model chunks from the input to the head. Throws Error(input), without file and line, naming the key that
// does not fit.
std::vector<ModelChunk> model_chunks(const Transformer& model, const Parallel& parallel);

// Reads pipeline_model_parallel_layout: E is the embedding, t a transformer layer, L the head, | stands between chunks;
// "*n" repeats the item before it, parentheses group, commas and spaces are ignored. Throws Error(input) naming the
// character.
std::vector<ModelChunk> parse_layout(const std::string& text);

}  // namespace stretto
