#include "model/scenario/section_keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

using S = Scenario&;
using CS = const Scenario&;

bool has_ranks_of_experts(CS s) { return s.model.experts.any(); }
bool pads_experts(CS s) { return has_ranks_of_experts(s) && s.parallel.moe_expert_capacity_factor > 0; }

}  // namespace

std::vector<ScenarioKey> parallel_keys() {
  return {
      {.name = "tensor_model_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.tensor_model_parallel_size; },
       .bounds = up_to(kMaxTensorParallel),
       .range = "a divisor of `num_attention_heads`, `num_query_groups` and `ffn_hidden_size`",
       .meaning = "ranks that cut every layer between them (Megatron-LM's tensor parallelism); they are neighbours "
                  "unless `order` says otherwise",
       .megatron = {"--tensor-model-parallel-size"},
       .record = Record::none},
      {.name = "pipeline_model_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.pipeline_model_parallel_size; },
       .bounds = up_to(kMaxPipeline),
       .meaning = "pipeline stages that share the layers between them (1F1B); ranks of a stage are neighbours unless "
                  "`order` says otherwise",
       .megatron = {"--pipeline-model-parallel-size"},
       .record = Record::none},
      {.name = "context_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.context_parallel_size; },
       .bounds = up_to(kMaxContextParallel),
       .range = "twice it divides `seq_length`",
       .meaning = "ranks that share the tokens of every sequence: each has two of 2 · cp chunks, number r and number 2 "
                  "· cp − 1 − r, so that all have as much below the causal diagonal (Megatron-LM, TransformerEngine). "
                  "They have the same parameters, so gradients and the optimizer's shards go over dp × cp",
       .megatron = {"--context-parallel-size"},
       .record = Record::none},
      {.name = "data_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.data_parallel_size; },
       .bounds = up_to(kMaxRanks),
       .meaning = "ranks that each hold the model and train on their part of the batch",
       .megatron = {},
       .record = Record::none},
      {.name = "sequence_parallel",
       .field = [](S s) -> Field { return &s.parallel.sequence_parallel; },
       .range = "divides `seq_length` / `context_parallel_size` by `tensor_model_parallel_size`",
       .meaning = "between the cut layers, norms and residuals work on a share of the tokens each; all-reduces become "
                  "reduce-scatters and all-gathers",
       .megatron = {.name = "--sequence-parallel", .given = true, .absent = false},
       .record = Record::none},
      {.name = "expert_model_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.expert_model_parallel_size; },
       .bounds = up_to(kMaxRanks),
       .range =
           "divides `num_moe_experts`, and with `expert_tensor_parallel_size` the ranks of a stage; above 1 needs "
           "an `order` that ends in pp, or as many ranks with equal experts as `data_parallel_size`, and one instance "
           "of the optimizer",
       .meaning =
           "ranks that share the experts of every layer: each has as many, and gets the rows of their tokens from "
           "the others. They are neighbours, whatever cuts the dense layers (unless `order` has dp before ep); "
           "the other ranks of the stage have equal experts, whose gradients are summed over those alone, and "
           "the optimizer's shards go over them",
       .megatron = {"--expert-model-parallel-size"},
       .acts = has_ranks_of_experts,
       .record = Record::none},
      {.name = "expert_tensor_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.expert_tensor_parallel_size; },
       .bounds = {.min = 0, .max = double(kMaxTensorParallel)},
       .get = [](CS s) -> KeyValue { return s.parallel.expert_tp(); },
       .by_default = "`tensor_model_parallel_size`",
       .range = "a divisor of `moe_ffn_hidden_size`",
       .meaning =
           "ranks that cut every expert between them; they gather each other's tokens, and are neighbours as those "
           "of `tensor_model_parallel_size` are",
       .megatron = {"--expert-tensor-parallel-size"},
       .column = "etp",
       .acts = has_ranks_of_experts,
       .record = Record::none},
      {.name = "moe_token_dispatcher_type",
       .field = [](S s) -> Field { return WordField::of(s.parallel.moe_token_dispatcher_type); },
       .meaning =
           "how tokens reach the ranks of their experts: ranks that share or cut experts gather all their tokens; or "
           "each token's copies go to the ranks of its experts, by NCCL's messages, or with `\"flex\"` by the library "
           "that `moe_flex_dispatcher_backend` names (Megatron-LM's default is `\"allgather\"`)",
       .megatron = {.name = "--moe-token-dispatcher-type", .absent = "allgather"},
       .acts = [](CS s) { return has_ranks_of_experts(s) && s.parallel.expert_model_parallel_size > 1; },
       .record = Record::none},
      {.name = "moe_flex_dispatcher_backend",
       .field = [](S s) -> Field { return WordField::of(s.parallel.moe_flex_dispatcher_backend); },
       .range = "with `moe_token_dispatcher_type = \"flex\"`",
       .meaning =
           "DeepEP, HybridEP or NCCL's EP, which send a token once to every rank, and once to every node, that has "
           "some of its experts. Training runs them as `\"alltoall\"`, on the host and on GPUs; simulated GPUs have "
           "their costs",
       .megatron = {"--moe-flex-dispatcher-backend"},
       .acts =
           [](CS s) {
             return has_ranks_of_experts(s) && s.parallel.moe_token_dispatcher_type == TokenDispatcher::flex;
           },
       .record = Record::none},
      {.name = "moe_expert_rank_capacity_factor",
       .field = [](S s) -> Field { return &s.parallel.moe_expert_rank_capacity_factor; },
       .bounds = {.min = 0, .max = 1e6},
       .by_default = "0: for whatever the router says",
       .range = "0, or 1 or more; with `expert_model_parallel_size` above 1",
       .meaning =
           "rows that a rank's experts have room for, over the tokens of a rank times `moe_router_topk`, which they "
           "get when all experts have equally many. More rows are an error: no token is dropped",
       .megatron = {"--moe-expert-rank-capacity-factor"},
       .acts = [](CS s) { return has_ranks_of_experts(s) && s.parallel.expert_model_parallel_size > 1; },
       .record = Record::none},
      {.name = "moe_expert_capacity_factor",
       .field = [](S s) -> Field { return &s.parallel.moe_expert_capacity_factor; },
       .bounds = {.min = 0, .max = 1e6},
       .by_default = "0: as many rows as the router says",
       .range = "0, or 1 or more; with `moe_pad_expert_input_to_capacity`",
       .meaning = "rows that every expert has of the tokens of every rank, over the rows when all experts have equally "
                  "many: `⌈tokens · moe_router_topk / num_moe_experts · factor⌉`. More tokens of one are an error: no "
                  "token is dropped, because the layout would decide which",
       .megatron = {"--moe-expert-capacity-factor"},
       .acts = pads_experts,
       .record = Record::none},
      {.name = "moe_pad_expert_input_to_capacity",
       .field = [](S s) -> Field { return &s.parallel.moe_pad_expert_input_to_capacity; },
       .range = "with `moe_expert_capacity_factor`; not with DeepEP",
       .meaning =
           "rows that no token has are padding: sizes do not depend on the router, ranks exchange no counts, and "
           "no host waits for them",
       .megatron = {.name = "--moe-pad-expert-input-to-capacity", .given = true, .absent = false},
       .acts = pads_experts,
       .record = Record::none},
      {.name = "cp_comm_type",
       .field = nullptr,
       .type = "string, or array of strings",
       .by_default = "`\"p2p\"`",
       .range = "`\"p2p\"`, `\"all_gather\"`, `\"a2a\"`, `\"a2a+p2p\"`; of all layers, or an array with one for each "
                "of the `num_layers`",
       .meaning = "how attention meets the keys of other ranks: they go round a ring, a part at a time, and results "
                  "are merged by log-sum-exp; all of them are gathered, and gathered again on the way back; ranks "
                  "exchange tokens for heads and back (Ulysses; their number divides `num_attention_heads` and "
                  "`num_query_groups` / `tensor_model_parallel_size`); or neighbours exchange heads and groups of them "
                  "form the ring. An array of equal values is that value",
       .megatron = {.name = "--cp-comm-type",
                    .words = {{"p2p", "p2p"},
                              {"allgather", "all_gather"},
                              {"all_gather", "all_gather"},
                              {"a2a", "a2a"},
                              {"a2a+p2p", "a2a+p2p"}},
                    .is_list = true,
                    .may_be_one = true},
       .record = Record::none},
      {.name = "hierarchical_context_parallel_sizes",
       .field = nullptr,
       .type = "array of two integers",
       .by_default = "",
       .range = "product `context_parallel_size`; where a layer has `\"a2a+p2p\"`",
       .meaning = "ranks that exchange heads, which are neighbours, and groups in the ring",
       .megatron = {.name = "--hierarchical-context-parallel-sizes", .is_list = true},
       .record = Record::none},
      {.name = "use_distributed_optimizer",
       .field = nullptr,
       .type = "boolean",
       .by_default = "true (Megatron-LM: false)",
       .meaning = "data-parallel ranks update a shard of the parameters each: reduce-scatter and all-gather; false: "
                  "all-reduce, and every rank updates all of them",
       .megatron = {.name = "--use-distributed-optimizer", .given = true, .absent = false},
       .record = Record::none},
      {.name = "data_parallel_sharding_strategy",
       .field = [](S s) -> Field { return WordField::of(s.parallel.data_parallel_sharding_strategy); },
       .by_default = "as `use_distributed_optimizer` says",
       .range = "must not contradict `use_distributed_optimizer`",
       .meaning = "what data-parallel ranks have a shard of (Megatron-FSDP's key): nothing; optimizer state "
                  "(`use_distributed_optimizer`, ZeRO-1); also gradients, which are reduce-scattered after every "
                  "layer's backward pass (ZeRO-2); also parameters, which are gathered before every layer's forward "
                  "and backward pass (ZeRO-3, FSDP's `FULL_SHARD`)",
       .megatron = {.name = "--data-parallel-sharding-strategy", .with = "--use-megatron-fsdp"},
       .record = Record::none},
      {.name = "num_distributed_optimizer_instances",
       .field = [](S s) -> Field { return &s.parallel.num_distributed_optimizer_instances; },
       .bounds = up_to(kMaxRanks),
       .range = "a divisor of `data_parallel_size` that leaves at least 2 of `data_parallel_size` x "
                "`context_parallel_size` ranks in each; needs `use_distributed_optimizer`",
       .meaning =
           "instances of the optimizer: inside one, ranks have a shard each of what `data_parallel_sharding_strategy` "
           "shards, and all instances have the same. Gradients are reduce-scattered inside an instance and then "
           "all-reduced across instances, on a communicator and a lane of their own (`dp.instances`); parameters are "
           "gathered inside. With `\"optim_grads\"` and `\"optim_grads_params\"` it is hybrid sharding (HSDP), and the "
           "all-reduce is in every micro-batch, as PyTorch's FSDP2 does it. Neighbours in data parallelism are in one "
           "instance; Megatron-LM cuts `data_parallel_size` x `context_parallel_size` instead",
       .megatron = {"--num-distributed-optimizer-instances"},
       .record = Record::none},
      {.name = "reshard_after_forward",
       .field = [](S s) -> Field { return &s.parallel.reshard_after_forward; },
       .range = "false needs `\"optim_grads_params\"`",
       .meaning =
           "parameters are given back after the forward pass, and gathered again for the backward pass; false: kept "
           "until then (PyTorch's key; FSDP's `SHARD_GRAD_OP`). With pipeline stages, whose micro-batches overlap, "
           "true gathers for every pass and reduces gradients in every micro-batch (Megatron-FSDP); false gathers once "
           "a step, sums whole gradients over micro-batches and reduces them once (torch.distributed.pipelining, and "
           "so torchtitan; Llama 3). A profile's value acts with stages alone",
       .megatron = {},
       .record = Record::none},
      {.name = "pipeline_schedule",
       .field = [](S s) -> Field { return WordField::of(s.parallel.pipeline_schedule); },
       .range = "the last three need 2 stages, with sharded gradients `reshard_after_forward = false`, not "
                "`frozen_base` nor `recompute_granularity = \"full\"` or `\"selective_op\"`; `\"dualpipev\"` two "
                "micro-batches for each stage",
       .meaning =
           "the order of a stage's forward and backward passes: 1F1B, interleaved with virtual stages; or ZB-H1, ZB-V "
           "(Qi et al., arXiv 2401.10241, 2405.15362) or DualPipeV (DeepSeek-V3's DualPipe, arXiv 2412.19437, cut in "
           "half), in which weight gradients come apart, later, where the stage would wait. Their stages wait for each "
           "other at every message unless `overlap_p2p_comm` is on ([parallelism.md](parallelism.md))",
       .megatron = {},
       .record = Record::none},
      {.name = "virtual_pipeline_model_parallel_size",
       .field = [](S s) -> Field { return &s.parallel.virtual_pipeline_model_parallel_size; },
       .bounds = up_to(kMaxPipeline),
       .by_default = "1; with `\"zb-v\"` and `\"dualpipev\"` 2",
       .range = "above 1 needs 2 stages; with `\"zb-h1\"` 1, with `\"zb-v\"` and `\"dualpipev\"` 2",
       .meaning =
           "model chunks of every stage, which take turns (interleaved 1F1B): chunk c of stage s is the (c · stages + "
           "s)-th piece of the model. With `\"zb-v\"` and `\"dualpipev\"` stage s has pieces s and 2 · stages − 1 − s",
       .megatron = {"--num-virtual-stages-per-pipeline-rank"},
       .record = Record::none},
      {.name = "microbatch_group_size_per_vp_stage",
       .field = [](S s) -> Field { return &s.parallel.microbatch_group_size_per_vp_stage; },
       .bounds = up_to(kMaxGlobalBatch),
       .by_default = "`pipeline_model_parallel_size`",
       .range = "acts with 2 virtual stages and `\"1f1b\"`; from the number of stages to the micro-batches of a step, "
                "whose remainder by it is 0 or at least the number of stages",
       .meaning = "micro-batches that a chunk does in a row",
       .megatron = {"--microbatch-group-size-per-virtual-pipeline-stage"},
       .record = Record::none},
      {.name = "scatter_gather_tensors_in_pipeline",
       .field = [](S s) -> Field { return &s.parallel.scatter_gather_tensors_in_pipeline; },
       .range = "divides `seq_length` / `context_parallel_size` by `tensor_model_parallel_size`",
       .meaning = "each tensor-parallel rank sends its part of the tokens to the next stage, whose ranks gather them "
                  "(Megatron-LM until 2022, unless an option says otherwise); acts without `sequence_parallel`",
       .megatron = {},
       .record = Record::none},
      {.name = "order",
       .field = [](S s) -> Field { return &s.parallel.order; },
       .range = "axes of more than one rank once each, with dashes between them",
       .meaning = "how ranks are numbered, and so which share a node: the first axis varies fastest (Megatron-LM's "
                  "`use_tp_pp_dp_mapping` is `\"tp-cp-ep-pp-dp\"`)",
       .megatron = {.name = "--use-tp-pp-dp-mapping", .given = "tp-cp-ep-pp-dp", .absent = "tp-cp-ep-dp-pp"},
       .record = Record::none},
      {.name = "num_layers_in_first_pipeline_stage",
       .field = [](S s) -> Field { return &s.parallel.num_layers_in_first_pipeline_stage; },
       .bounds = up_to(kMaxLayers),
       .also = {"decoder_first_pipeline_num_layers"},
       .by_default = "as the others",
       .meaning = "layers of the first stage; the other stages share the rest evenly",
       .megatron = {"--decoder-first-pipeline-num-layers"},
       .record = Record::none},
      {.name = "num_layers_in_last_pipeline_stage",
       .field = [](S s) -> Field { return &s.parallel.num_layers_in_last_pipeline_stage; },
       .bounds = up_to(kMaxLayers),
       .also = {"decoder_last_pipeline_num_layers"},
       .by_default = "as the others",
       .meaning = "layers of the last stage; the other stages share the rest evenly",
       .megatron = {"--decoder-last-pipeline-num-layers"},
       .record = Record::none},
      {.name = "account_for_embedding_in_pipeline_split",
       .field = [](S s) -> Field { return &s.parallel.account_for_embedding_in_pipeline_split; },
       .range = "acts with 2 stages; not with the two above",
       .meaning = "the embedding counts as a layer of the first chunk when layers are shared",
       .megatron = {.name = "--account-for-embedding-in-pipeline-split", .given = true, .absent = false},
       .record = Record::none},
      {.name = "account_for_loss_in_pipeline_split",
       .field = [](S s) -> Field { return &s.parallel.account_for_loss_in_pipeline_split; },
       .range = "acts with 2 stages; not with the two above",
       .meaning = "the head counts as a layer of the last chunk",
       .megatron = {.name = "--account-for-loss-in-pipeline-split", .given = true, .absent = false},
       .record = Record::none},
      {.name = "pipeline_model_parallel_layout",
       .field = [](S s) -> Field { return &s.parallel.pipeline_model_parallel_layout; },
       .by_default = "",
       .range = "as many chunks as stages x virtual stages; not with the four above",
       .meaning = "every chunk in full, from input to head: `E` embedding, `t` layer, `L` head, `\\|` between chunks, "
                  "`*n` repeats what is before it, parentheses group: `\"Et*3\\|(tt\\|)*2tL\"`",
       .megatron = {"--pipeline-model-parallel-layout"},
       .record = Record::none},
  };
}

}  // namespace stretto
