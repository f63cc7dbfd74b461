#include "model/scenario/section_keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

using S = Scenario&;

}  // namespace

std::vector<ScenarioKey> overlap_keys() {
  return {
      {.name = "overlap_grad_reduce",
       .field = [](S s) -> Field { return &s.overlap.overlap_grad_reduce; },
       .also = {"overlap_grad_sync"},
       .meaning = "reduce-scatter a bucket's gradients as soon as they are ready, during the backward pass",
       .megatron = {.name = "--overlap-grad-reduce", .given = true, .absent = false},
       .in_bridge = true,
       .column = "ov_dp",
       .record = Record::none},
      {.name = "align_grad_reduce",
       .field = [](S s) -> Field { return &s.overlap.align_grad_reduce; },
       .range = "acts with `overlap_grad_reduce` and 2 stages; `pipeline_schedule` `\"1f1b\"`",
       .meaning =
           "all stages reduce the gradients of a model chunk at the same moment, when its last backward pass has "
           "come to the first stage. Without virtual stages only the first stage reduces during its backward "
           "pass, and the others after it",
       .megatron = {.name = "--no-align-grad-reduce",
                    .given = false,
                    .absent = true,
                    .aliases = {"--disable-align-grad-reduce", "--no-delay-grad-reduce"}},
       .record = Record::none,
       .drawn = {false, true}},
      {.name = "overlap_param_gather",
       .field = [](S s) -> Field { return &s.overlap.overlap_param_gather; },
       .also = {"overlap_param_sync"},
       .range = "needs `overlap_grad_reduce` and `use_distributed_optimizer`",
       .meaning = "all-gather updated parameters during the next forward pass",
       .megatron = {.name = "--overlap-param-gather", .given = true, .absent = false},
       .in_bridge = true,
       .record = Record::none},
      {.name = "align_param_gather",
       .field = [](S s) -> Field { return &s.overlap.align_param_gather; },
       .range = "acts with `overlap_param_gather` and virtual stages",
       .meaning = "all stages gather the parameters of a model chunk at the same moment, instead of each bucket one "
                  "ahead of its use",
       .megatron = {.name = "--no-align-param-gather", .given = false, .absent = true},
       .in_bridge = true,
       .record = Record::none},
      {.name = "overlap_param_gather_with_optimizer_step",
       .field = [](S s) -> Field { return &s.overlap.overlap_param_gather_with_optimizer_step; },
       .range = "needs `overlap_param_gather` and 2 virtual stages; off with `fp8_param_gather`",
       .meaning = "every rank updates its first model chunk first, whose parameters are gathered during the updates of "
                  "its other chunks; chunks are not cut into buckets then",
       .megatron = {.name = "--overlap-param-gather-with-optimizer-step", .given = true, .absent = false},
       .in_bridge = true,
       .record = Record::none},
      {.name = "fp8_param_gather",
       .field = [](S s) -> Field { return &s.overlap.fp8_param_gather; },
       .also = {"fp8_params"},
       .range = "needs `use_distributed_optimizer` and `precision` `\"bf16\"`; acts without sharded gradients and "
                "parameters",
       .meaning =
           "weights of the layers' linear products (qkv, proj, fc1, fc2) are gathered in fp8, half of the bytes of "
           "bf16; norm weights, biases, embeddings and the head stay in bf16, as in TransformerEngine (Megatron-LM "
           "d98e8a64, tests/unit_tests/test_fp8_param.py: four fp8 weights a layer). fp8 is e4m3 with a scale, a power "
           "of two in a byte, for each 32 elements (MXFP8), and computed with as bf16. Shards are cast and gathered "
           "when a step begins, from what the optimizer's fp32 parameters round to, so results do not depend on how "
           "parameters are cut. Megatron-LM has a scale for each parameter, and computes in fp8 too",
       .megatron = {.name = "--fp8-param-gather", .given = true, .absent = false},
       .record = Record::none},
      {.name = "bucket_size",
       .field = [](S s) -> Field { return &s.overlap.bucket_size; },
       .bounds = {.min = 1, .max = double(std::int64_t{1} << 40)},
       .unit = "elements",
       .by_default = "max(40·10^6, 10^6 · dp · cp), Megatron's",
       .range = "acts with `overlap_grad_reduce`",
       .meaning = "gradients and parameters are communicated in buckets of about this many elements",
       .megatron = {"--ddp-bucket-size"},
       .in_bridge = true,
       .record = Record::none},
      {.name = "grad_reduce_in_fp32",
       .field = [](S s) -> Field { return &s.overlap.grad_reduce_in_fp32; },
       .meaning = "false: gradients are accumulated as `precision` says (`bf16`: in f32) and reduced in bf16",
       .megatron = {.name = "--grad-reduce-in-bf16", .given = false, .absent = true},
       .record = Record::none},
      {.name = "reduce_scatter_with_fp32_accumulation",
       .field = [](S s) -> Field { return &s.overlap.reduce_scatter_with_fp32_accumulation; },
       .range = "acts with `grad_reduce_in_fp32 = false` and `use_distributed_optimizer`, without sharded gradients; "
                "needs `num_distributed_optimizer_instances` 1",
       .meaning = "an all-to-all of bf16 gradients, which the owner of a shard sums in fp32, instead of a "
                  "reduce-scatter in bf16: as many bytes, no rounded partial sums. Buckets take turns with a buffer of "
                  "the size of the largest, so a bucket is summed before the next one goes",
       .megatron = {.name = "--ddp-reduce-scatter-with-fp32-accumulation", .given = true, .absent = false},
       .record = Record::none},
      {.name = "async_tensor_model_parallel_allreduce",
       .field = [](S s) -> Field { return &s.overlap.async_tensor_model_parallel_allreduce; },
       .range = "acts with `tensor_model_parallel_size` > 1 without `sequence_parallel`",
       .meaning = "the all-reduce of a layer's data gradient, concurrent with its weight gradient (Megatron-LM always "
                  "does this)",
       // The flag went with 639c08ab (January 2026); scripts still have it.
       .megatron = {.given = false, .absent = true, .aliases = {"--no-async-tensor-model-parallel-allreduce"}},
       .record = Record::none},
      {.name = "tp_comm_overlap",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap; },
       .also = {"ub_tp_comm_overlap"},
       .range = "acts with `sequence_parallel`",
       .meaning = "tensor-parallel communication concurrent with GEMMs, by the two switches below",
       .megatron = {.name = "--tp-comm-overlap", .given = true, .absent = false},
       .in_bridge = true,
       .record = Record::none},
      {.name = "tp_comm_bulk_dgrad",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_bulk_dgrad; },
       .meaning = "with `tp_comm_overlap`: the all-gather of a layer's input, concurrent with its data gradient",
       .megatron = {.name = "--disable-tp-comm-bulk-dgrad",
                    .given = false,
                    .absent = true,
                    .aliases = {"--no-tp-comm-bulk-dgrad"}},
       .record = Record::none},
      {.name = "tp_comm_bulk_wgrad",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_bulk_wgrad; },
       .meaning =
           "with `tp_comm_overlap`: the reduce-scatter of a layer's data gradient, concurrent with its weight gradient",
       .megatron = {.name = "--disable-tp-comm-bulk-wgrad",
                    .given = false,
                    .absent = true,
                    .aliases = {"--no-tp-comm-bulk-wgrad"}},
       .record = Record::none},
      {.name = "tp_comm_overlap_ag",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap_ag; },
       .also = {"tp_comm_split_ag"},
       .range = "with `tp_comm_overlap`",
       .meaning = "all-gathers before GEMMs (qkv and fc1 forward, proj and fc2 data gradient) as a ring exchange "
                  "during the pieces of the GEMM",
       .megatron = {.name = "--disable-tp-comm-overlap-ag",
                    .given = false,
                    .absent = true,
                    .aliases = {"--no-tp-comm-overlap-ag"}},
       .record = Record::none},
      {.name = "tp_comm_overlap_rs",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap_rs; },
       .also = {"tp_comm_split_rs"},
       .range = "with `tp_comm_overlap`",
       .meaning =
           "reduce-scatters after GEMMs (proj and fc2 forward) in four pieces, each during the next piece of the GEMM",
       .megatron = {.name = "--disable-tp-comm-overlap-rs",
                    .given = false,
                    .absent = true,
                    .aliases = {"--no-tp-comm-overlap-rs"}},
       .record = Record::none},
      {.name = "tp_comm_overlap_rs_dgrad",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap_rs_dgrad; },
       .range = "with `tp_comm_overlap`",
       .meaning = "reduce-scatters after the data gradients of qkv and fc1 in four pieces, each concurrent with the "
                  "next piece of the "
                  "GEMM; bulk overlap of these two layers is then off",
       .megatron = {.name = "--tp-comm-overlap-rs-dgrad", .given = true, .absent = false},
       .record = Record::none},
      {.name = "tp_comm_overlap_disable_qkv",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap_disable_qkv; },
       .range = "acts with `tp_comm_overlap`; not with a method of qkv in `tp_comm_overlap_cfg`",
       .meaning = "`tp_comm_overlap` leaves out the linear layer qkv",
       // No flag today (arguments.py:2313 at d98e8a64).
       .megatron = {.given = true, .absent = false, .aliases = {"--tp-comm-overlap-disable-qkv"}},
       .record = Record::none},
      {.name = "tp_comm_overlap_disable_fc1",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap_disable_fc1; },
       .meaning = "`tp_comm_overlap` leaves out the linear layer fc1",
       .megatron = {.given = true, .absent = false, .aliases = {"--tp-comm-overlap-disable-fc1"}},
       .record = Record::none},
      {.name = "tp_comm_overlap_compute_lanes",
       .field = [](S s) -> Field { return &s.overlap.tp_comm_overlap_compute_lanes; },
       .bounds = {.min = 1, .max = 8},
       .meaning =
           "pieces of a GEMM take turns on this number of compute lanes (TransformerEngine: up to three streams)",
       .megatron = {},
       .record = Record::none},
      {.name = "tp_comm_overlap_cfg",
       .field = nullptr,
       .also = {"ub_tp_comm_overlap_cfg"},
       .type = "table",
       .by_default = "",
       .range = "below",
       .meaning = "per GEMM, instead of what the switches say",
       .megatron = {},
       .record = Record::none},
      {.name = "cp_comm_overlap",
       .field = [](S s) -> Field { return &s.overlap.cp_comm_overlap; },
       .by_default = "true with a ring, else false",
       .range = "acts in layers with `cp_comm_type` `\"p2p\"` or `\"a2a+p2p\"`",
       .meaning = "keys and values, and on the way back the sums of their gradients, go round during attention to "
                  "those that are here. The frameworks always do so and have no such key",
       .megatron = {},
       .record = Record::none},
      {.name = "cp_flash_overlap",
       .field = [](S s) -> Field { return &s.overlap.cp_flash_overlap; },
       .range = "acts in layers with `cp_comm_type` `\"a2a\"`",
       .meaning =
           "attention is computed for the tokens of one rank after the other, and its output for them, backward its "
           "gradient, moves during the next (Flash-A2A of arXiv 2604.24013). The exchange of q, k and v stays exposed",
       .megatron = {},
       .record = Record::none},
      {.name = "fsdp_comm_overlap",
       .field = [](S s) -> Field { return &s.overlap.fsdp_comm_overlap; },
       .range = "acts with `data_parallel_sharding_strategy` from `\"optim_grads\"` on, whose form of "
                "`overlap_grad_reduce` and `overlap_param_gather` it is: these are off there",
       .meaning =
           "parameters are gathered ahead of their use, and gradients reduced after it, concurrent with compute. "
           "PyTorch's FSDP always does so and has no such key",
       .megatron = {},
       .record = Record::none},
      {.name = "fsdp_prefetch_depth",
       .field = [](S s) -> Field { return &s.overlap.fsdp_prefetch_depth; },
       .bounds = {.min = 0, .max = 1 << 14},
       .unit = "units",
       .range = "acts with `fsdp_comm_overlap`",
       .meaning = "how many uses of a unit ahead its parameters are gathered, which is also the number of whole layers "
                  "besides the one in use; 0: when they are needed",
       .megatron = {},
       .record = Record::none},
      {.name = "overlap_p2p_comm",
       .field = [](S s) -> Field { return &s.overlap.overlap_p2p_comm; },
       .range = "acts with 2 stages; not with `batch_p2p_comm`",
       .meaning = "messages between pipeline stages, concurrent with compute, with and without virtual stages "
                  "(Megatron-LM: only with)",
       .megatron = {.name = "--no-overlap-p2p-communication", .given = false, .absent = true},
       .in_bridge = true,
       .record = Record::none},
      {.name = "overlap_p2p_comm_warmup_flush",
       .field = [](S s) -> Field { return &s.overlap.overlap_p2p_comm_warmup_flush; },
       .range = "needs `overlap_p2p_comm`; acts with 2 virtual stages and `pipeline_schedule = \"1f1b\"`",
       .meaning = "messages between pipeline stages are concurrent with compute while the pipeline fills and drains as "
                  "well: a "
                  "receive is posted one chunk earlier",
       .megatron = {.name = "--overlap-p2p-communication-warmup-flush", .given = true, .absent = false},
       .record = Record::none},
      {.name = "batch_p2p_comm",
       .field = [](S s) -> Field { return &s.overlap.batch_p2p_comm; },
       .range = "not with `overlap_p2p_comm`",
       .meaning = "the messages of a moment in one group (one NCCL kernel); false: side by side",
       .megatron = {},
       .in_bridge = true,
       .record = Record::none},
      {.name = "overlap_moe_expert_parallel_comm",
       .field = [](S s) -> Field { return &s.overlap.overlap_moe_expert_parallel_comm; },
       .range =
           "needs `expert_model_parallel_size` above 1, no recomputation of layers, and with stages virtual ones and "
           "`overlap_p2p_comm`; not with `tp_comm_overlap`, context parallelism or sharded gradients",
       .meaning =
           "a forward and a backward pass of different micro-batches run concurrently, so that rows of experts of "
           "one are on the way while the other computes (Megatron-LM's combined 1F1B)",
       .megatron = {.name = "--overlap-moe-expert-parallel-comm", .given = true, .absent = false},
       .in_bridge = true,
       .record = Record::none},
      {.name = "delay_wgrad_compute",
       .field = [](S s) -> Field { return &s.overlap.delay_wgrad_compute; },
       .range = "needs `overlap_moe_expert_parallel_comm`",
       .meaning =
           "weight gradients apart from the gradients of data: those of experts while the gradients of their rows "
           "are on the way back, the others while the next layer's are on the way",
       .megatron = {.name = "--delay-wgrad-compute", .given = true, .absent = false},
       .in_bridge = true,
       .record = Record::none},
      {.name = "ep_overlap_early_attn_memory_release",
       .field = [](S s) -> Field { return &s.overlap.ep_overlap_early_attn_memory_release; },
       .range = "needs `overlap_moe_expert_parallel_comm`",
       .meaning = "attention's gradient before the experts of the concurrent forward pass, so that its activations are "
                  "free earlier",
       .megatron = {.name = "--ep-overlap-early-attn-memory-release", .given = true, .absent = false},
       .record = Record::none},
      {.name = "overlap_dispatch_backward_with_experts_wgrad",
       .field = [](S s) -> Field { return &s.overlap.overlap_dispatch_backward_with_experts_wgrad; },
       .range = "acts with `expert_model_parallel_size` above 1; not with `overlap_moe_expert_parallel_comm`",
       .meaning = "weight gradients of experts while the gradients of their rows are on the way back, within one "
                  "micro-batch",
       .megatron = {.name = "--overlap-dispatch-backward-with-experts-wgrad", .given = true, .absent = false},
       .record = Record::none},
      {.name = "moe_shared_expert_overlap",
       .field = [](S s) -> Field { return &s.overlap.moe_shared_expert_overlap; },
       .range = "acts with `expert_model_parallel_size` above 1 and a shared expert; not with "
                "`overlap_moe_expert_parallel_comm`",
       .meaning = "the shared expert computes on a lane of its own while rows of the other experts are on the way",
       .megatron = {.name = "--moe-shared-expert-overlap", .given = true, .absent = false},
       .record = Record::none},
      {.name = "high_priority_a2a_comm_stream",
       .field = [](S s) -> Field { return &s.overlap.high_priority_a2a_comm_stream; },
       .range = "acts with `overlap_moe_expert_parallel_comm`",
       .meaning = "exchanges of rows come first where operations wait for a core or an SM; nothing that runs is "
                  "interrupted. In predictions this matters only where they hold some (`max_ctas` of `ep`)",
       .megatron = {.name = "--high-priority-a2a-comm-stream", .given = true, .absent = false},
       .record = Record::none,
       .drawn = {true, false}},
      {.name = "ep_flash_overlap",
       .field = [](S s) -> Field { return &s.overlap.ep_flash_overlap; },
       .range = "acts with `expert_model_parallel_size` above 1, `moe_token_dispatcher_type` `\"alltoall\"` and "
                "`moe_pad_expert_input_to_capacity` or `moe_expert_rank_capacity_factor`; not with the other modes of "
                "experts",
       .meaning = "experts compute a rank's own rows first and those of other ranks as they come, while finished rows "
                  "are on the way back (in the spirit of arXiv 2604.24013; no framework has it)",
       .megatron = {},
       .record = Record::none},
      {.name = "ep_flash_shards",
       .field = [](S s) -> Field { return &s.overlap.ep_flash_shards; },
       .bounds = {.min = 2, .max = 1024},
       .range = "acts with `ep_flash_overlap` and padding",
       .meaning = "number of shards of ranks whose rows experts compute one after the other; from "
                  "`expert_model_parallel_size` on "
                  "each rank's rows are a shard",
       .megatron = {},
       .record = Record::none,
       .drawn = {2, 3}},
      {.name = "defer_embedding_wgrad_compute",
       .field = [](S s) -> Field { return &s.overlap.defer_embedding_wgrad_compute; },
       .range = "needs 2 stages; acts with `pipeline_schedule = \"1f1b\"`",
       .meaning = "the weight gradient of the head's GEMM is computed while the pipeline drains, from activations that "
                  "are kept until then",
       .megatron = {.name = "--defer-embedding-wgrad-compute", .given = true, .absent = false},
       .in_bridge = true,
       .record = Record::none},
      {.name = "wgrad_deferral_limit",
       .field = [](S s) -> Field { return &s.overlap.wgrad_deferral_limit; },
       .bounds = {.min = 0, .max = double(kMaxGlobalBatch)},
       .unit = "micro-batches",
       .by_default = "0: all",
       .range = "needs `defer_embedding_wgrad_compute`",
       .meaning = "number of micro-batches whose weight gradient of the head is computed while the pipeline drains",
       .megatron = {"--wgrad-deferral-limit"},
       .in_bridge = true,
       .record = Record::none},
  };
}

}  // namespace stretto
