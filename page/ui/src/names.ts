// Names that people use, for what files call otherwise. A name that is not here is shown as it is.

import { models, platforms, profiles } from "../../../scenarios/words.json";

type Names<Name> = Record<string, Name | undefined>;
// Scenarios of one model, which a list shows next to each other.
const kWithGpus: Names<string> = { "deepseek-v3-256": "256 H100", "deepseek-v3-gb200": "GB200", "gpt3-175b-1024": "1,024 A100", "qwen3-30b-a3b-ep4": "ep 4" };
export const modelName = (name: string): string => [(models as Names<string>)[name] ?? name, ...(kWithGpus[name] ? [kWithGpus[name]] : [])].join(", ");
export const platformName = (name: string): string => (platforms as Names<string[]>)[name]?.[0] ?? name;
export const platformShort = (name: string): string => (platforms as Names<string[]>)[name]?.[1] ?? name;
export const profileName = (name: string): string => (profiles as Names<string>)[name] ?? (name || "no framework");

const kSwitches: Record<string, string> = {
  tp_comm_overlap: "TP collectives under GEMMs", tp_comm_overlap_ag: "All-gather under GEMMs", tp_comm_overlap_rs: "Reduce-scatter under GEMMs",
  tp_comm_overlap_rs_dgrad: "Reduce-scatter under dgrad GEMMs", tp_comm_bulk_dgrad: "Bulk all-gather during dgrad", tp_comm_bulk_wgrad: "Bulk reduce-scatter during wgrad",
  tp_comm_overlap_disable_qkv: "No TP overlap at QKV", tp_comm_overlap_disable_fc1: "No TP overlap at FC1",
  async_tensor_model_parallel_allreduce: "All-reduce during weight gradients", overlap_grad_reduce: "DP reduce-scatter under backward",
  overlap_param_gather: "DP all-gather under forward", overlap_param_gather_with_optimizer_step: "First all-gather with the optimizer",
  align_grad_reduce: "All stages reduce together", align_param_gather: "All stages gather together", grad_reduce_in_fp32: "Reduce gradients in fp32",
  reduce_scatter_with_fp32_accumulation: "Add gradients in fp32, send bf16", fp8_param_gather: "Gather parameters in fp8", overlap_p2p_comm: "PP send/recv under compute",
  batch_p2p_comm: "PP send and recv as one batch", overlap_p2p_comm_warmup_flush: "PP overlap in warm-up and flush", cp_comm_overlap: "CP ring under attention",
  cp_flash_overlap: "CP ring in pieces", defer_embedding_wgrad_compute: "Embedding gradient in the drain", delay_wgrad_compute: "Weight gradients after the all-to-all",
  overlap_moe_expert_parallel_comm: "All-to-all under the next micro-batch", moe_shared_expert_overlap: "Shared expert during the all-to-all",
  high_priority_a2a_comm_stream: "All-to-all first in the queue", ep_flash_overlap: "All-to-all in pieces", fsdp_comm_overlap: "FSDP collectives under compute",
  ep_overlap_early_attn_memory_release: "Free attention memory early", overlap_dispatch_backward_with_experts_wgrad: "Dispatch during expert gradients",
};
export const switchName = (key: string): string => kSwitches[key.slice(key.indexOf(".") + 1)] ?? key.slice(key.indexOf(".") + 1);

const kSizes: Record<string, string> = {
  "parallel.tensor_model_parallel_size": "Tensor parallel", "parallel.pipeline_model_parallel_size": "Pipeline", "parallel.context_parallel_size": "Context parallel",
  "parallel.virtual_pipeline_model_parallel_size": "Chunks a stage", "parallel.expert_model_parallel_size": "Expert parallel", "training.micro_batch_size": "Micro-batch",
  "parallel.expert_tensor_parallel_size": "Tensor parallel of experts", "parallel.pipeline_schedule": "Schedule", "training.recompute_granularity": "Recompute",
  "parallel.data_parallel_sharding_strategy": "Sharding", "parallel.sequence_parallel": "Sequence parallel", "parallel.data_parallel_size": "Data parallel",
  "training.global_batch_size": "Global batch", "model.seq_length": "Sequence length",
};
const kWords: Record<string, string> = { no_shard: "none", optim: "ZeRO-1", optim_grads: "ZeRO-2", optim_grads_params: "ZeRO-3", "": "none", "1f1b": "1F1B" };
export const wordOf = (value: string): string => kWords[value] ?? value;
export const sizeName = (key: string): string => kSizes[key] ?? key.slice(key.indexOf(".") + 1);

// Returns a change of the predictor ("pipeline_model_parallel_size 4 -> 2") in words.
export function changeName(key: string, change: string): string {
  if (key === "training.fp8_recipe") return change;
  const [, from, to] = change.match(/^\S+ (.*) -> (.*)$/) ?? [];
  if (key.startsWith("overlap.")) return `${switchName(key)}: ${to === "true" ? "on" : "off"}`;
  return to === undefined ? change : `${sizeName(key)} ${wordOf(from!)} → ${wordOf(to)}`;
}
const kMachines: Record<string, string> = {
  "products in half of their time": "GEMMs twice as fast", "attention in half of its time": "Attention twice as fast", "twice the rate of memory": "HBM twice as fast",
  "twice the rate of NVLink": "NVLink twice as fast", "twice the rate of the network": "Network twice as fast", "half the latency of links": "Half the latency",
  "a host that issues twice as fast": "CPU twice as fast",
};
export const machineName = (change: string): string => kMachines[change] ?? change;

export const pinLetters = ["A", "B", "C", "D", "E"] as const;
