#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/document_lengths.hpp"
#include "model/expert_loads.hpp"
#include "model/framework.hpp"
#include "model/layout.hpp"
#include "model/low_precision.hpp"
#include "model/ops/dtype.hpp"
#include "model/optimizer_precision.hpp"
#include "model/recompute.hpp"
#include "model/transformer.hpp"

namespace stretto {

// A scenario file as values; docs/scenario.md specifies every key. The reader has checked all ranges and rejected
// unknown keys. Value types.

// The cost model of communication between ranks.
enum class Network : std::uint8_t {
  links,  // rings over links of `link_GBps` and `link_latency_us`
  nccl,   // times of NCCL between the GPUs that the platform was measured on
};

struct Cluster {
  // host: cores that ranks share; 0 = all cores of this machine (sim: of the platform)
  std::int64_t cores_per_device = 0;
  std::int64_t ranks_per_device = 0;  // 0 = every rank on one device
  bool bind_cores_to_rank = true;     // applies where ranks are processes (exec/launch/affinity.hpp)
  Network network = Network::links;
  double link_GBps = 1.0;                        // of each rank, in each direction; the host paces its transfers to it
  std::int64_t cuda_device_max_connections = 0;  // hardware queues that lanes share; 0 = one for each lane
  // CTAs of a communicator's kernels, one for each channel, by process group ("dp", "tp", "cp", "pp" or "embd"). An
  // absent group takes no CTAs (nccl_communicator_config of Megatron-LM, maxCTAs of NCCL).
  std::map<std::string, std::int64_t> max_ctas;
  // Process groups whose all-gathers and all-to-alls run on the copy engines (NCCL's Zero-CTA policy).
  std::set<std::string> zero_cta_groups;
  bool nccl_ub = false;     // GPUs with one rank each: buffers of collectives are registered with NCCL
  double channel_GBps = 0;  // bandwidth of one such channel; 0 = only the link limits it
  std::vector<std::string> high_priority_stream_groups;  // process groups whose lanes have priority
  double link_latency_us = 50.0;                         // α of one step of a collective, see docs/scenario.md
};

// How the communication of a tensor-parallel GEMM overlaps with it: model/overlap/tp_methods.hpp.
enum class TpMethod : std::uint8_t { none, bulk, ring_exchange, pipeline, flash };
enum class TpAccumulate : std::uint8_t { ring, owner };
struct TpGemm {
  TpMethod method = TpMethod::none;
  bool aggregate = false;                        // ring_exchange before a GEMM: in chunks of two ranks' rows
  std::int64_t num_splits = 4;                   // pipeline: number of chunks
  std::int64_t num_slices = 1;                   // flash: slices of each rank's rows
  TpAccumulate accumulate = TpAccumulate::ring;  // flash after a GEMM: where partial results are summed
  bool operator==(const TpGemm&) const = default;
};

struct Overlap {
  // A forward and a backward pass of different micro-batches run concurrently: one computes while the other's rows of
  // experts are on the way.
  bool overlap_moe_expert_parallel_comm = false;
  bool delay_wgrad_compute = false;                   //   weight gradients during exchanges of rows, too
  bool ep_overlap_early_attn_memory_release = false;  //   attention's gradient before the forward pass's experts
  // Without such pairs: weight gradients of experts during the way back of their rows' gradients.
  bool overlap_dispatch_backward_with_experts_wgrad = false;
  bool moe_shared_expert_overlap = false;  // the shared expert computes on a lane of its own, during exchanges of rows
  bool high_priority_a2a_comm_stream = false;  // of pairs: exchanges of rows come first where operations wait for SMs
  // Experts compute the rows of some ranks while those of others are on the way, in this number of shards of ranks.
  bool ep_flash_overlap = false;
  std::int64_t ep_flash_shards = 2;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool align_grad_reduce = false;   // all pipeline stages reduce a chunk's gradients at the same moment
  bool align_param_gather = false;  // all pipeline stages gather a chunk's parameters at the same moment
  std::int64_t bucket_size = 0;     // elements; 0 = Megatron's default max(40e6, 1e6 · dp)
  // Each rank's update begins with its first model chunk, whose parameters are gathered while the other chunks are
  // updated.
  bool overlap_param_gather_with_optimizer_step = false;
  bool fp8_param_gather = false;  // parameters are gathered in fp8, with a scale for each block (ScaledCast)
  bool grad_reduce_in_fp32 = true;
  // Gradients in bf16 are exchanged by an all-to-all, and the rank that has the shard adds them up in f32.
  bool reduce_scatter_with_fp32_accumulation = false;
  // overlaps a layer's dgrad all-reduce with its wgrad, without sequence parallelism
  bool async_tensor_model_parallel_allreduce = false;
  // overlaps the all-gathers and reduce-scatters of sequence parallelism:
  bool tp_comm_overlap = false;
  bool tp_comm_bulk_dgrad = true;         //   all-gather of the layer's input, concurrent with its dgrad
  bool tp_comm_bulk_wgrad = true;         //   reduce-scatter of the dgrad, concurrent with the wgrad
  bool tp_comm_overlap_ag = true;         //   all-gathers before GEMMs by ring exchange
  bool tp_comm_overlap_rs = true;         //   reduce-scatters after GEMMs in chunks
  bool tp_comm_overlap_rs_dgrad = false;  //   also those of qkv and fc1 dgrad, instead of bulk
  bool tp_comm_overlap_disable_qkv = false, tp_comm_overlap_disable_fc1 = false;
  std::map<std::string, TpGemm> tp_comm_overlap_cfg;  // by "qkv_fprop", …: replaces the choice of the switches
  std::int64_t tp_comm_overlap_compute_lanes = 1;     // lanes that chunks of a GEMM alternate between
  // Ring attention's messages overlap with attention. The frameworks have no such knob: there the overlap is on
  // whenever there is a ring. A file may turn it off.
  bool cp_comm_overlap = false;
  // with cp_comm_type a2a: attention by groups of queries, while heads are exchanged
  bool cp_flash_overlap = false;
  // ZeRO-2 and ZeRO-3: gathers run ahead of compute and reduce-scatters after it
  bool fsdp_comm_overlap = false;
  std::int64_t fsdp_prefetch_depth = 1;        //   this many units ahead
  bool overlap_p2p_comm = false;               // messages between pipeline stages overlap with compute
  bool overlap_p2p_comm_warmup_flush = false;  //   also while the pipeline fills and drains
  bool defer_embedding_wgrad_compute = false;  // weight gradient of the head in the last stage's flush
  std::int64_t wgrad_deferral_limit = 0;       //   number of deferred micro-batches; 0: all
  bool batch_p2p_comm = true;                  // without overlap: messages of one compute item form one group
  bool operator==(const Overlap&) const = default;
};

// Parts of a step that a framework captures as CUDA graphs (Megatron-LM's cuda_graph_modules): its host launches one
// graph in place of neighbouring kernels. full_iteration: all of a step (its cuda_graph_impl).
enum class GraphModule : std::uint8_t { full_iteration, attn, mlp, moe_router, moe_preprocess };
const char* name_of(GraphModule module);  // "full_iteration", …

// How the learning rate falls from lr to min_lr (Megatron-LM's --lr-decay-style, optimizer_param_scheduler.py).
// `constant` does not fall; `wsd` stays at lr until the last lr_wsd_decay_iters steps (warm-up, stable, decay).
enum class LrDecay : std::uint8_t { cosine, linear, constant, wsd };
const char* name_of(LrDecay decay);
// How `wsd` falls; r is the share of lr_wsd_decay_iters that has passed: 2 · 0.5^r − 1, 1 − r, a cosine, 1 − √r.
enum class WsdDecay : std::uint8_t { exponential, linear, cosine, minus_sqrt };
const char* name_of(WsdDecay decay);

struct Training {
  std::int64_t micro_batch_size = 1;   // sequences
  std::int64_t global_batch_size = 1;  // sequences; micro-batches per rank = global / (micro · dp)
  std::string precision = "fp32";      // or "fp64", or "bf16" with optimizer, gradients and sums in fp32
  Dtype compute_dtype() const;         // the type that `precision` names
  LowPrecision low_precision;          // of the layers' linear products
  OptimizerPrecision optimizer_precision;
  Recompute recompute;
  AttentionBackend attention_backend = AttentionBackend::fused;
  bool round_partial_sums = false;  // on the host: sums of bf16 over ranks are rounded at each, as by a ring of NCCL
  // Documents end with the token eod_token (Megatron-LM's names); -1: the scenario names none, and training needs one.
  bool reset_attention_mask = false;  // attention does not cross documents
  bool reset_position_ids = false;    // positions count from a document's beginning
  bool eod_mask_loss = false;         // the loss leaves out what is predicted from eod_token
  std::int64_t eod_token = -1;
  bool divides_documents() const { return reset_attention_mask || reset_position_ids || eod_mask_loss; }
  double mean_document_tokens = 0;          // in predictions; 0: measured from the data or a file, or unknown
  DocumentLengths document_lengths;         // in predictions
  PackedSequences packed_sequences;         // what follows from both; without any() where attention crosses documents
  // Sequences of a replica over whose sum replicas differ; 0: those of a step. A step with fewer micro-batches that stands
  // for the whole one has those of the whole.
  std::int64_t sequences_of_replica = 0;
  std::int64_t global_batch_documents = 0;  // 0: global_batch_size is given; otherwise it follows from this
  bool frozen_base = false;                 // no parameter is trained: the passes of LoRA without its adapters
  bool gelu_fusion = false;                 // GELU as the epilogue of the GEMM before it, forward and backward
  bool bias_gradient_fusion = false;        // bias gradients as the epilogue of the same layer's weight gradient
  bool gelu_bias_gradient_fusion = false;   // with GELU's gradient as that epilogue: fc1's bias gradient too
  bool residual_fusion = false;             // residual additions as the epilogue of the preceding GEMM
  bool norm_gradient_fusion = false;        // a norm's dgrad and wgrad as one operation
  std::int64_t train_iters = 100;
  double lr = 1e-3, min_lr = 1e-4;
  std::int64_t lr_warmup_iters = 10;
  std::int64_t lr_decay_iters = 0;  // 0 = train_iters
  LrDecay lr_decay_style = LrDecay::cosine;
  std::int64_t lr_wsd_decay_iters = 0;  // steps at the end of lr_decay_iters; acts with `wsd`
  WsdDecay lr_wsd_decay_style = WsdDecay::exponential;
  double weight_decay = 0.1, adam_beta1 = 0.9, adam_beta2 = 0.95, adam_eps = 1e-8;
  double clip_grad = 1.0;               // 0 = off
  double grad_norm_skip_threshold = 0;  // a step with a larger gradient norm is taken back; 0 = none is
  std::uint64_t seed = 1234;
  double init_method_std = 0.02;
  // Text files (bytes are tokens), .bin token shards, or patterns of them (exec/data.hpp); relative to the scenario
  // file.
  std::vector<std::string> data, validation_data;
  std::vector<double> data_weights;  // share of samples of each of `data`; empty = all files are one sequence
  std::int64_t eval_interval = 0;    // steps between losses on validation_data; 0 = only at the end
  std::int64_t eval_iters = 10;      // global batches of validation_data that one loss is the mean of
  std::string load;                  // initial weights (exec/state/weights.hpp), "" = random; path relative like data's
  std::string checkpoint_dir;        // "" = none
  std::int64_t checkpoint_interval = 0;   // steps; 0 = only at the end
  std::int64_t save_retain_interval = 0;  // checkpoints of multiples of it are never deleted; 0 = the last two stay
  bool enable_cuda_graph = true;          // on a GPU: steps after the first are launched as one
  bool cudnn_attention_dropout = true;    // on a GPU: attention's dropout by cuDNN's own masks, where it has plans
  std::vector<GraphModule> cuda_graph_modules;  // in predictions of a profile whose host issues kernels
  bool captures(GraphModule module) const {
    return std::count(cuda_graph_modules.begin(), cuda_graph_modules.end(), module) > 0;
  }
  ExpertLoads expert_loads;  // in predictions
  // In predictions: attention's products are of codes of 8 bits; and in products of experts in MXFP8 the activation
  // and the casts of what it writes are parts of these products (TransformerEngine's fused grouped MLP).
  bool fp8_dot_product_attention = false, use_transformer_engine_op_fuser = false;
  double timeout_s = 60;  // no progress on a rank for this long is an error on all ranks
};

// Rows of the table of `stretto compare`.
struct Compare {
  // names from model/overlap/table, or "scenario" for the scenario unchanged; empty = all
  std::vector<std::string> modes;
  std::vector<std::int64_t> ranks;  // ranks of the whole layout: dp follows; micro-batches per rank stay as given
  std::int64_t repeats = 9;         // measured steps per mode and ranks
};

struct Scenario {
  std::string name;
  std::string file;  // the file that it was read from, "" for one built in code
  // Path of a platform file, or "" for the calibrated host's default path. A file may name a platform that comes with
  // Stretto.
  std::string platform;
  double compute_capability = 0;  // of the platform's GPUs: 9.0 for H100; 0: it says none
  // from the profile that the file names; the profile's defaults are in the other fields
  Framework framework;
  std::vector<std::string> by_profile;  // keys that the profile gave and the file did not
  Transformer model;
  Cluster cluster;
  Parallel parallel;
  Overlap overlap;
  Training training;
  Compare compare;

  std::int64_t num_microbatches() const {
    return training.global_batch_size / (training.micro_batch_size * parallel.data_parallel_size);
  }
  // Mean length of geometric documents that have as many pairs of tokens as a sequence has on average, or on the
  // replica that has most; 0 where attention crosses documents or nothing is known of them.
  double document_tokens_on_average() const;
  double document_tokens_of_slowest() const;
};

// Reads and checks a scenario. `overrides` are "section.key=value" with TOML values (strings may be bare), applied
// before checking. Throws Error(input): "file:line: [section] key: expected …, got …; did you mean …?".
Scenario read_scenario(const std::string& path, const std::vector<std::string>& overrides = {});
// Parses a scenario from text; `name` stands for the file in messages. For tests and fuzzing. Throws as read_scenario
// does.
Scenario parse_scenario(const std::string& text, const std::string& name,
                        const std::vector<std::string>& overrides = {});

}  // namespace stretto
